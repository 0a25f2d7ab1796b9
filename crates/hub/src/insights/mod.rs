//! Insights that the hub computes: what needs an engine, what is asked for every so often, and what is
//! about many nodes. They are published in a segment of the hub's, so that programs, the live plane and
//! SQL find them like any vertex.
//!
//! One thread asks one statement at a time: every so often, or when something that it reads has changed.
//! An answer is published when it differs from the one before; else the vertex is only marked as looked
//! at. What an insight publishes, and what its answers cost, is no change for itself, so none keeps
//! itself at work.

mod one;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

use skopos_model::{Topic, Unit, unpoisoned};
use skopos_query::Engine;
use skopos_shm::Publisher;
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::one::{LOOK_EVERY, One};
use crate::any;
use crate::inside::Inside;
use crate::tables::InsightInfo;
use skopos_agent::config::InsightConfig;
use skopos_agent::{HUB_INSIGHTS_NAME, is_for_hub};
use skopos_term::Failure;

/// How insights come about, by topic: for the table `insights`.
pub(crate) type Abouts = Arc<RwLock<BTreeMap<Topic, InsightInfo>>>;

/// Computes until it is dropped.
pub(crate) struct HubInsights {
    stop: watch::Sender<u64>,
    thread: Option<JoinHandle<()>>,
}

/// What all insights of a hub share.
struct Desk {
    engine: Arc<Engine>,
    runtime: Handle,
    abouts: Abouts,
    /// What topics begin with that say what insights cost.
    costs: String,
}

impl HubInsights {
    /// Begins to compute those of `configured` that are a hub's, under `site`; `None` if there are none.
    ///
    /// # Errors
    /// A name is no topic, a unit none; the segment cannot be made.
    pub(crate) fn start(
        dir: &Path,
        site: &str,
        (inside, runtime): (&Inside, Handle),
        configured: &[InsightConfig],
        abouts: Abouts,
    ) -> Result<Option<Self>, Failure> {
        let own: Vec<_> = configured.iter().filter(|insight| is_for_hub(insight)).collect();
        if own.is_empty() {
            return Ok(None);
        }
        let publisher = Publisher::builder(HUB_INSIGHTS_NAME).dir(dir).node(site).create()?;
        let register = |insight: &&InsightConfig| {
            let failed = |e: &dyn std::error::Error| {
                Failure::new(format!("insight `{}`", insight.name)).because(e)
            };
            let unit = insight.unit.as_deref().map_or(Ok(Unit::NONE), Unit::new);
            let unit = unit.map_err(|e| failed(&e))?;
            One::new(&publisher, site, insight, unit).map_err(|e| failed(&*e))
        };
        let ones = own.iter().map(register).collect::<Result<Vec<_>, _>>()?;
        for one in &ones {
            lock(&abouts).insert(one.topic().clone(), one.about(None));
        }
        let stop = watch::Sender::new(0);
        let mut news = vec![stop.subscribe()];
        // Who waits for what is published costs publishers a system call, so only who needs it does.
        if ones.iter().any(One::is_on_change) {
            news.extend(inside.news());
        }
        let costs = format!("{site}/self/insight/");
        let desk = Desk { engine: inside.engine.clone(), runtime, abouts, costs };
        let at_work = AtWork { publisher, desk, ones, news };
        let thread = std::thread::Builder::new().name("insights".to_owned());
        let thread = thread
            .spawn(move || at_work.run())
            .map_err(|e| Failure::new("no thread can be started").because(&e))?;
        Ok(Some(Self { stop, thread: Some(thread) }))
    }
}

impl Drop for HubInsights {
    fn drop(&mut self) {
        self.stop.send_modify(|n| *n += 1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(abouts: &Abouts) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Topic, InsightInfo>> {
    unpoisoned(abouts.write())
}

struct AtWork {
    publisher: Publisher,
    desk: Desk,
    ones: Vec<One>,
    /// First whether to stop, then what says that anything is new.
    news: Vec<watch::Receiver<u64>>,
}

impl AtWork {
    fn run(mut self) {
        let mut has_news = false;
        while *self.news[0].borrow() == 0 {
            if has_news || self.news.iter().any(|one| one.has_changed().unwrap_or_default()) {
                // Before anything is looked at: what comes from here on is news again.
                self.news.iter_mut().for_each(watch::Receiver::mark_unchanged);
                self.ones.iter_mut().for_each(One::hasten);
            }
            for one in self.ones.iter_mut().filter(|one| one.due() <= Instant::now()) {
                one.look(&self.desk);
            }
            self.publisher.heartbeat();
            has_news = self.wait();
        }
    }

    /// Sleeps until one is due, or there is news that makes one due earlier. True if there is.
    fn wait(&mut self) -> bool {
        let next = self.ones.iter().map(One::due).min();
        let left = next.map_or(LOOK_EVERY, |due| due.saturating_duration_since(Instant::now()));
        let has_use = self.ones.iter().any(One::can_be_hastened);
        let news = if has_use { &mut self.news[..] } else { &mut self.news[..1] };
        let waited = async { tokio::time::timeout(left.min(LOOK_EVERY), any(news)).await.is_ok() };
        self.desk.runtime.block_on(waited)
    }
}
