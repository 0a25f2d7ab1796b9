//! The places for requests that one publisher, or one follower, answers at one time.
//!
//! A request first has a place for its check, which takes a fraction of a millisecond: until then nobody knows who asks.
//! The answer may take long, and needs a place of its own. A node has one place, and all nodes together have half of them,
//! so a node that asks all the time delays neither other nodes nor hubs. Other callers can have all places: hubs, which
//! ask for many clients, and programs without a certificate, which cannot be told apart.
//!
//! A place is given back when it is dropped, also when its thread panics.

use std::sync::{Arc, Mutex};

use skopos_access::Caller;
use skopos_model::unpoisoned;

/// Requests that are answered at one time, each on a thread. Further requests get no answer, and their clients retry.
const MAX_ANSWERING: usize = 8;

/// Requests of nodes among them: half, so that hubs always find places.
const MAX_ANSWERING_NODES: usize = MAX_ANSWERING / 2;

/// Requests that are checked at one time, each on a thread: as many as are answered.
const MAX_CHECKING: usize = 8;

/// The places for requests of one kind. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    /// Number of requests that are checked.
    checking: usize,
    /// The nodes whose requests are answered.
    nodes: Vec<String>,
    /// Number of requests of other callers that are answered.
    others: usize,
}

/// The place of a request that is checked.
#[derive(Debug)]
pub(crate) struct Checking(Places);

/// The place of a request that is answered.
#[derive(Debug)]
pub(crate) struct Answering {
    places: Places,
    /// The node that asks; `None` for other callers.
    node: Option<String>,
}

impl Places {
    /// Runs `work` on a thread of its own, with a place for the check of a request. Does nothing, and returns false, if
    /// there is none, or if no thread can be started.
    #[must_use]
    pub(crate) fn on_thread(&self, work: impl FnOnce(Checking) + Send + 'static) -> bool {
        let Some(checking) = self.check() else { return false };
        // If no thread can be started, the place is dropped with the closure.
        let run = move || work(checking);
        std::thread::Builder::new().name("live-answer".to_owned()).spawn(run).is_ok()
    }

    fn check(&self) -> Option<Checking> {
        let mut taken = unpoisoned(self.0.lock());
        if taken.checking >= MAX_CHECKING {
            return None;
        }
        taken.checking += 1;
        Some(Checking(self.clone()))
    }
}

impl Checking {
    /// Exchanges the place for one of an answer to `caller`. Returns `None` if there is none: the request is dropped.
    pub(crate) fn admit(self, caller: &Caller) -> Option<Answering> {
        let places = self.0.clone();
        let mut taken = unpoisoned(places.0.lock());
        if taken.nodes.len() + taken.others >= MAX_ANSWERING {
            return None;
        }
        let node = match caller {
            Caller::Node(names) if !names.is_hub => Some(names.node.clone()),
            _ => None,
        };
        match &node {
            Some(node)
                if taken.nodes.len() >= MAX_ANSWERING_NODES || taken.nodes.contains(node) =>
            {
                return None;
            }
            Some(node) => taken.nodes.push(node.clone()),
            None => taken.others += 1,
        }
        drop(taken);
        Some(Answering { places, node })
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        unpoisoned(self.0.0.lock()).checking -= 1;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut taken = unpoisoned(self.places.0.lock());
        match &self.node {
            Some(node) => taken.nodes.retain(|other| other != node),
            None => taken.others -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use skopos_access::Names;

    use super::*;

    fn caller(node: &str, is_hub: bool) -> Caller {
        Caller::Node(Names { site: "s".to_owned(), node: node.to_owned(), is_hub })
    }

    fn admit(places: &Places, caller: &Caller) -> Option<Answering> {
        places.check().and_then(|checking| checking.admit(caller))
    }

    #[test]
    fn a_node_that_asks_all_the_time_leaves_places_for_others() {
        let places = Places::default();
        let first = admit(&places, &caller("n01", false)).expect("a place");
        assert!(admit(&places, &caller("n01", false)).is_none(), "it has one place");
        let nodes: Vec<Answering> =
            (2..20).filter_map(|n| admit(&places, &caller(&format!("n{n:02}"), false))).collect();
        assert_eq!(nodes.len() + 1, MAX_ANSWERING_NODES);
        let hub: Vec<Answering> =
            (0..20).filter_map(|_| admit(&places, &caller("hub", true))).collect();
        assert_eq!(hub.len(), MAX_ANSWERING - MAX_ANSWERING_NODES);
        drop((first, hub));
        let _again = admit(&places, &caller("n01", false)).expect("its place is free");
    }

    #[test]
    fn callers_that_cannot_be_told_apart_share_all_places() {
        let places = Places::default();
        let all: Vec<Answering> =
            (0..20).filter_map(|_| admit(&places, &Caller::Anybody)).collect();
        assert_eq!(all.len(), MAX_ANSWERING);
    }

    #[test]
    fn a_request_that_panics_gives_its_places_back() {
        let (places, (done, ended)) = (Places::default(), channel::<()>());
        for n in 0..3 * MAX_CHECKING {
            let done = done.clone();
            let _ = places.on_thread(move |checking| {
                // Dropped last, when the places are free again.
                let _done = done;
                let _place = (n % 2 == 0).then(|| checking.admit(&caller("n01", false)));
                std::panic::resume_unwind(Box::new("a bug in a decoder"));
            });
            let is_free = || unpoisoned(places.0.lock()).checking == 0;
            while !is_free() {
                std::thread::yield_now();
            }
        }
        drop(done);
        assert!(ended.recv().is_err(), "all threads have ended");
        assert!(admit(&places, &caller("n01", false)).is_some());
        assert_eq!(unpoisoned(places.0.lock()).others, 0);
    }
}
