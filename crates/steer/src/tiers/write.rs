//! Writes: one copy where the policy places it, or replicas on a set of tiers.

use std::collections::hash_map;
use std::io;
use std::sync::Arc;

use crate::Error;
use crate::place::{Moved, Policy, Request, Tier};
use crate::tiers::engine::{Engine, entry_of};
use crate::tiers::folder::Kind;
use crate::tiers::name::FileName;
use crate::tiers::room::{Effort, MAX_WAITS};
use crate::tiers::state::{Entry, Work};

/// Attempts of a write.
#[derive(Default)]
struct Tried {
    /// Tiers that are not asked now, as a mask: without room, or failed.
    excluded: u32,
    /// Tiers that failed, as a mask.
    failed: u32,
    /// Replicas may be removed now.
    can_retire: bool,
    waits: usize,
    last: Option<io::Error>,
}

impl Engine {
    /// Writes a file, and returns when it is as durable as its tier. A file is written once: to change it, remove it.
    ///
    /// # Errors
    /// The name is not allowed or taken; no tier can hold the file; all tiers fail; a tier that had an earlier file of this
    /// name cannot make its removal durable.
    pub fn write(&self, name: &str, data: &[u8]) -> Result<(), Error> {
        self.write_important(name, data, 1.0)
    }

    /// Writes a file like [`write`](Self::write), on a device that is good for `fault_tolerance` copies if one with room is
    /// known to be.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write).
    pub fn write_important(
        &self,
        name: &str,
        data: &[u8],
        fault_tolerance: f64,
    ) -> Result<(), Error> {
        let file = Arc::new(FileName::new(name)?);
        let request = Request { bytes: data.len() as u64, fault_tolerance };
        self.create(&file, request.bytes)?;
        let written =
            self.settle(&file, 0).and_then(|()| self.write_somewhere(&file, data, request));
        self.created(&file, request.bytes, written)
    }

    /// Writes `copies` replicas of a file side by side, on tiers of different domains, and returns when each is as durable
    /// as its tier. Later writes move replicas down; one that has no room otherwise removes replicas of which a tier below has
    /// a copy, and counts them in [`Stats::retired`](crate::tiers::Stats::retired).
    ///
    /// # Errors
    /// There is no set of that many tiers in different domains; the errors of [`write`](Self::write). After an error no
    /// replica is left, unless its tier cannot remove it: then the file exists, with that copy.
    pub fn replicate(&self, name: &str, data: &[u8], copies: usize) -> Result<(), Error> {
        let file = Arc::new(FileName::new(name)?);
        let sets = self.sets.get(copies).map(Vec::as_slice).unwrap_or_default();
        if sets.is_empty() {
            return Err(Error::Copies { copies, tiers: self.tiers.len() });
        }
        let request = Request { bytes: data.len() as u64, fault_tolerance: copies as f64 };
        self.create(&file, request.bytes)?;
        let written =
            self.settle(&file, 0).and_then(|()| self.write_set(&file, data, request, sets));
        self.created(&file, request.bytes, written)
    }

