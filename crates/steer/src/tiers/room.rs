//! Room for new files: cached copies are evicted, then files are moved down; at last, replicas are removed.

use std::sync::Arc;
use std::time::Instant;

use crate::place::{Moved, Policy, Tier};
use crate::tiers::engine::{Engine, Guard};
use crate::tiers::folder::{Kind, Side};
use crate::tiers::name::FileName;
use crate::tiers::state::Work;

/// Most changes for which a thread waits while a tier has no file to move; then the tier counts as full. Each change is the
/// end of a transfer or of a write, so this is the work of seconds.
pub(super) const MAX_WAITS: usize = 1000;

/// Means by which a write gets room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// It may wait for other threads. It must not if it has room on another tier, for which they could wait.
    pub(super) can_wait: bool,
    /// It may remove replicas of which a tier below has a copy.
    pub(super) can_retire: bool,
}

/// The end of a flush.
enum Flushed {
    Moved,
    /// A tier failed in it; another tier may be better.
    Failed,
    /// No tier below has room.
    Impossible,
}

impl Engine {
    /// Reserves `bytes` on a tier, after making room there if necessary. Returns false if that is not possible. The time
    /// counts as a stall if files had to be moved or awaited.
    pub(super) fn make_room(&self, at: usize, bytes: u64, effort: Effort) -> bool {
        let mut state = self.lock();
        let (mut stalled_since, mut failures, mut waits) = (None, 0, 0);
        let is_made = loop {
            if state.tiers[at].room_bytes(Instant::now()) >= bytes {
                state.reserve(at, Kind::Home, bytes);
                break true;
            }
            if bytes > state.tiers[at].capacity_bytes || failures > self.tiers.len() {
                break false;
            }
            if let Some(file) = state.evicted(at, true) {
                let (next, is_gone) = self.evict(state, at, &file);
                state = next;
                failures += usize::from(!is_gone);
                continue;
            }
            stalled_since.get_or_insert_with(Instant::now);
            if let Some(file) = state.flushed(at) {
                let (next, flushed) = self.flush(state, at, &file);
                state = next;
                match flushed {
                    Flushed::Moved => {}
                    Flushed::Failed => failures += 1,
                    Flushed::Impossible => break false,
                }
                continue;
            }
            // A tier that fails keeps its other replicas.
            let can_retire = effort.can_retire && !state.tiers[at].is_failed(Instant::now());
            if let Some(file) = can_retire.then(|| state.retired(at)).flatten() {
                state.set_work(&file.name, Work::Removing);
                let (next, is_gone) = self.take_off(state, at, Kind::Home, &file);
                state = next;
                state.stats.retired += u64::from(is_gone);
                failures += usize::from(!is_gone);
                continue;
            }
            // Files are in work, or room is reserved by threads that go on. Else the tier is full.
            let can_change = state.tiers[at].pending > 0 || state.others_go_on();
            if !effort.can_wait || waits == MAX_WAITS || !can_change {
                break false;
            }
            waits += 1;
            state = self.wait_for_room(state);
        };
        if let Some(since) = stalled_since {
            state.stats.stalls += 1;
            state.stats.stalled += since.elapsed();
        }
        is_made
    }

    /// Removes a cached copy, whose file is idle. Returns false if the tier fails, which then still has it.
    pub(super) fn evict<'a>(
        &'a self,
        mut state: Guard<'a>,
        at: usize,
        file: &FileName,
    ) -> (Guard<'a>, bool) {
        let Some(entry) = state.files.get_mut(&file.name) else { return (state, false) };
        entry.work = Work::Removing;
        let is_awaited = entry.is_awaited();
        entry.was_evicted |= is_awaited;
        let (mut state, is_gone) = self.take_off(state, at, Kind::Cache, file);
        state.stats.evictions += u64::from(is_gone);
        state.stats.unread_evictions += u64::from(is_gone && is_awaited);
        (state, is_gone)
    }

    /// Removes a copy from a tier, and ends the work on its file. The removal is not synced: a loss of power that undoes it
    /// leaves a copy too many of a file that is the same below. The folder keeps its name until the removal is durable.
    /// Returns false if the tier fails: the copy is still there, so it counts.
    fn take_off<'a>(
        &'a self,
        mut state: Guard<'a>,
        at: usize,
        kind: Kind,
        file: &FileName,
    ) -> (Guard<'a>, bool) {
        let bytes = state.files.get(&file.name).map_or(0, |entry| entry.bytes);
        state.take_copy(&file.name, at, kind);
        state.tiers[at].pending += 1;
        drop(state);
        let removed = self.folders[at].remove(kind, file);
        let mut state = self.lock();
        state.tiers[at].pending -= 1;
        match &removed {
            Ok(()) => state.removed(at, kind, bytes),
            Err(e) => {
                state.failed(at, e);
                state.add_copy(&file.name, at, kind);
            }
        }
        state.set_work(&file.name, Work::None);
        self.notify(&mut state);
        (state, removed.is_ok())
    }

    /// Moves an idle file from a tier to one below.
    fn flush<'a>(
        &'a self,
        mut state: Guard<'a>,
        at: usize,
        file: &Arc<FileName>,
    ) -> (Guard<'a>, Flushed) {
        let Some(entry) = state.files.get(&file.name) else { return (state, Flushed::Moved) };
        let (bytes, holders) = (entry.bytes, entry.holders());
        let below = |policy: &mut dyn Policy, tiers: &[Tier]| policy.flush(bytes, at, tiers);
        let chosen = self.decide(&mut state, holders, below);
        let fits = |to: &usize| {
            let is_below = *to > at && *to < self.tiers.len() && holders & (1 << *to) == 0;
            is_below && state.tiers[*to].room_bytes(Instant::now()) >= bytes
        };
        let Some(to) = chosen.filter(fits) else { return (state, Flushed::Impossible) };
        state.reserve(to, Kind::Home, bytes);
        state.set_work(&file.name, Work::Moving);
        let (mut state, moved) = self.copy(state, (at, Kind::Home), (to, Kind::Home), file, bytes);
        if moved.is_err() {
            state.set_work(&file.name, Work::None);
            self.notify(&mut state);
            return (state, Flushed::Failed);
        }
        let (mut state, is_gone) = self.take_off(state, at, Kind::Home, file);
        if !is_gone {
            return (state, Flushed::Failed);
        }
        state.stats.flushes += 1;
        state.stats.flushed_bytes += bytes;
        (state, Flushed::Moved)
    }

    /// Copies a file between two tiers; its bytes are reserved on the second one, and given back on failure.
    pub(super) fn copy<'a>(
        &'a self,
        mut state: Guard<'a>,
        from: (usize, Kind),
        to: (usize, Kind),
        file: &Arc<FileName>,
        bytes: u64,
    ) -> (Guard<'a>, Result<(), Side>) {
        state.begin(from.0, Moved::Read, bytes);
        state.begin(to.0, Moved::Written, bytes);
        drop(state);
        let source = (&self.folders[from.0], from.1);
        let copied = self.folders[to.0].copy(to.1, file, source, bytes);
        let mut state = self.lock();
        state.end(from.0, Moved::Read, bytes, copied.is_err());
        state.end(to.0, Moved::Written, bytes, copied.is_err());
        match &copied {
            Ok(()) => state.add_copy(&file.name, to.0, to.1),
            Err(side) => {
                state.release(to.0, to.1, bytes);
                match side {
                    Side::Source(e) => state.failed(from.0, e),
                    Side::Target(e) => state.failed(to.0, e),
                }
            }
        }
        (state, copied)
    }
}
