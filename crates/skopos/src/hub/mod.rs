//! The hub: what many nodes tell, and the doors through which it is asked.
//!
//! `source` is what the query engine reads: this machine's segments, and a mirror of every other node's.
//! `past` asks nodes for what only they have, `read` has them measure what is too old. What a node does for
//! its part is in `live`.
//! `door` is the UNIX socket through which `skopos sql` asks as `client`, `http` the door for everybody else,
//! `flight` that for database drivers, and `listen` what both have in common; `counts` says what was asked
//! through each, `facts` publishes that. `remote_write` sends what there is to a store of somebody else's. `insights` computes what only a hub can.

mod past;
mod source;
mod read;
mod counts;
mod insights;
mod door;
mod client;
mod prometheus;
mod listen;
mod http;
mod flight;
mod remote_write;
mod facts;

#[cfg(feature = "bench")]
pub(crate) use client::ask;
pub(crate) use client::{Changes, Client, get, patience, reach};
pub(crate) use door::socket_path;
pub(crate) use listen::DoorArgs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use skopos_model::{Sample, Timestamp, Topic};
use skopos_query::{Engine, Registry, Source};
use skopos_shm::Host;
use skopos_wire::{Description, Follower, Interest, Plane, State, Watcher};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use self::counts::{Counts, Doors};
use self::door::Door;
use self::facts::{Counted, Publishing};
use self::insights::{Abouts, HubInsights};
use self::listen::TcpDoor;
use self::read::Measuring;
use self::remote_write::RemoteWrite;
use self::source::HubSource;
use crate::agent::MIRROR_NAME;
use crate::config::Config;
use crate::failure::Failure;
use crate::live::LiveArgs;
use crate::sql::{Local, Pulse};
use crate::tables;

/// What stands behind every door.
pub(crate) struct Inside {
    engine: Arc<Engine>,
    source: Arc<HubSource>,
    pulse: Pulse,
    /// Goes up whenever another node told something.
    others: Arc<watch::Sender<u64>>,
    /// What was asked through each door.
    counts: Doors,
    /// Has values measured that are too old.
    measuring: Measuring,
}

impl Inside {
    /// Whoever follows these learns that something was published here, or told by another node.
    fn news(&self) -> Vec<watch::Receiver<u64>> {
        vec![self.pulse.follow(), self.others.subscribe()]
    }
}

/// The site of a hub that follows nobody.
const ALONE: &str = "default";

/// A hub at work, on threads of its own, until it is dropped: for `skopos hub` and `skopos up`.
pub(crate) struct Hub {
    _insights: Option<HubInsights>,
    // Doors close first, then what they ask goes.
    _door: Door,
    http: TcpDoor,
    flight: TcpDoor,
    _publishing: Publishing,
    _remote_write: Option<RemoteWrite>,
    dir: PathBuf,
    #[cfg(feature = "bench")]
    inside: Arc<Inside>,
    follower: Option<Follower>,
    _runtime: Runtime,
}