    /// Takes the name of a new file.
    fn create(&self, file: &Arc<FileName>, bytes: u64) -> Result<(), Error> {
        let largest = self.tiers.iter().map(|tier| tier.capacity_bytes).max().unwrap_or(0);
        if bytes > largest {
            return Err(Error::TooLarge { name: file.name.clone(), bytes, largest });
        }
        let mut state = self.lock();
        match state.files.entry(file.name.clone()) {
            hash_map::Entry::Occupied(_) => return Err(Error::FileExists(file.name.clone())),
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Entry::new(file.clone(), bytes, Work::Writing));
            }
        }
        state.active += 1;
        Ok(())
    }

    /// Ends the write of a new file.
    fn created(
        &self,
        file: &FileName,
        bytes: u64,
        written: Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        state.active -= 1;
        state.set_work(&file.name, Work::None);
        if written.is_ok() {
            state.stats.writes += 1;
            state.stats.written_bytes += bytes;
        } else if entry_of(&mut state, &file.name).is_err() {
            state.drop_file(&file.name);
        }
        self.done(state);
        written
    }

    fn write_somewhere(
        &self,
        file: &Arc<FileName>,
        data: &[u8],
        request: Request,
    ) -> Result<(), Error> {
        let mut tried = Tried::default();
        loop {
            let excluded = tried.excluded;
            let place = |policy: &mut dyn Policy, tiers: &[Tier]| policy.place(request, tiers);
            let mut state = self.lock();
            let chosen = self.decide(&mut state, excluded, place);
            let chosen = chosen.filter(|at| self.is_usable(*at, excluded));
            if let Some(at) = chosen {
                state.choose(at, request.bytes);
            }
            drop(state);
            let Some(at) = chosen else {
                if self.can_try_again(&mut tried) {
                    continue;
                }
                return Err(no_room(file, request.bytes, tried.last));
            };
            tried.excluded |= 1 << at;
            let effort = Effort { can_wait: true, can_retire: tried.can_retire };
            if self.make_room(at, request.bytes, effort) {
                match self.store(at, file, data) {
                    Ok(()) => return Ok(()),
                    Err(e) => tried.failed_on(1 << at, e),
                }
            } else {
                self.lock().chosen(at, request.bytes);
            }
        }
    }

    fn write_set(
        &self,
        file: &Arc<FileName>,
        data: &[u8],
        request: Request,
        sets: &[Vec<usize>],
    ) -> Result<(), Error> {
        let mut tried = Tried::default();
        loop {
            let excluded = tried.excluded;
            let replicate =
                |policy: &mut dyn Policy, tiers: &[Tier]| policy.replicate(request, sets, tiers);
            let mut state = self.lock();
            let chosen = self.decide(&mut state, excluded, replicate);
            let set = chosen.and_then(|at| sets.get(at));
            let usable = |set: &&Vec<usize>| set.iter().all(|at| self.is_usable(*at, excluded));
            let set = set.filter(usable);
            set.into_iter().flatten().for_each(|at| state.choose(*at, request.bytes));
            drop(state);
            let Some(set) = set else {
                if self.can_try_again(&mut tried) {
                    continue;
                }
                return Err(no_room(file, request.bytes, tried.last));
            };
            if let Err(without) = self.make_room_on_all(set, request.bytes, tried.can_retire) {
                let mut state = self.lock();
                set.iter().for_each(|at| state.chosen(*at, request.bytes));
                tried.excluded |= 1 << without;
                continue;
            }
            let outcomes = self.store_all(set, file, data);
            if outcomes.iter().all(|(_, outcome)| outcome.is_ok()) {
                self.lock().stats.replicas += set.len() as u64;
                return Ok(());
            }
            for (at, outcome) in outcomes {
                // A set is complete or it is not there.
                let outcome = outcome.and_then(|()| self.take_back(at, file, request.bytes));
                if let Err(e) = outcome {
                    tried.failed_on(1 << at, e);
                }
            }
        }
    }

    /// Reserves room on all tiers of a set, or on none; then returns the tier without room. Only the first tier is waited
    /// for, while nothing is reserved.
    fn make_room_on_all(&self, set: &[usize], bytes: u64, can_retire: bool) -> Result<(), usize> {
        for (place, at) in set.iter().enumerate() {
            let effort = Effort { can_wait: place == 0, can_retire };
            if !self.make_room(*at, bytes, effort) {
                let mut state = self.lock();
                set[..place]
                    .iter()
                    .for_each(|reserved| state.release(*reserved, Kind::Home, bytes));
                self.done(state);
                return Err(*at);
            }
        }
        Ok(())
    }

    /// Prepares another round over the tiers without room: first one that may remove replicas; then, when another thread has
    /// changed something, a new start. Returns false if no thread is left that could.
    fn can_try_again(&self, tried: &mut Tried) -> bool {
        tried.excluded = tried.failed;
        tried.can_retire = !tried.can_retire;
        if tried.can_retire {
            return true;
        }
        let state = self.lock();
        if tried.waits == MAX_WAITS || !state.others_go_on() {
            return false;
        }
        tried.waits += 1;
        drop(self.wait_for_room(state));
        true
    }

    /// Stores the copies of a set side by side.
    fn store_all(
        &self,
        set: &[usize],
        file: &Arc<FileName>,
        data: &[u8],
    ) -> Vec<(usize, io::Result<()>)> {
        std::thread::scope(|scope| {
            let store = |at: usize| (at, self.store(at, file, data));
            let Some((first, others)) = set.split_first() else { return Vec::new() };
            let start = |at: &usize| {
                let at = *at;
                scope.spawn(move || store(at))
            };
            let running: Vec<_> = others.iter().map(start).collect();
            let mut outcomes = vec![store(*first)];
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            outcomes.extend(running.into_iter().map(join));
            outcomes
        })
    }

    /// Writes one copy on a tier that was chosen and has room for it.
    fn store(&self, at: usize, file: &Arc<FileName>, data: &[u8]) -> io::Result<()> {
        let bytes = data.len() as u64;
        let mut state = self.lock();
        state.chosen(at, bytes);
        state.begin(at, Moved::Written, bytes);
        drop(state);
        let written = self.folders[at].write(Kind::Home, file, data);
        let mut state = self.lock();
        state.end(at, Moved::Written, bytes, written.is_err());
        match &written {
            Ok(()) => state.add_copy(&file.name, at, Kind::Home),
            Err(e) => {
                state.release(at, Kind::Home, bytes);
                state.failed(at, e);
            }
        }
        self.done(state);
        written
    }

    /// Removes a copy whose set is not complete. A copy that cannot be removed is still there, so it counts.
    fn take_back(&self, at: usize, file: &FileName, bytes: u64) -> io::Result<()> {
        self.lock().take_copy(&file.name, at, Kind::Home);
        let removed = self.folders[at].remove(Kind::Home, file);
        let mut state = self.lock();
        match &removed {
            Ok(()) => state.removed(at, Kind::Home, bytes),
            Err(e) => {
                state.failed(at, e);
                state.add_copy(&file.name, at, Kind::Home);
            }
        }
        self.done(state);
        removed
    }

    /// Returns false for a tier that does not exist or was tried: a policy of another crate can be wrong.
    fn is_usable(&self, at: usize, excluded: u32) -> bool {
        at < self.tiers.len() && excluded & (1 << at) == 0
    }
}

impl Tried {
    fn failed_on(&mut self, tiers: u32, error: io::Error) {
        self.excluded |= tiers;
        self.failed |= tiers;
        self.last = Some(error);
    }
}

fn no_room(file: &FileName, bytes: u64, source: Option<io::Error>) -> Error {
    Error::NoRoom { name: file.name.clone(), bytes, source }
}
