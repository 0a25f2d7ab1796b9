//! Facts of this machine: utilization of its processors and its memory, from the agent's segment.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use skopos_shm::{Host, Vertex};

/// Age beyond which a fact is not reported. An agent polls these every second, or every few seconds.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Time between two searches for the agent, while there is none.
const SEARCH_EVERY: Duration = Duration::from_secs(5);

/// The facts that are read.
const TOPICS: [&str; 3] = ["cpu/total/busy_ratio", "mem/available_bytes", "mem/total_bytes"];

/// The vertices of these facts, once they are found.
#[derive(Debug, Default)]
pub(super) struct NodeFacts {
    /// Runtime directory of the agent, if it is not a usual one.
    dir: Option<PathBuf>,
    found: Option<[Vertex; 3]>,
    searched: Option<Instant>,
}

impl NodeFacts {
    /// Returns the facts of the agent in a runtime directory.
    pub(super) fn of(dir: PathBuf) -> Self {
        Self { dir: Some(dir), ..Self::default() }
    }

    /// Returns the utilization of the processors and of the memory, those that are known.
    pub(super) fn utilization(&mut self) -> [Option<f64>; 2] {
        if self.found.as_ref().is_none_or(|found| found.iter().any(Vertex::is_gone)) {
            self.search();
        }
        let Some([busy, available, total]) = &self.found else { return [None; 2] };
        let memory =
            recent(available).zip(recent(total)).map(|(available, total)| 1.0 - available / total);
        [recent(busy), memory]
    }

    fn search(&mut self) {
        self.found = None;
        if self.searched.is_some_and(|at| at.elapsed() < SEARCH_EVERY) {
            return;
        }
        self.searched = Some(Instant::now());
        let opened = match &self.dir {
            Some(dir) => Host::open_dirs(vec![dir.clone()]),
            None => Host::open(),
        };
        let Ok(host) = opened else { return };
        if let [Ok(busy), Ok(available), Ok(total)] = TOPICS.map(|topic| host.lookup(topic)) {
            self.found = Some([busy, available, total]);
        }
    }
}

/// Returns the value of a fact that is recent enough.
fn recent(vertex: &Vertex) -> Option<f64> {
    let reading = vertex.latest().ok()?;
    (reading.age() <= MAX_AGE).then(|| reading.as_f64()).flatten()
}
