//! The files and the counts of an engine, behind one lock.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::place::{Moved, Own, Policy, Telemetry, Tier, Usage};
use crate::tiers::folder::Kind;
use crate::tiers::name::FileName;
use crate::tiers::stats::Stats;

/// Reads of other files after which a file that was announced and not read is no longer kept for its reader: a few steps of
/// a large program, so that a wrong announcement does not hold a cache for ever.
pub const AWAITED_READS: u64 = 4096;
/// Time after which a tier that failed, or had no space, is tried again: short against an outage, long against a write.
const RETRY: Duration = Duration::from_secs(1);

/// The work that is done on a file. One at a time; readers do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    None,
    Writing,
    Moving,
    Prefetching,
    Removing,
}

/// A copy of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) tier: usize,
    pub(super) kind: Kind,
    /// The place in the order of use.
    used: u64,
}

/// A file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) file: Arc<FileName>,
    pub(super) bytes: u64,
    pub(super) copies: Vec<Held>,
    pub(super) work: Work,
    /// A reader announced that it will read the file.
    pub(super) is_awaited: bool,
    /// The place among the announcements, if it is awaited.
    announced: u64,
    /// A copy for that reader was evicted.
    pub(super) was_evicted: bool,
}

impl Entry {
    pub(super) fn new(file: Arc<FileName>, bytes: u64, work: Work) -> Self {
        let (copies, is_awaited, announced, was_evicted) = (Vec::new(), false, 0, false);
        Self { file, bytes, copies, work, is_awaited, announced, was_evicted }
    }

    /// Returns the tiers that have a copy, as a mask.
    pub(super) fn holders(&self) -> u32 {
        self.copies.iter().fold(0, |mask, held| mask | 1 << held.tier)
    }
}

/// The counts of a tier.
#[derive(Debug, Default)]
pub(super) struct TierState {
    pub(super) capacity_bytes: u64,
    pub(super) used_bytes: u64,
    /// Bytes of `used_bytes` that are those of cached copies, complete or not.
    cached_bytes: u64,
    /// Bytes of cached copies that are not awaited.
    evictable_bytes: u64,
    pub(super) usage: Usage,
    /// Transfers in flight and removals, after which the tier can have more room.
    pub(super) pending: u32,
    /// Copies by their order of use, the oldest first.
    homes: BTreeMap<u64, Arc<FileName>>,
    caches: BTreeMap<u64, Arc<FileName>>,
    failed_until: Option<Instant>,
    /// Bytes that fitted when the tier had no space left.
    full: Option<(u64, Instant)>,
}

impl TierState {
    pub(super) fn room_bytes(&self, now: Instant) -> u64 {
        self.limit_bytes(now).saturating_sub(self.used_bytes)
    }

    /// Returns the most bytes that the tier can have.
    fn limit_bytes(&self, now: Instant) -> u64 {
        let full = self.full.filter(|(_, until)| now < *until);
        self.capacity_bytes.min(full.map_or(u64::MAX, |(bytes, _)| bytes))
    }

    /// Returns true in the time after a failure.
    pub(super) fn is_failed(&self, now: Instant) -> bool {
        self.failed_until.is_some_and(|until| now < until)
    }

    /// Returns true if there is room for `bytes` after copies are evicted that no reader is known to want.
    pub(super) fn can_have(&self, bytes: u64) -> bool {
        bytes <= self.room_bytes(Instant::now()).saturating_add(self.evictable_bytes)
    }

    /// Returns true if the tier works, and has room for `bytes` after all cached copies are read and evicted.
    pub(super) fn could_have(&self, bytes: u64) -> bool {
        let now = Instant::now();
        let kept = self.used_bytes.saturating_sub(self.cached_bytes);
        !self.is_failed(now) && bytes <= self.limit_bytes(now).saturating_sub(kept)
    }
}

/// All state of an engine.
pub(super) struct State {
    pub(super) policy: Box<dyn Policy>,
    pub(super) files: HashMap<String, Entry>,
    pub(super) tiers: Vec<TierState>,
    pub(super) stats: Stats,
    /// Threads that write or bring up a file, and those of them that wait for room since the last change: a tier that has no
    /// file to move can have room when the others end.
    pub(super) active: u32,
    pub(super) waiting: u32,
    /// Changes after which waiting threads try again.
    pub(super) changes: u64,
    /// Raised with each change after which a deferred prefetch may be possible.
    pub(super) epoch: u64,
    telemetry: Vec<Telemetry>,
    seen: Vec<Tier>,
    uses: u64,
    /// The awaited files by the order of their announcement, with the number of reads at that time.
    announced: BTreeMap<u64, (u64, Arc<FileName>)>,
    started: Instant,
}