impl Hub {
    /// Opens the doors in the runtime directory `dir`. With `plane` it follows all nodes of that site,
    /// without it knows this machine alone.
    ///
    /// # Errors
    /// The plane cannot be joined; a door cannot be opened; another hub has this directory.
    pub(crate) fn start(
        dir: &Path,
        plane: Option<&LiveArgs>,
        doors: &DoorArgs,
        config: &Config,
    ) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::new("no threads can be started").because(&e))?;
        let others: Arc<watch::Sender<u64>> = Arc::default();
        let follower = plane.map(|plane| follow(plane, Heard(others.clone()))).transpose()?;
        std::fs::create_dir_all(dir)
            .map_err(|e| Failure::new(format!("{} cannot be made", dir.display())).because(&e))?;
        let no_thread = |e: std::io::Error| Failure::new("no thread can be started").because(&e);
        // What an agent mirrors here the hub knows from the nodes themselves.
        let local = Host::open_dirs(vec![dir.to_path_buf()])?.without(MIRROR_NAME);
        let local = Local::new(local);
        let abouts = Abouts::default();
        let source = Arc::new(HubSource::new(local, follower.as_ref(), abouts.clone()));
        let tables = tables_of(&source, config)?;
        let engine = Engine::new(tables)
            .map_err(|e| Failure::new("the query engine cannot start").because(&e))?;
        let pulse = Pulse::start(Host::open_dirs(vec![dir.to_path_buf()])?).map_err(no_thread)?;
        let [unix, by_http, by_flight]: [Arc<Counts>; 3] = Default::default();
        let counts =
            vec![("unix", unix.clone()), ("http", by_http.clone()), ("flight", by_flight.clone())];
        let measuring = follower.as_ref().map(Follower::refresher);
        let measuring = Measuring::new(dir.to_path_buf(), measuring);
        let engine = Arc::new(engine);
        let inside = Arc::new(Inside { engine, source, pulse, others, counts, measuring });
        let handle = runtime.handle();
        let door = Door::open(dir, inside.clone(), unix, handle.clone())?;
        let http = http::open(doors.http(&config.hub), inside.clone(), by_http, handle)?;
        let at = doors.flight(&config.hub);
        let flight = flight::open(at, inside.engine.clone(), by_flight, handle)?;
        let store = config.hub.remote_write.as_ref();
        let start = |store| RemoteWrite::start(store, inside.source.clone());
        let remote_write = store.map(start).transpose()?;
        let counted = Counted {
            doors: inside.counts.clone(),
            remote_write: remote_write.as_ref().map(|remote_write| remote_write.queue().clone()),
        };
        let site = follower.as_ref().map(|follower| follower.site().clone());
        let publishing = Publishing::start(dir, site, counted).map_err(no_thread)?;
        let name = plane.map_or(ALONE, LiveArgs::site);
        let at = (&*inside, handle.clone());
        let insights = HubInsights::start(dir, name, at, &config.insight, abouts)?;
        Ok(Self {
            _insights: insights,
            _door: door,
            #[cfg(feature = "bench")]
            inside,
            http,
            flight,
            _publishing: publishing,
            _remote_write: remote_write,
            dir: dir.to_path_buf(),
            follower,
            _runtime: runtime,
        })
    }

    /// What answers, for a program that is the hub itself.
    #[cfg(feature = "bench")]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inside.engine
    }

    /// Where it can be asked, a line each.
    pub(crate) fn doors(&self) -> Vec<String> {
        let socket = socket_path(&self.dir).display().to_string();
        let tcp = [&self.http, &self.flight].into_iter().filter_map(TcpDoor::url);
        std::iter::once(socket).chain(tcp.map(str::to_owned)).collect()
    }

    /// Whether it is connected with nobody.
    pub(crate) fn is_alone(&self) -> bool {
        self.follower.as_ref().is_none_or(|follower| follower.plane().is_alone())
    }

    /// What is not as it would usually be: doors that somebody else has.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &Failure> {
        [&self.http, &self.flight].into_iter().filter_map(TcpDoor::warning)
    }
}

/// The tables of the hub's engine, aliases among them.
fn tables_of(source: &Arc<HubSource>, config: &Config) -> Result<Registry, Failure> {
    let broken = |e| Failure::new("the query engine cannot start").because(&e);
    let archive = source.archive_file().map(Path::to_path_buf);
    let (own, all) = (source.clone(), source.clone() as Arc<dyn Source>);
    let mut registry = Registry::new(all.clone());
    let look_up = Box::new(move |topic: &Topic| own.insight_info(topic));
    tables::register(&mut registry, &all, archive, look_up).map_err(broken)?;
    for (name, topic) in &config.hub.aliases {
        registry.alias(name, topic.clone()).map_err(|e| {
            Failure::new(format!("[hub.aliases] {name}"))
                .because(&e)
                .in_file(config.path.as_deref())
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

impl Watcher for Heard {
    fn heard(&mut self, _: &str, _: &State) {
        self.0.send_modify(|n| *n = n.wrapping_add(1));
    }
    fn came(&mut self, _: &Description) {}
    fn told(&mut self, _: &Topic, _: &Sample) {}
    fn checked(&mut self, _: &Topic, _: Timestamp) {}
    fn went(&mut self, _: &Topic) {}
}
