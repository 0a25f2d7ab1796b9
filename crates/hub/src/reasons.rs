//! Formulas and reasons of an agent's insights. A vertex of numbers has no room for the reason why it is unknown;
//! the agent tells it through its control socket.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::tables::InsightInfo;
use skopos_agent::control::{Answer, Request, VertexStatus, ask};
use skopos_model::{Topic, unpoisoned};

/// Time for which an agent's answer is kept. One scan of the table `insights` then asks each agent once.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Time after a failure in which the agent is not asked again: a request to an agent that hangs takes seconds.
const PAUSE: Duration = Duration::from_secs(30);

/// Maximum number of insights of one agent that are kept. It bounds the number of pages that a scan asks for.
const MAX_INSIGHTS: usize = 4096;

/// Formulas and reasons of the insights of agents on this machine.
#[derive(Debug, Default)]
pub(crate) struct AgentInsights {
    agents: Mutex<HashMap<PathBuf, CachedInsights>>,
}

/// The last answer of one agent.
#[derive(Debug)]
struct CachedInsights {
    until: Instant,
    insights: BTreeMap<String, InsightInfo>,
}

impl AgentInsights {
    /// Returns the formula and the reason that the agent in `dir` has for `topic`; `None` if the agent does not have
    /// this insight, or cannot be asked.
    pub(crate) fn find(&self, dir: &Path, topic: &Topic) -> Option<InsightInfo> {
        // The lock is held during the request, so that parallel scans ask once.
        let mut agents = unpoisoned(self.agents.lock());
        let now = Instant::now();
        if agents.get(dir).is_none_or(|kept| kept.until <= now) {
            let kept = match all(dir) {
                Some(insights) => CachedInsights { until: Instant::now() + KEPT_FOR, insights },
                None => CachedInsights { until: Instant::now() + PAUSE, insights: BTreeMap::new() },
            };
            agents.insert(dir.to_path_buf(), kept);
        }
        agents.get(dir)?.insights.get(topic.as_str()).cloned()
    }
}

/// Asks the agent in `dir` for its insights, page by page; `None` if it cannot be asked.
fn all(dir: &Path) -> Option<BTreeMap<String, InsightInfo>> {
    let mut insights = BTreeMap::new();
    let mut after = None;
    loop {
        let request = Request::Vertices { pattern: "**".to_owned(), insights_only: true, after };
        let Answer::Vertices { vertices, more } = ask(dir, &request).ok()? else { return None };
        after = vertices.last().map(|vertex| vertex.topic.clone());
        for VertexStatus { topic, formula, unknown, .. } in vertices {
            insights.insert(topic, InsightInfo { formula, reason: unknown });
        }
        if !more || after.is_none() || insights.len() >= MAX_INSIGHTS {
            return Some(insights);
        }
    }
}
