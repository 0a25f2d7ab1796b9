//! The hub itself: its parts and their threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use skopos_agent::config::InsightConfig;
use skopos_agent::{MIRROR_NAME, host_name};
use skopos_model::{Sample, Timestamp, Topic};
use skopos_node::{LiveArgs, Renewing};
use skopos_query::{Engine, Registry, Source};
use skopos_shm::Host;
use skopos_term::{Failure, state};
use skopos_wire::{
    DeliveryResponder, Description, Follower, Interest, MirrorWatcher, NodeState, NodeWatcher,
    Plane, PlaneConfig, RenewalResponder,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

use crate::backend::Backend;
use crate::config::HubConfig;
use crate::counts::Counts;
use crate::facts::{Counters, FactsPublisher};
use crate::insight_infos::InsightInfos;
use crate::insights::HubInsights;
use crate::jobs::{
    Delivering, FromNodes, HelpedSegments, JobsPlace, JobsSettings, NodeFacts, SpoolTaker,
};
use crate::local::Local;
use crate::measuring::Measuring;
use crate::pki::Pki;
use crate::pulse::Pulse;
use crate::remote_write::RemoteWrite;
use crate::rules::{Rules, RulesPlace};
use crate::source::HubSource;
use crate::standing::Standings;
use crate::tables::{self, Stores};

/// Names of the listeners in facts, without that for HAProxy, which most hubs do not have.
const LISTENERS: [&str; 3] = ["unix", "http", "flight"];
const HAPROXY: &str = "haproxy";

/// The site of a hub that does not follow other nodes.
const ALONE: &str = "default";

/// A hub, which works on threads of its own until it is dropped.
pub struct Hub {
    /// Tasks beside the listeners; they start after the listeners are open.
    work: Option<Work>,
    backend: Arc<Backend>,
    infos: InsightInfos,
    rules: RulesPlace,
    site: String,
    dir: PathBuf,
    /// Certificates and tokens, if the hub has a certificate.
    pki: Option<Arc<Pki>>,
    _renewals: Option<Renewals>,
    follower: Option<Follower>,
    runtime: Runtime,
}

/// Renews certificates: of nodes, if this hub has the authority, else its own.
struct Renewals {
    _of_nodes: Option<RenewalResponder>,
    _own: Option<Renewing>,
}

impl Renewals {
    fn start((follower, pki): (&Follower, &Arc<Pki>)) -> Result<Self, Failure> {
        let plane = follower.plane();
        let mut renewals = Self { _of_nodes: None, _own: None };
        if pki.has_authority() {
            let answering = plane.serve_renewals(pki.clone());
            let failed = |e| Failure::new("the hub cannot renew certificates").because(&e);
            renewals._of_nodes = Some(answering.map_err(failed)?);
        } else {
            renewals._own = Renewing::start(plane, None::<fn()>)?;
        }
        Ok(renewals)
    }
}

/// Tasks that a hub does without a request.
struct Work {
    _insights: Option<HubInsights>,
    _rules: Option<Rules>,
    _publishing: FactsPublisher,
    _remote_write: Option<RemoteWrite>,
    _spool: Option<SpoolTaker>,
    _nodes: Option<NodeFacts>,
    _deliveries: Option<DeliveryResponder>,
}

impl Hub {
    /// Prepares a hub in the runtime directory `dir`. If it `follows`, it knows all nodes of the site of `live`; else
    /// only this machine. Open its listeners, then call [`work`](Self::work).
    ///
    /// # Errors
    /// Fails if the plane cannot be joined, the directory cannot be used, or an alias has the name of a table.
    pub fn open(
        dir: &Path,
        (live, follows): (&LiveArgs, bool),
        config: &HubConfig,
        file: Option<&Path>,
    ) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Failure::new("no threads can be started").because(&e))?;
        let others: Arc<watch::Sender<u64>> = Arc::default();
        let plane = follows.then(|| live.of_hub(dir)).transpose()?;
        let pki = live.known_identity()?.map(Pki::open).transpose();
        let pki = pki
            .map_err(|e| Failure::new("the certificates of the site cannot be used").because(&e))?;
        let pki = pki.map(Arc::new);
        let follower = plane.as_ref().map(|plane| follow(plane, ChangeNotifier(others.clone())));
        let follower = follower.transpose()?;
        let renewals = follower.as_ref().zip(pki.as_ref()).map(Renewals::start).transpose()?;
        std::fs::create_dir_all(dir)
            .map_err(|e| Failure::new(format!("{} cannot be made", dir.display())).because(&e))?;
        // The hub gets values of other nodes from those nodes, so it leaves out an agent's mirror.
        let local = Host::open_dirs(vec![dir.to_path_buf()])?.without(MIRROR_NAME);
        let infos = InsightInfos::default();
        let source = Arc::new(HubSource::new(Local::new(local), follower.as_ref(), infos.clone()));
        let site = plane.map_or_else(|| ALONE.to_owned(), |plane| plane.site);
        let settings = JobsSettings {
            database: config.catalogue.clone(),
            bucket: config.jobs.s3.clone(),
            limits: config.jobs.limits(),
        };
        let helped = config.jobs.helps_with.as_ref().map(HelpedSegments::open).transpose();
        let helped =
            helped.map_err(|e| Failure::new("[hub.jobs] helps_with").because(&e).in_file(file))?;
        let jobs = JobsPlace::new(state::jobs(), &site, settings)
            .with_urls(config.jobs.locations.clone(), config.jobs.sites.clone())
            .helping_with(helped);
        let jobs = Arc::new(jobs);
        let rules = RulesPlace::default();
        let engine = Engine::new(tables_of((&source, &jobs, &rules), config, file)?)
            .map_err(|e| Failure::new("the query engine cannot start").because(&e))?;
        let pulse = Pulse::start(Host::open_dirs(vec![dir.to_path_buf()])?).map_err(no_thread)?;
        let haproxy = config.haproxy.as_ref().map(|_| HAPROXY);
        let listeners = LISTENERS.into_iter().chain(haproxy);
        let counts = listeners.map(|name| (name, Arc::<Counts>::default())).collect();
        let measuring = follower.as_ref().map(Follower::refresher);
        let measuring = Measuring::new(dir.to_path_buf(), measuring);
        let engine = Arc::new(engine);
        let standings = Standings::new(&engine);
        let flight = OnceLock::new();
        let backend =
            Backend { engine, source, pulse, others, counts, standings, jobs, measuring, flight };
        let backend = Arc::new(backend);
        let dir = dir.to_path_buf();
        let _renewals = renewals;
        Ok(Self { work: None, backend, infos, rules, site, dir, pki, _renewals, follower, runtime })
    }

    /// Starts the tasks that need no request: the hub publishes its own facts, computes insights of its site, evaluates
    /// rules and sends values to a store.
    ///
    /// # Errors
    /// Fails if another hub uses this directory, an insight cannot be computed, or no thread can be started.
    pub fn work(&mut self, config: &HubConfig, insights: &[InsightConfig]) -> Result<(), Failure> {
        let store = config.remote_write.as_ref();
        let start = |store| RemoteWrite::start(store, self.backend.source.clone());
        let remote_write = store.map(start).transpose()?;
        let rules = Rules::start(
            (&self.dir, state::rules().as_deref()),
            &self.site,
            (self.backend.engine.clone(), self.runtime.handle().clone()),
            &config.rules,
            &self.rules,
        )?;
        let counted = Counters {
            rules: self.rules.clone(),
            listeners: self.backend.counts.clone(),
            remote_write: remote_write.as_ref().map(|remote_write| remote_write.queue().clone()),
            jobs: self.backend.jobs.clone(),
            live: self
                .follower
                .as_ref()
                .map(|follower| (follower.plane().drops().clone(), follower.site().clone())),
        };
        let site = self.follower.as_ref().map(|follower| follower.site().clone());
        let publishing = FactsPublisher::start(&self.dir, site, counted).map_err(no_thread)?;
        let backend = (&*self.backend, self.runtime.handle().clone());
        let insights =
            HubInsights::start(&self.dir, &self.site, backend, insights, self.infos.clone())?;
        let take = |folder| SpoolTaker::start(self.backend.jobs.clone(), folder);
        let _spool = state::spool().map(take).transpose().map_err(no_thread)?;
        let delivering = Delivering::default();
        let _deliveries = self.take_from_nodes(&delivering)?;
        let _nodes = self.record_nodes(config, delivering).map_err(no_thread)?;
        let (_insights, _rules) = (insights, rules);
        let (_publishing, _remote_write) = (publishing, remote_write);
        let work =
            Work { _insights, _rules, _publishing, _remote_write, _spool, _nodes, _deliveries };
        self.work = Some(work);
        Ok(())
    }

    /// Starts to take the records that nodes deliver, if the hub has a place for jobs of its own.
    fn take_from_nodes(
        &self,
        delivering: &Delivering,
    ) -> Result<Option<DeliveryResponder>, Failure> {
        let jobs = &self.backend.jobs;
        let Some(follower) = self.follower.as_ref() else { return Ok(None) };
        if jobs.folder().is_none() || jobs.helps() {
            return Ok(None);
        }
        let name = self.pki.as_ref().map_or_else(host_name, |pki| pki.names().node);
        let taker = FromNodes::new(jobs.clone(), delivering.clone());
        let taking = follower.plane().serve_deliveries(&name, taker);
        let failed = |e| Failure::new("the hub cannot take records of nodes").because(&e);
        taking.map(Some).map_err(failed)
    }

    /// Starts to record facts of the nodes of jobs, unless none are configured.
    fn record_nodes(
        &self,
        config: &HubConfig,
        delivering: Delivering,
    ) -> std::io::Result<Option<NodeFacts>> {
        let facts = config.jobs.node_facts();
        if facts.topics.is_empty() {
            return Ok(None);
        }
        let place = (self.backend.jobs.clone(), delivering);
        NodeFacts::start(facts, place, self.backend.source.clone()).map(Some)
    }

    /// Returns the state from which its listeners answer.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// Returns the certificates and tokens, if the hub has a certificate.
    pub fn pki(&self) -> Option<&Arc<Pki>> {
        self.pki.as_ref()
    }

    /// Returns the name of the site.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Returns the runtime directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the runtime on which the hub's asynchronous tasks run.
    pub fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Returns true if the hub has no connection to another node.
    pub fn is_alone(&self) -> bool {
        self.follower.as_ref().is_none_or(|follower| follower.plane().is_alone())
    }
}