impl State {
    pub(super) fn new(policy: Box<dyn Policy>, capacities: &[u64]) -> Self {
        let tier = |capacity: &u64| TierState { capacity_bytes: *capacity, ..TierState::default() };
        Self {
            policy,
            files: HashMap::new(),
            tiers: capacities.iter().map(tier).collect(),
            stats: Stats::default(),
            active: 0,
            waiting: 0,
            changes: 0,
            epoch: 0,
            telemetry: vec![Telemetry::default(); capacities.len()],
            seen: Vec::with_capacity(capacities.len()),
            uses: 0,
            announced: BTreeMap::new(),
            started: Instant::now(),
        }
    }

    /// Time since the start.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Asks the policy. `look` sets the telemetry; tiers of the mask `excluded` count as failed.
    pub(super) fn decide<T>(
        &mut self,
        look: impl FnOnce(&mut [Telemetry]),
        excluded: u32,
        ask: impl FnOnce(&mut dyn Policy, &[Tier]) -> T,
    ) -> T {
        let (begun, now) = (Instant::now(), self.now());
        self.telemetry.fill(Telemetry::default());
        look(&mut self.telemetry);
        self.seen.clear();
        for (at, (tier, telemetry)) in self.tiers.iter().zip(&self.telemetry).enumerate() {
            let is_excluded = excluded & (1 << at) != 0;
            let own = own(tier, telemetry, now, begun, is_excluded);
            self.seen.push(Tier { own, telemetry: *telemetry });
        }
        let answer = ask(&mut *self.policy, &self.seen);
        self.stats.refused_values = self.policy.refused();
        self.stats.decisions += 1;
        self.stats.asking += begun.elapsed();
        answer
    }

