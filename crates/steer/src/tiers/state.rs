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
/// Time for which the values of a view are kept. Agents poll a device once a second if not told otherwise, so a twentieth of it
/// makes a value little older, and decisions that follow each other closely read shared memory once.
pub const KEPT: Duration = Duration::from_millis(50);

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
    /// Reads that were announced and have not happened.
    awaited: u32,
    /// The place of the last of them among the announcements.
    announced: u64,
    /// A copy for these readers was evicted.
    pub(super) was_evicted: bool,
}

impl Entry {
    pub(super) fn new(file: Arc<FileName>, bytes: u64, work: Work) -> Self {
        let (copies, awaited, announced, was_evicted) = (Vec::new(), 0, 0, false);
        Self { file, bytes, copies, work, awaited, announced, was_evicted }
    }

    /// Returns true if a reader announced that it will read the file.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited > 0
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
    /// Bytes of writes for which the tier is chosen, and which have not begun.
    chosen_bytes: u64,
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
    /// The time at which `telemetry` was read.
    looked: Option<Instant>,
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
            looked: None,
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

    /// Asks the policy. `look` sets the telemetry, which is kept for [`KEPT`]; tiers of the mask `excluded` count as failed.
    pub(super) fn decide<T>(
        &mut self,
        look: impl FnOnce(&mut [Telemetry]),
        excluded: u32,
        ask: impl FnOnce(&mut dyn Policy, &[Tier]) -> T,
    ) -> T {
        let (begun, now) = (Instant::now(), self.now());
        let age = |looked: Instant| begun.saturating_duration_since(looked);
        let looked = self.looked.filter(|looked| age(*looked) < KEPT).unwrap_or_else(|| {
            self.telemetry.fill(Telemetry::default());
            look(&mut self.telemetry);
            begun
        });
        self.looked = Some(looked);
        self.seen.clear();
        for (at, (tier, telemetry)) in self.tiers.iter().zip(&self.telemetry).enumerate() {
            let is_excluded = excluded & (1 << at) != 0;
            let telemetry = telemetry.older(age(looked));
            let own = own(tier, &telemetry, now, begun, is_excluded);
            self.seen.push(Tier { own, telemetry });
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

    /// Takes the choice of a tier for a write. Writes that are chosen after it see its bytes.
    pub(super) fn choose(&mut self, at: usize, bytes: u64) {
        self.tiers[at].chosen_bytes += bytes;
    }

    /// Takes the end of a choice: its write begins, or the tier has no room for it.
    pub(super) fn chosen(&mut self, at: usize, bytes: u64) {
        let chosen = &mut self.tiers[at].chosen_bytes;
        *chosen = chosen.saturating_sub(bytes);
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
                if !entry.is_awaited() {
                    state.evictable_bytes += entry.bytes;
                }
                entry.was_evicted = false;
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
                if !entry.is_awaited() {
                    state.evictable_bytes = state.evictable_bytes.saturating_sub(entry.bytes);
                }
                state.caches.remove(&held.used)
            }
        };
        true
    }

