//! A hub at work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skopos_agent::MIRROR_NAME;
use skopos_agent::config::InsightConfig;
use skopos_model::{Sample, Timestamp, Topic};
use skopos_node::LiveArgs;
use skopos_query::{Engine, Registry, Source};
use skopos_shm::Host;
use skopos_term::Failure;
use skopos_wire::{Description, Follower, Interest, MirrorWatcher, NodeState, NodeWatcher, Plane};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

use crate::config::HubConfig;
use crate::counts::Counts;
use crate::facts::{Counted, Publishing};
use crate::inside::Inside;
use crate::insights::{Abouts, HubInsights};
use crate::local::Local;
use crate::pulse::Pulse;
use crate::read::Measuring;
use crate::remote_write::RemoteWrite;
use crate::source::HubSource;
use crate::tables;

/// The names of the listeners, as facts have them.
const LISTENERS: [&str; 3] = ["unix", "http", "flight"];

/// The site of a hub that follows nobody.
const ALONE: &str = "default";

/// A hub at work, on threads of its own, until it is dropped: for `skopos hub` and `skopos up`.
pub struct Hub {
    /// What runs beside the listeners, once they are open.
    work: Option<Work>,
    inside: Arc<Inside>,
    abouts: Abouts,
    site: String,
    dir: PathBuf,
    follower: Option<Follower>,
    runtime: Runtime,
}

/// What a hub does by itself.
struct Work {
    _insights: Option<HubInsights>,
    _publishing: Publishing,
    _remote_write: Option<RemoteWrite>,
}

impl Hub {
    /// Prepares what is asked in the runtime directory `dir`. With `plane` the hub follows all nodes of that
    /// site, without it knows this machine alone. Open its listeners, then call [`work`](Self::work).
    ///
    /// # Errors
    /// The plane cannot be joined; the directory cannot be used; an alias has the name of a table.
    pub fn open(
        dir: &Path,
        plane: Option<&LiveArgs>,
        config: &HubConfig,
        file: Option<&Path>,
    ) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::new("no threads can be started").because(&e))?;
        let others: Arc<watch::Sender<u64>> = Arc::default();
        let follower = plane.map(|plane| follow(plane, Heard(others.clone()))).transpose()?;
        std::fs::create_dir_all(dir)
            .map_err(|e| Failure::new(format!("{} cannot be made", dir.display())).because(&e))?;
        // What an agent mirrors here the hub knows from the nodes themselves.
        let local = Host::open_dirs(vec![dir.to_path_buf()])?.without(MIRROR_NAME);
        let abouts = Abouts::default();
        let source = Arc::new(HubSource::new(Local::new(local), follower.as_ref(), abouts.clone()));
        let engine = Engine::new(tables_of(&source, config, file)?)
            .map_err(|e| Failure::new("the query engine cannot start").because(&e))?;
        let pulse = Pulse::start(Host::open_dirs(vec![dir.to_path_buf()])?).map_err(no_thread)?;
        let counts = LISTENERS.map(|name| (name, Arc::<Counts>::default())).into();
        let measuring = follower.as_ref().map(Follower::refresher);
        let measuring = Measuring::new(dir.to_path_buf(), measuring);
        let engine = Arc::new(engine);
        let inside = Arc::new(Inside { engine, source, pulse, others, counts, measuring });
        let site = plane.map_or(ALONE, LiveArgs::site).to_owned();
        let dir = dir.to_path_buf();
        Ok(Self { work: None, inside, abouts, site, dir, follower, runtime })
    }

    /// Begins what a hub does by itself: it publishes its own facts, computes insights of its site and sends
    /// values to a store.
    ///
    /// # Errors
    /// Another hub has this directory; an insight cannot be computed; no thread can be started.
    pub fn work(&mut self, config: &HubConfig, insights: &[InsightConfig]) -> Result<(), Failure> {
        let store = config.remote_write.as_ref();
        let start = |store| RemoteWrite::start(store, self.inside.source.clone());
        let remote_write = store.map(start).transpose()?;
        let counted = Counted {
            doors: self.inside.counts.clone(),
            remote_write: remote_write.as_ref().map(|remote_write| remote_write.queue().clone()),
        };
        let site = self.follower.as_ref().map(|follower| follower.site().clone());
        let publishing = Publishing::start(&self.dir, site, counted).map_err(no_thread)?;
        let at = (&*self.inside, self.runtime.handle().clone());
        let insights =
            HubInsights::start(&self.dir, &self.site, at, insights, self.abouts.clone())?;
        let (_insights, _publishing, _remote_write) = (insights, publishing, remote_write);
        self.work = Some(Work { _insights, _publishing, _remote_write });
        Ok(())
    }

    /// What its listeners ask.
    pub fn inside(&self) -> &Arc<Inside> {
        &self.inside
    }

    /// The runtime directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where its tasks run.
    pub fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Returns true if it is connected with no other node.
    pub fn is_alone(&self) -> bool {
        self.follower.as_ref().is_none_or(|follower| follower.plane().is_alone())
    }
}

fn no_thread(e: std::io::Error) -> Failure {
    Failure::new("no thread can be started").because(&e)
}

/// The tables of the hub's engine, aliases among them.
fn tables_of(
    source: &Arc<HubSource>,
    config: &HubConfig,
    file: Option<&Path>,
) -> Result<Registry, Failure> {
    let broken = |e| Failure::new("the query engine cannot start").because(&e);
    let archive = source.archive_file().map(Path::to_path_buf);
    let (own, all) = (source.clone(), source.clone() as Arc<dyn Source>);
    let mut registry = Registry::new(all.clone());
    let look_up = Box::new(move |topic: &Topic| own.insight_info(topic));
    tables::register(&mut registry, &all, archive, look_up).map_err(broken)?;
    for (name, topic) in &config.aliases {
        registry.alias(name, topic.clone()).map_err(|e| {
            Failure::new(format!("[hub.aliases] {name}"))
                .because(&e)
                .in_file(file)
                .hint("choose another name; `SHOW TABLES` lists those that are taken")
        })?;
    }
    Ok(registry)
}

fn follow(plane: &LiveArgs, heard: Heard) -> Result<Follower, Failure> {
    let failed = |e| Failure::new("the hub cannot join").because(&e);
    let plane = Plane::open(&plane.of_hub()).map_err(failed)?;
    Follower::start_with(&plane, Interest::default(), heard).map_err(failed)
}

/// Wakes whoever waits for what other nodes tell.
struct Heard(Arc<watch::Sender<u64>>);

impl MirrorWatcher for Heard {
    fn added(&mut self, _: &Description) {}
    fn sample(&mut self, _: &Topic, _: &Sample) {}
    fn checked(&mut self, _: &Topic, _: Timestamp) {}
    fn removed(&mut self, _: &Topic) {}
}

impl NodeWatcher for Heard {
    fn node(&mut self, _: &str, _: &NodeState) {
        self.0.send_modify(|n| *n = n.wrapping_add(1));
    }
}
