//! Insights that the hub computes: those that need a query engine, have an interval, or read several nodes. The hub
//! publishes them in a segment of its own, where programs, the live plane and SQL find them like any vertex.
//!
//! One thread asks one statement at a time: after its interval, or when its inputs have changed.
//! It publishes an answer that differs from the last one; otherwise it only updates the poll time of the vertex. The
//! values and costs of an insight do not count as changes of its own inputs, so an insight does not trigger itself.

mod context;
mod insight;

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;

use skopos_model::Unit;
use skopos_shm::Publisher;
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::context::{Context, store_info};
use self::insight::{CHECK_EVERY, HubInsight};
use crate::backend::Backend;
use crate::insight_infos::InsightInfos;
use crate::pulse::any_changed;
use skopos_agent::config::InsightConfig;
use skopos_agent::{HUB_INSIGHTS_NAME, is_for_hub};
use skopos_term::Failure;

/// Computes insights until it is dropped.
pub(crate) struct HubInsights {
    stop: watch::Sender<u64>,
    thread: Option<JoinHandle<()>>,
}

impl HubInsights {
    /// Starts to compute the insights of `configured` that are a hub's, as topics of `site`; `None` if the hub has
    /// none.
    ///
    /// # Errors
    /// Fails if a name or a unit is not valid, or the segment cannot be created.
    pub(crate) fn start(
        dir: &Path,
        site: &str,
        (backend, runtime): (&Backend, Handle),
        configured: &[InsightConfig],
        infos: InsightInfos,
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
            HubInsight::new(&publisher, site, insight, unit).map_err(|e| failed(&*e))
        };
        let insights = own.iter().map(register).collect::<Result<Vec<_>, _>>()?;
        for insight in &insights {
            store_info(&infos, insight.topic(), insight.info(None));
        }
        let stop = watch::Sender::new(0);
        let mut news = vec![stop.subscribe()];
        // A waiting reader costs publishers a system call, so the hub waits only if an insight needs it.
        if insights.iter().any(HubInsight::is_on_change) {
            news.extend(backend.news());
        }
        let costs = format!("{site}/self/insight/");
        let context = Context { engine: backend.engine.clone(), runtime, infos, costs };
        let task = Task { publisher, context, insights, news };
        let thread = std::thread::Builder::new().name("insights".to_owned());
        let thread = thread
            .spawn(move || task.run())
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

/// The state of the thread that computes.
struct Task {
    publisher: Publisher,
    context: Context,
    insights: Vec<HubInsight>,
    /// The channel that ends the thread, then the channels that notify of changes.
    news: Vec<watch::Receiver<u64>>,
}

impl Task {
    fn run(mut self) {
        let mut has_news = false;
        while *self.news[0].borrow() == 0 {
            if has_news || self.news.iter().any(|channel| channel.has_changed().unwrap_or_default())
            {
                // Before the insights are checked: changes from here on count as new.
                self.news.iter_mut().for_each(watch::Receiver::mark_unchanged);
                self.insights.iter_mut().for_each(HubInsight::hasten);
            }
            for insight in self.insights.iter_mut().filter(|i| i.due() <= Instant::now()) {
                insight.check(&self.context);
            }
            self.publisher.heartbeat();
            has_news = self.wait();
        }
    }

    /// Sleeps until an insight is due, or until a change makes one due earlier. Returns true after a change.
    fn wait(&mut self) -> bool {
        let next = self.insights.iter().map(HubInsight::due).min();
        let left = next.map_or(CHECK_EVERY, |due| due.saturating_duration_since(Instant::now()));
        let has_use = self.insights.iter().any(HubInsight::can_be_hastened);
        let news = if has_use { &mut self.news[..] } else { &mut self.news[..1] };
        let waited =
            async { tokio::time::timeout(left.min(CHECK_EVERY), any_changed(news)).await.is_ok() };
        self.context.runtime.block_on(waited)
    }
}
