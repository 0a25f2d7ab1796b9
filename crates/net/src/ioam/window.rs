//! The probes that came from each source, so that a probe which is sent again does not count twice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

/// Probes of a source that are kept: those of some seconds, by which probes overtake each other at most.
const WINDOW: usize = 64;

/// The most sources: the hosts of a large site that probe one of them.
const MAX_SOURCES: usize = 4096;

/// The sources, by their addresses.
#[derive(Debug)]
pub(super) struct Sources {
    all: BTreeMap<Ipv6Addr, Source>,
    /// Time after which a silent source is evicted if there is no room for another: all of its probes are stale then.
    evict_after_ns: u64,
}

#[derive(Debug, Default)]
struct Source {
    /// The times of sending and the numbers of the latest probes.
    latest: BTreeSet<(u64, u32)>,
    /// The time at which the last one came.
    seen: u64,
}

impl Sources {
    /// Evicts sources that were silent for a time in nanoseconds when there is no room.
    pub(super) fn new(evict_after_ns: u64) -> Self {
        Self { all: BTreeMap::new(), evict_after_ns }
    }

    /// Notes a probe with its time of sending and its number, which comes `now`. Returns false if it came before, is older than the
    /// window, or has a source for which there is no room.
    pub(super) fn is_new(&mut self, from: Ipv6Addr, probe: (u64, u32), now: u64) -> bool {
        if self.all.len() >= MAX_SOURCES && !self.all.contains_key(&from) {
            let oldest = now.saturating_sub(self.evict_after_ns);
            self.all.retain(|_, source| source.seen >= oldest);
            if self.all.len() >= MAX_SOURCES {
                return false;
            }
        }
        let source = self.all.entry(from).or_default();
        let is_full = source.latest.len() >= WINDOW;
        let is_old = is_full && source.latest.first().is_some_and(|first| probe < *first);
        if is_old || !source.latest.insert(probe) {
            return false;
        }
        if is_full {
            source.latest.pop_first();
        }
        source.seen = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Ipv6Addr = Ipv6Addr::LOCALHOST;

    #[test]
    fn a_probe_counts_once_also_if_others_overtake_it() {
        let mut sources = Sources::new(100);
        assert!([3, 1, 2].iter().all(|at| sources.is_new(FROM, (*at, 0), 5)));
        assert!([1, 2, 3].iter().all(|at| !sources.is_new(FROM, (*at, 0), 5)));
        assert!(sources.is_new(FROM, (3, 1), 5), "another one of the same time");
        let other = Ipv6Addr::UNSPECIFIED;
        assert!(sources.is_new(other, (1, 0), 5));
        // The numbers of a sender that was started again begin anew.
        for at in 10..10 + WINDOW as u64 {
            assert!(sources.is_new(FROM, (at, 0), 6), "{at}");
        }
        assert!(!sources.is_new(FROM, (4, 0), 6), "it is older than the window");
    }

    #[test]
    fn silent_sources_make_room() {
        let mut sources = Sources::new(100);
        let address = |at: usize| Ipv6Addr::from(at as u128);
        assert!((0..MAX_SOURCES).all(|at| sources.is_new(address(at), (1, 0), 1)));
        assert!(!sources.is_new(address(MAX_SOURCES), (1, 0), 101));
        assert!(sources.is_new(address(0), (2, 0), 101), "a known one");
        assert!(sources.is_new(address(MAX_SOURCES), (1, 0), 102));
        assert_eq!(sources.all.len(), 2);
    }
}
