//! Facts of this machine: utilization of its processors and its memory, from the agent's segment.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;
use skopos_shm::{Host, Vertex};

/// Age beyond which a fact is not reported. An agent polls these every second, or every few seconds.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Time between two searches for the agent, while it is not found.
const SEARCH_EVERY: Duration = Duration::from_secs(5);

/// The facts that are read.
const TOPICS: [&str; 3] = ["cpu/total/busy_ratio", "mem/available_bytes", "mem/total_bytes"];

type Facts = Arc<[Vertex; 3]>;
type SearchFn = dyn Fn() -> Option<Facts> + Send + Sync;

/// The vertices of these facts, once they are found. Reading them waits for no file: a thread of its own searches.
pub(super) struct NodeFacts {
    /// Age beyond which a fact is not reported.
    max_age: Duration,
    search: Arc<SearchFn>,
    state: Arc<Mutex<State>>,
}

struct State {
    found: Option<Facts>,
    searched: Instant,
    is_searching: bool,
}

/// A search that runs. Its end is noted when it is dropped, so that a search that panics is not the last one.
struct Search {
    state: Arc<Mutex<State>>,
    found: Option<Facts>,
}

impl Drop for Search {
    fn drop(&mut self) {
        let mut state = unpoisoned(self.state.lock());
        (state.found, state.is_searching) = (self.found.take(), false);
    }
}

impl NodeFacts {
    /// Returns the facts of the agent in a runtime directory, or in the usual ones. It searches once.
    pub(super) fn of(dir: Option<PathBuf>) -> Self {
        Self::with(Arc::new(move || search(dir.as_deref())))
    }