    /// Takes a failure of a transfer. A full tier keeps the bytes that it has; another failure keeps it out of use for a
    /// while.
    pub(super) fn failed(&mut self, at: usize, error: &std::io::Error) {
        let until = Instant::now() + RETRY;
        self.stats.failures += 1;
        let tier = &mut self.tiers[at];
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            self.stats.full += 1;
            tier.full = Some((tier.used_bytes, until));
        } else {
            tier.failed_until = Some(until);
        }
    }

    /// Takes the start of a transfer on a tier.
    pub(super) fn begin(&mut self, at: usize, moved: Moved, bytes: u64) {
        let now = self.now();
        self.tiers[at].pending += 1;
        self.tiers[at].usage.begin(now, moved, bytes);
    }

    /// Takes the end of a transfer on a tier.
    pub(super) fn end(&mut self, at: usize, moved: Moved, bytes: u64, is_failed: bool) {
        let now = self.now();
        self.tiers[at].pending = self.tiers[at].pending.saturating_sub(1);
        self.tiers[at].usage.end(now, moved, bytes, is_failed);
        self.epoch += 1;
    }

    /// Reserves bytes of a tier for a copy.
    pub(super) fn reserve(&mut self, at: usize, kind: Kind, bytes: u64) {
        let tier = &mut self.tiers[at];
        tier.used_bytes += bytes;
        if kind == Kind::Cache {
            tier.cached_bytes += bytes;
        }
    }

    /// Gives bytes of a tier back that were reserved and never written.
    pub(super) fn release(&mut self, at: usize, kind: Kind, bytes: u64) {
        let tier = &mut self.tiers[at];
        tier.used_bytes = tier.used_bytes.saturating_sub(bytes);
        if kind == Kind::Cache {
            tier.cached_bytes = tier.cached_bytes.saturating_sub(bytes);
        }
        self.epoch += 1;
    }

    /// Gives bytes of a tier back whose file is removed from the disk.
    pub(super) fn removed(&mut self, at: usize, kind: Kind, bytes: u64) {
        let now = self.now();
        self.tiers[at].usage.remove(now, bytes);
        self.release(at, kind, bytes);
    }

    /// Adds a complete copy to a file. Its bytes are reserved already.
    pub(super) fn add_copy(&mut self, name: &str, tier: usize, kind: Kind) {
        let used = self.next_use();
        let Some(entry) = self.files.get_mut(name) else { return };
        entry.copies.push(Held { tier, kind, used });
        // Read from the fastest that is declared, if a policy knows no better.
        entry.copies.sort_by_key(|held| held.tier);
        let (file, state) = (entry.file.clone(), &mut self.tiers[tier]);
        match kind {
            Kind::Home => state.homes.insert(used, file),
            Kind::Cache => {
                if !entry.is_awaited {
                    state.evictable_bytes += entry.bytes;
                }
                state.caches.insert(used, file)
            }
        };
        self.epoch += 1;
    }

    /// Takes a copy from a file, so that no reader chooses it. Its bytes stay reserved. Returns false if there is no such
    /// copy.
    pub(super) fn take_copy(&mut self, name: &str, tier: usize, kind: Kind) -> bool {
        let Some(entry) = self.files.get_mut(name) else { return false };
        let is_it = |held: &Held| held.tier == tier && held.kind == kind;
        let Some(at) = entry.copies.iter().position(is_it) else { return false };
        let held = entry.copies.remove(at);
        let state = &mut self.tiers[tier];
        match kind {
            Kind::Home => state.homes.remove(&held.used),
            Kind::Cache => {
                if !entry.is_awaited {
                    state.evictable_bytes = state.evictable_bytes.saturating_sub(entry.bytes);
                }
                state.caches.remove(&held.used)
            }
        };
        true
    }

    /// Takes a read of a file: its copy on `tier` is the last to go, and the file is no longer awaited.
    pub(super) fn used(&mut self, name: &str, tier: usize) {
        self.stats.reads += 1;
        self.set_awaited(name, false);
        let used = self.next_use();
        let Some(entry) = self.files.get_mut(name) else { return };
        entry.was_evicted = false;
        if let Some(held) = entry.copies.iter_mut().find(|held| held.tier == tier) {
            let state = &mut self.tiers[tier];
            let order = match held.kind {
                Kind::Home => &mut state.homes,
                Kind::Cache => &mut state.caches,
            };
            order.remove(&held.used);
            order.insert(used, entry.file.clone());
            held.used = used;
        }
        self.drop_announced();
    }

    /// Takes the announcement of a read. Returns false if there is no such file.
    pub(super) fn announce(&mut self, name: &str) -> bool {
        let place = self.next_use();
        let Some(entry) = self.files.get_mut(name) else { return false };
        if entry.is_awaited {
            return true;
        }
        entry.announced = place;
        self.announced.insert(place, (self.stats.reads, entry.file.clone()));
        self.set_awaited(name, true);
        true
    }

    /// Takes the end of a file, which has no copies any more.
    pub(super) fn drop_file(&mut self, name: &str) {
        self.set_awaited(name, false);
        self.files.remove(name);
    }

    /// Returns the cached copy of a tier that goes first: the least recently used that is not awaited, else the least
    /// recently used if awaited ones may go.
    pub(super) fn evicted(&self, tier: usize, with_awaited: bool) -> Option<Arc<FileName>> {
        let idle = |file: &&Arc<FileName>| {
            self.files.get(&file.name).is_some_and(|entry| entry.work == Work::None)
        };
        let is_awaited =
            |file: &Arc<FileName>| self.files.get(&file.name).is_some_and(|e| e.is_awaited);
        let caches = || self.tiers[tier].caches.values().filter(idle);
        let first = caches().find(|file| !is_awaited(file));
        first.or_else(|| caches().next().filter(|_| with_awaited)).cloned()
    }

    /// Returns the file of a tier that goes down first: the least recently used for which a tier below has room, and no copy.
    pub(super) fn flushed(&self, tier: usize) -> Option<Arc<FileName>> {
        let now = Instant::now();
        self.first_home(tier, |entry| {
            let is_free = |to: &usize| entry.holders() & (1 << *to) == 0;
            let mut below = (tier + 1..self.tiers.len()).filter(is_free).map(|to| &self.tiers[to]);
            below.any(|to| !to.is_failed(now) && entry.bytes <= to.room_bytes(now))
        })
    }

    /// Returns the replica of a tier that is removed first: the least recently used of which a healthy tier below has a copy.
    pub(super) fn retired(&self, tier: usize) -> Option<Arc<FileName>> {
        let now = Instant::now();
        let is_below = |held: &Held| {
            held.kind == Kind::Home && held.tier > tier && !self.tiers[held.tier].is_failed(now)
        };
        self.first_home(tier, |entry| entry.copies.iter().any(is_below))
    }

    /// Returns true if a thread is not waiting for room, apart from the caller, so that waiting for a change is of use.
    pub(super) fn others_go_on(&self) -> bool {
        self.active > self.waiting + 1
    }

    /// Returns the least recently used idle file of a tier that is `good`.
    fn first_home(&self, tier: usize, good: impl Fn(&Entry) -> bool) -> Option<Arc<FileName>> {
        let is_good = |file: &&Arc<FileName>| {
            let entry = self.files.get(&file.name);
            entry.is_some_and(|entry| entry.work == Work::None && good(entry))
        };
        self.tiers[tier].homes.values().find(is_good).cloned()
    }

    fn set_awaited(&mut self, name: &str, is_awaited: bool) {
        let Some(entry) = self.files.get_mut(name) else { return };
        if entry.is_awaited == is_awaited {
            return;
        }
        entry.is_awaited = is_awaited;
        if !is_awaited {
            self.announced.remove(&entry.announced);
        }
        for held in entry.copies.iter().filter(|held| held.kind == Kind::Cache) {
            let evictable = &mut self.tiers[held.tier].evictable_bytes;
            *evictable = match is_awaited {
                true => evictable.saturating_sub(entry.bytes),
                false => *evictable + entry.bytes,
            };
        }
        self.epoch += 1;
    }

    fn drop_announced(&mut self) {
        let reads = self.stats.reads;
        while let Some((_, (at, file))) = self.announced.first_key_value() {
            if at.saturating_add(AWAITED_READS) >= reads {
                return;
            }
            let file = file.clone();
            self.announced.pop_first();
            self.set_awaited(&file.name, false);
        }
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}

