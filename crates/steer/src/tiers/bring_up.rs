//! Copies that are brought up before a read.

use std::sync::Arc;
use std::time::Instant;

use crate::Error;
use crate::place::{Policy, Tier};
use crate::tiers::engine::{Engine, Guard, entry_of};
use crate::tiers::folder::{Kind, Side};
use crate::tiers::name::FileName;
use crate::tiers::state::{Entry, State, Work};

/// The end of a request to bring a file up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetched {
    /// A copy was made.
    Copied,
    /// There is a copy on a faster tier already, or another thread makes one.
    Present,
    /// The file waits for room: a faster tier has enough after the cached copies on it are read.
    NoRoom,
    /// The file waits for something else: it is too large for the faster tiers, or they are full of files that count, or
    /// slower than its own tier; a tier fails; or the file is being moved.
    Deferred,
}

/// The start of a request to bring a file up.
#[derive(Debug)]
pub(super) enum Begun {
    /// The room of a copy is reserved. [`Engine::bring_up`] makes the copy or gives the room back.
    Reserved(Reserved),
    /// The request ends without a copy.
    Ended(Prefetched),
}

/// A copy to be made. Its room is reserved.
#[derive(Debug)]
pub(super) struct Reserved {
    file: Arc<FileName>,
    bytes: u64,
    from: usize,
    to: usize,
}

impl Engine {
    /// Announces one read of a file, and does not bring it up. Returns false if there is no such file.
    pub fn announce(&self, name: &str) -> bool {
        let mut state = self.lock();
        let is_known = state.announce(name);
        self.done(state);
        is_known
    }

    /// Returns true if a read of a file was announced, and has not happened yet.
    pub fn is_awaited(&self, name: &str) -> bool {
        self.lock().files.get(name).is_some_and(Entry::is_awaited)
    }

    /// Brings a copy of a file up, to the tier that the policy chooses.
    ///
    /// # Errors
    /// There is no such file; a tier fails.
    pub fn prefetch(&self, name: &str) -> Result<Prefetched, Error> {
        match self.begin_prefetch(name)? {
            Begun::Reserved(copy) => self.bring_up(copy).map(|()| Prefetched::Copied),
            Begun::Ended(end) => Ok(end),
        }
    }

    /// Chooses the tier to which a file is brought up, and reserves its room there. Cached copies are evicted for it.
    pub(super) fn begin_prefetch(&self, name: &str) -> Result<Begun, Error> {
        let mut state = self.lock();
        let entry = entry_of(&mut state, name)?;
        let is_up = entry.copies.iter().any(|held| held.kind == Kind::Cache || held.tier == 0);
        if is_up || entry.work == Work::Prefetching {
            return Ok(Begun::Ended(Prefetched::Present));
        }
        if entry.work != Work::None {
            return Ok(Self::defer(state, false));
        }
        let (file, bytes, mask) = (entry.file.clone(), entry.bytes, entry.holders());
        let holders: Vec<usize> = entry.copies.iter().map(|held| held.tier).collect();
        let read = |policy: &mut dyn Policy, tiers: &[Tier]| policy.read(bytes, &holders, tiers);
        let source = self.decide(&mut state, 0, read).filter(|at| holders.contains(at));
        let Some(from) = source else {
            return Ok(Self::defer(state, false));
        };
        let up = |policy: &mut dyn Policy, tiers: &[Tier]| policy.prefetch(bytes, from, tiers);
        let target = self.decide(&mut state, mask, up);
        let Some(to) = target.filter(|to| *to < from && mask & (1 << *to) == 0) else {
            // A tier that the policy avoids although it has room is not waited for.
            let is_full = (0..from).filter(|at| mask & (1 << at) == 0).any(|at| {
                let tier = &state.tiers[at];
                !tier.can_have(bytes) && tier.could_have(bytes)
            });
            return Ok(Self::defer(state, is_full));
        };
        Ok(self.reserve(state, Reserved { file, bytes, from, to }))
    }

    /// Reserves the room of a copy on its tier.
    fn reserve<'a>(&'a self, mut state: Guard<'a>, copy: Reserved) -> Begun {
        let (to, bytes) = (copy.to, copy.bytes);
        let has_room = |state: &State| state.tiers[to].room_bytes(Instant::now()) >= bytes;
        let is_possible = state.tiers[to].could_have(bytes);
        // A policy that chose a tier for its unwanted copies does not mean the wanted ones.
        let with_awaited = !state.tiers[to].can_have(bytes);
        let is_stuck = !has_room(&state) && state.evicted(to, with_awaited).is_none();
        if !is_possible || is_stuck {
            // Nothing changes, so the epoch stays: else a thread that waits for the next one would try again at once.
            return Self::defer(state, is_possible);
        }
        state.set_work(&copy.file.name, Work::Prefetching);
        state.active += 1;
        while !has_room(&state) {
            let Some(victim) = state.evicted(to, with_awaited) else {
                return self.end_in_vain(state, &copy.file, true);
            };
            let (next, is_gone) = self.evict(state, to, &victim);
            state = next;
            if !is_gone {
                return self.end_in_vain(state, &copy.file, false);
            }
        }
        state.reserve(to, Kind::Cache, bytes);
        Begun::Reserved(copy)
    }

    /// Ends a request that has evicted copies in vain.
    fn end_in_vain(&self, mut state: Guard<'_>, file: &FileName, is_full: bool) -> Begun {
        state.active -= 1;
        state.set_work(&file.name, Work::None);
        self.notify(&mut state);
        Self::defer(state, is_full)
    }

    /// Makes a copy whose room is reserved.
    pub(super) fn bring_up(&self, copy: Reserved) -> Result<(), Error> {
        let Reserved { file, bytes, from, to } = copy;
        let (mut state, copied) =
            self.copy(self.lock(), (from, Kind::Home), (to, Kind::Cache), &file, bytes);
        state.active -= 1;
        state.set_work(&file.name, Work::None);
        if copied.is_ok() {
            state.stats.prefetches += 1;
            state.stats.prefetched_bytes += bytes;
        }
        self.done(state);
        copied.map_err(|side| match side {
            Side::Source(e) => self.tier_failed(from, "read a file", e),
            Side::Target(e) => self.tier_failed(to, "write a copy", e),
        })
    }

    /// Ends a request that has to wait, for room if `is_full`.
    fn defer(mut state: Guard<'_>, is_full: bool) -> Begun {
        state.stats.deferred += 1;
        Begun::Ended(if is_full { Prefetched::NoRoom } else { Prefetched::Deferred })
    }
}