fn no_thread(e: std::io::Error) -> Failure {
    Failure::new("no thread can be started").because(&e)
}

/// The tables of the hub's engine, aliases among them.
fn tables_of(
    (source, jobs, rules): (&Arc<HubSource>, &Arc<JobsPlace>, &RulesPlace),
    config: &HubConfig,
    file: Option<&Path>,
) -> Result<Registry, Failure> {
    let broken = |e| Failure::new("the query engine cannot start").because(&e);
    let archive = source.archive_file().map(Path::to_path_buf);
    let (own, all) = (source.clone(), source.clone() as Arc<dyn Source>);
    let mut registry = Registry::new(all.clone());
    let look_up = Box::new(move |topic: &Topic| own.insight_info(topic));
    let traces = source.traces_folder().map(Path::to_path_buf);
    let stores = Stores { archive, traces, jobs: jobs.clone(), rules: rules.clone() };
    tables::register(&mut registry, &all, stores, look_up).map_err(broken)?;
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

fn follow(plane: &PlaneConfig, notifier: ChangeNotifier) -> Result<Follower, Failure> {
    let failed = |e| Failure::new("the hub cannot join").because(&e);
    let plane = Plane::open(plane).map_err(failed)?;
    Follower::start_with(&plane, Interest::default(), notifier).map_err(failed)
}

/// Notifies waiting readers of messages from other nodes.
struct ChangeNotifier(Arc<watch::Sender<u64>>);

impl MirrorWatcher for ChangeNotifier {
    fn added(&mut self, _: &Description) {}
    fn sample(&mut self, _: &Topic, _: &Sample) {}
    fn checked(&mut self, _: &Topic, _: Timestamp) {}
    fn removed(&mut self, _: &Topic) {}
}

impl NodeWatcher for ChangeNotifier {
    fn node(&mut self, _: &str, _: &NodeState) {
        self.0.send_modify(|n| *n = n.wrapping_add(1));
    }
}
