//! Writes: one copy where the policy places it, or replicas on a set of tiers.

use std::collections::hash_map;
use std::io;
use std::sync::Arc;

use crate::Error;
use crate::place::{Moved, Policy, Request, Tier};
use crate::tiers::engine::Engine;
use crate::tiers::folder::Kind;
use crate::tiers::name::FileName;
use crate::tiers::state::{Entry, Work};

impl Engine {
    /// Writes a file, and returns when it is as durable as its tier. A file is written once: to change it, remove it.
    ///
    /// # Errors
    /// The name is not allowed or taken; no tier can hold the file; all tiers fail.
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
        let written = self.write_somewhere(&file, data, request);
        self.created(&file, request.bytes, written)
    }

    /// Writes `copies` replicas of a file side by side, on tiers of different domains, and returns when each is as durable
    /// as its tier.
    ///
    /// # Errors
    /// There is no set of that many tiers in different domains; the errors of [`write`](Self::write). After an error no
    /// replica is left.
    pub fn replicate(&self, name: &str, data: &[u8], copies: usize) -> Result<(), Error> {
        let file = Arc::new(FileName::new(name)?);
        let sets = self.sets.get(copies).map(Vec::as_slice).unwrap_or_default();
        if sets.is_empty() {
            return Err(Error::Copies { copies, tiers: self.tiers.len() });
        }
        let request = Request { bytes: data.len() as u64, fault_tolerance: copies as f64 };
        self.create(&file, request.bytes)?;
        let written = self.write_set(&file, data, request, sets);
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
        if written.is_ok() {
            state.stats.writes += 1;
            state.stats.written_bytes += bytes;
            state.set_work(&file.name, Work::None);
        } else {
            state.files.remove(&file.name);
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
        let (mut excluded, mut last) = (0, None);
        loop {
            let place = |policy: &mut dyn Policy, tiers: &[Tier]| policy.place(request, tiers);
            let chosen = self.decide(&mut self.lock(), excluded, place);
            let Some(at) = chosen.filter(|at| self.is_usable(*at, excluded)) else {
                return Err(no_room(file, request.bytes, last));
            };
            excluded |= 1 << at;
            if self.make_room(at, request.bytes) {
                match self.store(at, file, data) {
                    Ok(()) => return Ok(()),
                    Err(e) => last = Some(e),
                }
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
        let (mut excluded, mut last) = (0, None);
        loop {
            let replicate =
                |policy: &mut dyn Policy, tiers: &[Tier]| policy.replicate(request, sets, tiers);
            let chosen = self.decide(&mut self.lock(), excluded, replicate);
            let set = chosen.and_then(|at| sets.get(at));
            let usable = |set: &&Vec<usize>| set.iter().all(|at| self.is_usable(*at, excluded));
            let Some(set) = set.filter(usable) else {
                return Err(no_room(file, request.bytes, last));
            };
            let without_room = set.iter().find(|at| !self.make_room(**at, request.bytes));
            if let Some(without) = without_room {
                let reserved = set.iter().take_while(|at| *at != without);
                reserved.for_each(|at| self.lock().release(*at, request.bytes));
                excluded |= 1 << *without;
                continue;
            }
            let outcomes = self.store_all(set, file, data);
            let failed: u32 =
                outcomes.iter().filter(|(_, o)| o.is_err()).map(|(at, _)| 1 << *at).sum();
            if failed == 0 {
                self.lock().stats.replicas += set.len() as u64;
                return Ok(());
            }
            excluded |= failed;
            for (at, outcome) in outcomes {
                match outcome {
                    // A set is complete or it is not there.
                    Ok(()) => self.take_back(at, file, request.bytes),
                    Err(e) => last = Some(e),
                }
            }
        }
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

    /// Writes one copy, for which there is room.
    fn store(&self, at: usize, file: &Arc<FileName>, data: &[u8]) -> io::Result<()> {
        let bytes = data.len() as u64;
        self.lock().begin(at, Moved::Written, bytes);
        let written = self.folders[at].write(Kind::Home, file, data);
        let mut state = self.lock();
        state.end(at, Moved::Written, bytes, written.is_err());
        match &written {
            Ok(()) => state.add_copy(&file.name, at, Kind::Home),
            Err(e) => {
                state.release(at, bytes);
                state.failed(at, e);
            }
        }
        self.done(state);
        written
    }

    /// Removes a copy whose set is not complete.
    fn take_back(&self, at: usize, file: &FileName, bytes: u64) {
        self.lock().take_copy(&file.name, at, Kind::Home);
        let removed = self.folders[at].remove(Kind::Home, file);
        let mut state = self.lock();
        match removed {
            Ok(()) => state.removed(at, bytes),
            // The bytes stay counted: they are still there.
            Err(e) => state.failed(at, &e),
        }
        self.done(state);
    }

    /// Returns false for a tier that does not exist or was tried: a policy of another crate can be wrong.
    fn is_usable(&self, at: usize, excluded: u32) -> bool {
        at < self.tiers.len() && excluded & (1 << at) == 0
    }
}

fn no_room(file: &FileName, bytes: u64, source: Option<io::Error>) -> Error {
    Error::NoRoom { name: file.name.clone(), bytes, source }
}