    /// Takes a read of a file: its copy on `tier` is the last to go, and one read less is awaited.
    pub(super) fn used(&mut self, name: &str, tier: usize) {
        self.stats.reads += 1;
        let awaited = self.files.get(name).map_or(0, |entry| entry.awaited);
        self.set_awaited(name, awaited.saturating_sub(1));
        let used = self.next_use();
        let Some(entry) = self.files.get_mut(name) else { return };
        entry.was_evicted &= entry.is_awaited();
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

    /// Takes the announcement of a read. Each of several announcements of a file stands for a read. Returns false if there is
    /// no such file.
    pub(super) fn announce(&mut self, name: &str) -> bool {
        let place = self.next_use();
        let Some(entry) = self.files.get_mut(name) else { return false };
        // One place for each file bounds them; that of the last announcement is there for the longest time.
        self.announced.remove(&entry.announced);
        entry.announced = place;
        self.announced.insert(place, (self.stats.reads, entry.file.clone()));
        let awaited = entry.awaited.saturating_add(1);
        self.set_awaited(name, awaited);
        true
    }

    /// Takes the end of a file, which has no copies any more.
    pub(super) fn drop_file(&mut self, name: &str) {
        self.set_awaited(name, 0);
        self.files.remove(name);
    }

    /// Returns the cached copy of a tier that goes first: the least recently used that is not awaited, else the least
    /// recently used if awaited ones may go.
    pub(super) fn evicted(&self, tier: usize, with_awaited: bool) -> Option<Arc<FileName>> {
        let idle = |file: &&Arc<FileName>| {
            self.files.get(&file.name).is_some_and(|entry| entry.work == Work::None)
        };
        let is_awaited =
            |file: &Arc<FileName>| self.files.get(&file.name).is_some_and(Entry::is_awaited);
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

    fn set_awaited(&mut self, name: &str, awaited: u32) {
        let Some(entry) = self.files.get_mut(name) else { return };
        let was_awaited = entry.is_awaited();
        entry.awaited = awaited;
        let is_awaited = entry.is_awaited();
        if was_awaited == is_awaited {
            return;
        }
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
            self.set_awaited(&file.name, 0);
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
        awaited_bytes: tier.cached_bytes.saturating_sub(tier.evictable_bytes),
        queued_bytes: tier.usage.queued_bytes(),
        chosen_bytes: tier.chosen_bytes,
        unseen_bytes: unseen,
        polled_at: end,
        read_bytes_per_second: load.read_bytes_per_second,
        written_bytes_per_second: load.written_bytes_per_second,
        busy_ratio: load.busy_ratio,
        is_failed: is_excluded || tier.is_failed(instant),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Aged, RoundRobin};

    fn add(state: &mut State, name: &str) {
        let file = Arc::new(FileName::new(name).expect("a name"));
        state.files.insert(name.to_owned(), Entry::new(file, 1, Work::None));
    }

    /// The bytes of writes that are chosen, and of transfers in flight.
    fn chosen_and_queued(state: &mut State) -> (u64, u64) {
        let bytes = |own: Own| (own.chosen_bytes, own.queued_bytes);
        state.decide(|_| (), 0, |_, tiers| bytes(tiers[0].own))
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
    fn each_announcement_stands_for_a_read() {
        let mut state = State::new(Box::new(RoundRobin::new()), &[1000]);
        add(&mut state, "a");
        add(&mut state, "other");
        assert!((0..3).all(|_| state.announce("a")));
        assert_eq!(state.announced.len(), 1);
        state.used("a", 0);
        state.used("a", 0);
        assert!(state.files["a"].is_awaited());
        state.used("a", 0);
        assert!(!state.files["a"].is_awaited() && state.announced.is_empty());
        // Reads that do not happen are forgotten together.
        assert!(state.announce("a") && state.announce("a"));
        (0..=AWAITED_READS).for_each(|_| state.used("other", 0));
        assert!(!state.files["a"].is_awaited() && state.announced.is_empty());
    }

    #[test]
    fn telemetry_is_read_again_when_it_is_old() {
        let mut state = State::new(Box::new(RoundRobin::new()), &[1000]);
        let mut looks = 0;
        let mut look = |state: &mut State| {
            let set = |telemetry: &mut [Telemetry]| {
                looks += 1;
                telemetry[0].busy_ratio = Some(Aged { value: 0.5, age: Duration::ZERO });
            };
            let seen = state.decide(set, 0, |_, tiers| tiers[0].telemetry.busy_ratio);
            (looks, seen.map(|busy| busy.value))
        };
        assert_eq!(look(&mut state), (1, Some(0.5)));
        // A time to come, so that a slow test does not make the values old.
        state.looked = Some(Instant::now() + Duration::from_secs(3600));
        assert_eq!(look(&mut state), (1, Some(0.5)));
        state.looked = Instant::now().checked_sub(KEPT);
        assert_eq!(look(&mut state), (2, Some(0.5)));
    }

    #[test]
    fn kept_telemetry_grows_older() {
        let fresh = Some(Aged { value: 0.5, age: Duration::from_millis(3) });
        let telemetry = Telemetry { busy_ratio: fresh, ..Telemetry::default() };
        let older = telemetry.older(Duration::from_millis(4));
        assert_eq!(older.busy_ratio.map(|busy| busy.age), Some(Duration::from_millis(7)));
        assert_eq!(older.read_bytes_per_second, None);
    }

    #[test]
    fn a_chosen_tier_has_the_bytes_of_a_write_before_it_begins_and_in_its_queue_after_that() {
        let mut state = State::new(Box::new(RoundRobin::new()), &[1000]);
        state.choose(0, 300);
        assert_eq!(chosen_and_queued(&mut state), (300, 0));
        state.chosen(0, 300);
        state.begin(0, Moved::Written, 300);
        assert_eq!(chosen_and_queued(&mut state), (0, 300));
        state.end(0, Moved::Written, 300, false);
        assert_eq!(chosen_and_queued(&mut state), (0, 0));
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
        assert!(state.files["a"].is_awaited(), "its own reads have not passed");
        read_others(&mut state, 1);
        assert!(!state.files["a"].is_awaited() && state.announced.is_empty());
    }
}