fn own(
    tier: &TierState,
    telemetry: &Telemetry,
    now: Duration,
    instant: Instant,
    is_excluded: bool,
) -> Own {
    let load_age = telemetry.interference_ratio.or(telemetry.busy_ratio).map(|load| load.age);
    let end = now.saturating_sub(load_age.unwrap_or_default());
    let load = tier.usage.load(end.saturating_sub(telemetry.window), end);
    let capacity_age = telemetry.remaining_bytes.map(|remaining| remaining.age);
    let unseen = capacity_age.map_or(0, |age| tier.usage.unseen_bytes(now.saturating_sub(age)));
    Own {
        capacity_bytes: tier.capacity_bytes,
        room_bytes: tier.room_bytes(instant),
        evictable_bytes: tier.evictable_bytes,
        queued_bytes: tier.usage.queued_bytes(),
        unseen_bytes: unseen,
        read_bytes_per_second: load.read_bytes_per_second,
        written_bytes_per_second: load.written_bytes_per_second,
        busy_ratio: load.busy_ratio,
        is_failed: is_excluded || tier.is_failed(instant),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::RoundRobin;

    fn add(state: &mut State, name: &str) {
        let file = Arc::new(FileName::new(name).expect("a name"));
        state.files.insert(name.to_owned(), Entry::new(file, 1, Work::None));
    }

    #[test]
    fn announcements_of_removed_files_are_not_kept() {
        let mut state = State::new(Box::new(RoundRobin::new()), &[1000]);
        add(&mut state, "never read");
        assert!(state.announce("never read"));
        for n in 0..100 {
            let name = n.to_string();
            add(&mut state, &name);
            assert!(state.announce(&name) && state.announce(&name));
            state.drop_file(&name);
        }
        assert_eq!((state.announced.len(), state.files.len()), (1, 1));
    }

    #[test]
    fn an_announcement_after_a_read_counts_from_its_own_time() {
        let mut state = State::new(Box::new(RoundRobin::new()), &[1000]);
        add(&mut state, "a");
        add(&mut state, "other");
        let read_others = |state: &mut State, reads| {
            (0..reads).for_each(|_| state.used("other", 0));
        };
        assert!(state.announce("a"));
        state.used("a", 0);
        read_others(&mut state, AWAITED_READS - 1);
        assert!(state.announce("a"));
        read_others(&mut state, AWAITED_READS);
        assert!(state.files["a"].is_awaited, "its own reads have not passed");
        read_others(&mut state, 1);
        assert!(!state.files["a"].is_awaited && state.announced.is_empty());
    }
}
