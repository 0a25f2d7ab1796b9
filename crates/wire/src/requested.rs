//! The requests for snapshots that are under way.
//!
//! Any node of a site can claim that a publisher of any name and incarnation is there, and its claim makes a follower ask.
//! So the places for requests are limited, and claims of publishers that do not exist cannot take all of them:
//!
//! - The publisher that a node's mirror follows always has a place.
//! - The other incarnations of one name have a few places.
//! - Names that the follower knows have half of all places for themselves.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::site::MAX_PUBLISHERS_OF_A_NAME;

/// Time after which a missing snapshot is requested again. It is long enough that a thousand nodes that
/// start together are not asked twice, which would delay their snapshots further.
pub(crate) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most snapshots that are requested at one time: those of a large site, twice.
const MAX_REQUESTED: usize = 32_768;

/// The number of requests from which on no further unknown name gets a place: all nodes of a large site that starts.
const MAX_OF_UNKNOWN: usize = MAX_REQUESTED / 2;

/// The knowledge that a follower has of a publisher before it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The node's mirror follows this publisher.
    Followed,
    /// A node has this name, and another publisher.
    Known,
    /// No node has this name yet.
    Unknown,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Ask.
    Ask,
    /// The publisher was asked not long ago.
    UnderWay,
    /// There is no place.
    Full,
}

/// Times at which snapshots of publishers were requested that have not arrived.
#[derive(Debug, Default)]
pub(crate) struct Requested {
    /// By name and incarnation.
    names: HashMap<String, HashMap<i64, Instant>>,
    /// Number of all requests.
    count: usize,
}

impl Requested {
    /// Decides whether to ask a publisher now.
    pub(crate) fn decide(
        &self,
        name: &str,
        incarnation: i64,
        standing: Standing,
        now: Instant,
    ) -> Decision {
        let of_name = self.names.get(name);
        if let Some(at) = of_name.and_then(|of_name| of_name.get(&incarnation)) {
            return if is_over(*at, now) { Decision::Ask } else { Decision::UnderWay };
        }
        let most = match standing {
            Standing::Followed => return Decision::Ask,
            Standing::Known => MAX_REQUESTED,
            Standing::Unknown => MAX_OF_UNKNOWN,
        };
        let of_name = of_name.map_or(0, HashMap::len);
        let has_place = of_name < MAX_PUBLISHERS_OF_A_NAME && self.count < most;
        if has_place { Decision::Ask } else { Decision::Full }
    }

    /// Notes that a publisher was asked.
    pub(crate) fn insert(&mut self, name: &str, incarnation: i64, now: Instant) {
        let of_name = self.names.entry(name.to_owned()).or_default();
        self.count += usize::from(of_name.insert(incarnation, now).is_none());
    }

    /// Notes that a snapshot arrived.
    pub(crate) fn remove(&mut self, name: &str, incarnation: i64) {
        let Some(of_name) = self.names.get_mut(name) else { return };
        self.count -= usize::from(of_name.remove(&incarnation).is_some());
        if of_name.is_empty() {
            self.names.remove(name);
        }
    }

    /// Gives back the places of requests without an answer. Call it now and then, and not for each message: it goes
    /// through all requests.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.names.retain(|_, of_name| {
            of_name.retain(|_, at| !is_over(*at, now));
            !of_name.is_empty()
        });
        self.count = self.names.values().map(HashMap::len).sum();
    }
}

/// Returns true if a request of this time has got no answer.
fn is_over(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) >= SNAPSHOT_TIMEOUT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decides, and notes the request if it is to be made.
    fn ask(
        all: &mut Requested,
        name: &str,
        incarnation: i64,
        standing: Standing,
        now: Instant,
    ) -> Decision {
        let decision = all.decide(name, incarnation, standing, now);
        if decision == Decision::Ask {
            all.insert(name, incarnation, now);
        }
        decision
    }

    #[test]
    fn a_snapshot_is_requested_again_after_the_timeout_or_its_arrival() {
        let (mut all, now) = (Requested::default(), Instant::now());
        let known = |all: &mut Requested, now| ask(all, "n01", 1, Standing::Known, now);
        assert_eq!(known(&mut all, now), Decision::Ask);
        assert_eq!(known(&mut all, now), Decision::UnderWay);
        assert_eq!(known(&mut all, now + SNAPSHOT_TIMEOUT), Decision::Ask);
        all.remove("n01", 1);
        all.remove("n02", 1);
        assert_eq!(known(&mut all, now), Decision::Ask);
        all.expire(now + SNAPSHOT_TIMEOUT / 2);
        assert_eq!(all.count, 1);
        all.expire(now + SNAPSHOT_TIMEOUT);
        assert_eq!((all.count, all.names.len()), (0, 0));
    }

    #[test]
    fn invented_incarnations_of_a_name_leave_places_for_others() {
        let (mut all, now) = (Requested::default(), Instant::now());
        let asked = (0..2 * MAX_REQUESTED as i64)
            .filter(|n| ask(&mut all, "n01", *n, Standing::Known, now) == Decision::Ask);
        assert_eq!(asked.count(), MAX_PUBLISHERS_OF_A_NAME);
        assert_eq!(ask(&mut all, "n01", -1, Standing::Followed, now), Decision::Ask);
        assert_eq!(ask(&mut all, "n02", 1, Standing::Unknown, now), Decision::Ask);
    }

    #[test]
    fn invented_names_leave_places_for_known_ones() {
        let (mut all, now) = (Requested::default(), Instant::now());
        let asked = (0..MAX_REQUESTED).filter(|n| {
            ask(&mut all, &format!("x{n}"), 1, Standing::Unknown, now) == Decision::Ask
        });
        assert_eq!(asked.count(), MAX_OF_UNKNOWN);
        assert_eq!(ask(&mut all, "n01", 1, Standing::Known, now), Decision::Ask);
        assert_eq!(ask(&mut all, "n02", 1, Standing::Followed, now), Decision::Ask);
        assert_eq!(ask(&mut all, "new", 1, Standing::Unknown, now), Decision::Full);
        let later = now + SNAPSHOT_TIMEOUT;
        all.expire(later);
        assert_eq!(ask(&mut all, "new", 1, Standing::Unknown, later), Decision::Ask);
    }
}