    fn with(search: Arc<SearchFn>) -> Self {
        let state = State { found: search(), searched: Instant::now(), is_searching: false };
        Self { max_age: MAX_AGE, search, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the utilization of the processors and of the memory, those that are known.
    pub(super) fn utilization(&self) -> [Option<f64>; 2] {
        let Some(found) = self.found() else { return [None; 2] };
        let [busy, available, total] = &*found;
        let recent = |vertex| recent(vertex, self.max_age);
        let memory =
            recent(available).zip(recent(total)).map(|(available, total)| 1.0 - available / total);
        [recent(busy), memory]
    }

    /// Returns the vertices, if they are there, and starts a search otherwise.
    fn found(&self) -> Option<Facts> {
        let mut state = unpoisoned(self.state.lock());
        let is_there = |found: &Facts| !found.iter().any(Vertex::is_gone);
        state.found = state.found.take().filter(is_there);
        let is_due = state.searched.elapsed() >= SEARCH_EVERY && !state.is_searching;
        if state.found.is_none() && is_due {
            state.searched = Instant::now();
            state.is_searching = self.start_search();
        }
        state.found.clone()
    }

    /// Starts a thread that searches once. Returns false if the system has no more threads; the next search is tried later.
    fn start_search(&self) -> bool {
        let (search, state) = (Arc::clone(&self.search), Arc::clone(&self.state));
        let run = move || {
            let mut running = Search { state, found: None };
            running.found = search();
        };
        thread::Builder::new().name("skopos-orca".into()).spawn(run).is_ok()
    }
}

/// Finds the facts of an agent: lists the directories and maps the segments.
fn search(dir: Option<&Path>) -> Option<Facts> {
    let opened = match dir {
        Some(dir) => Host::open_dirs(vec![dir.to_path_buf()]),
        None => Host::open(),
    };
    let host = opened.ok()?;
    match TOPICS.map(|topic| host.lookup(topic)) {
        [Ok(busy), Ok(available), Ok(total)] => Some(Arc::new([busy, available, total])),
        _ => None,
    }
}

/// Returns the value of a fact that is recent enough.
fn recent(vertex: &Vertex, max_age: Duration) -> Option<f64> {
    let reading = vertex.latest().ok()?;
    (reading.age() <= max_age).then(|| reading.as_f64()).flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::{channel, sync_channel};

    use skopos_shm::Publisher;

    use super::*;

    /// Time that only ends a hang.
    const PATIENCE: Duration = Duration::from_secs(180);

    /// Lets the time pass until another search is due.
    fn make_due(facts: &NodeFacts) {
        let back = Instant::now().checked_sub(SEARCH_EVERY).expect("some seconds after the boot");
        unpoisoned(facts.state.lock()).searched = back;
    }

    #[test]
    fn an_old_fact_is_not_reported() {
        let dir = tempfile::tempdir().expect("a folder");
        let agent = Publisher::builder("agent").dir(dir.path()).node("n01").create();
        let agent = agent.expect("a segment");
        let mut busy = agent.writer::<f64>("n01/cpu/total/busy_ratio").expect("room");
        let mut available = agent.writer::<u64>("n01/mem/available_bytes").expect("room");
        let mut total = agent.writer::<u64>("n01/mem/total_bytes").expect("room");
        busy.publish(0.5).expect("published");
        available.publish(1 << 30).expect("published");
        total.publish(4 << 30).expect("published");
        let facts = |max_age| {
            let path = dir.path().to_owned();
            NodeFacts { max_age, ..NodeFacts::with(Arc::new(move || search(Some(path.as_path())))) }
        };
        assert_eq!(facts(Duration::MAX).utilization(), [Some(0.5), Some(0.75)]);
        // Any time is more than zero.
        thread::sleep(Duration::from_millis(1));
        assert_eq!(facts(Duration::ZERO).utilization(), [None; 2]);
    }

    #[test]
    fn a_search_that_panics_is_not_the_last_one() {
        let (begun, begins) = sync_channel(1);
        let searches = AtomicU32::new(0);
        let facts = NodeFacts::with(Arc::new(move || {
            match searches.fetch_add(1, Ordering::Relaxed) {
                0 => {}
                1 => panic!("the test says so"),
                _ => begun.send(()).expect("the test waits"),
            }
            None
        }));
        make_due(&facts);
        assert_eq!(facts.utilization(), [None; 2]);
        let until = Instant::now() + PATIENCE;
        while unpoisoned(facts.state.lock()).is_searching {
            assert!(Instant::now() < until, "the search does not end");
            thread::sleep(Duration::from_millis(1));
        }
        make_due(&facts);
        assert_eq!(facts.utilization(), [None; 2]);
        begins.recv_timeout(PATIENCE).expect("it searches again");
    }

    #[test]
    fn a_search_that_hangs_holds_up_no_report() {
        let dir = tempfile::tempdir().expect("a folder");
        let agent = Publisher::builder("agent").dir(dir.path()).node("n01").create();
        let agent = agent.expect("a segment");
        let mut busy = agent.writer::<f64>("n01/cpu/total/busy_ratio").expect("room");
        let mut available = agent.writer::<u64>("n01/mem/available_bytes").expect("room");
        let mut total = agent.writer::<u64>("n01/mem/total_bytes").expect("room");
        let path = dir.path().to_owned();

        // The first search, at the start, finds nothing; the next one waits for a permit.
        let (begun, begins) = sync_channel(1);
        let (permit, permits) = channel::<()>();
        let permits = Mutex::new(permits);
        let is_first = Mutex::new(true);
        let facts = NodeFacts::with(Arc::new(move || {
            if std::mem::take(&mut *unpoisoned(is_first.lock())) {
                return None;
            }
            begun.send(thread::current().id()).expect("the test waits");
            unpoisoned(permits.lock()).recv_timeout(PATIENCE).expect("a permit");
            search(Some(path.as_path()))
        }));
        assert_eq!(facts.utilization(), [None; 2]);
        make_due(&facts);
        assert_eq!(facts.utilization(), [None; 2]);
        let searcher = begins.recv_timeout(PATIENCE).expect("it searches");
        assert_ne!(searcher, thread::current().id());
        assert_eq!(facts.utilization(), [None; 2], "it does not wait for the search");
        assert!(unpoisoned(facts.state.lock()).is_searching);

        permit.send(()).expect("it searches");
        let until = Instant::now() + PATIENCE;
        loop {
            busy.publish(0.5).expect("published");
            available.publish(1 << 30).expect("published");
            total.publish(4 << 30).expect("published");
            if facts.utilization() == [Some(0.5), Some(0.75)] {
                break;
            }
            assert!(Instant::now() < until, "{:?}", facts.utilization());
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!unpoisoned(facts.state.lock()).is_searching);
    }
}
