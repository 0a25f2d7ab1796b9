//! The engine: files on tiers.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use crate::Error;
use crate::place::{Policy, Tier};
use crate::tiers::disk::{Disk, FileSystem};
use crate::tiers::folder::{Folder, Kind};
use crate::tiers::name::FileName;
use crate::tiers::settings::{Settings, TierSpec};
use crate::tiers::state::{Entry, Held, State, Work};
use crate::tiers::stats::Stats;
use crate::tiers::view::View;

pub(super) type Guard<'a> = MutexGuard<'a, State>;

/// A hierarchy of tiers. All methods can be called by many threads at once; transfers run side by side.
pub struct Engine {
    pub(super) tiers: Vec<TierSpec>,
    pub(super) folders: Vec<Folder>,
    /// Sets of tiers in different domains, by their number of tiers.
    pub(super) sets: Vec<Vec<Vec<usize>>>,
    view: Box<dyn View>,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("tiers", &self.tiers).finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens the tiers, and finds the files that an earlier engine left there.
    ///
    /// # Errors
    /// There is no tier, too many, or two with one name or folder; a folder cannot be made or read; another process has a
    /// folder.
    pub fn open(
        settings: Settings,
        policy: Box<dyn Policy>,
        view: Box<dyn View>,
    ) -> Result<Self, Error> {
        Self::open_on(Arc::new(FileSystem), settings, policy, view)
    }

    /// Opens tiers on this disk.
    pub(super) fn open_on(
        disk: Arc<dyn Disk>,
        settings: Settings,
        policy: Box<dyn Policy>,
        view: Box<dyn View>,
    ) -> Result<Self, Error> {
        settings.check()?;
        let sets = settings.sets();
        let capacities: Vec<u64> = settings.tiers.iter().map(|t| t.capacity_bytes).collect();
        let mut state = State::new(policy, &capacities);
        let mut folders = Vec::with_capacity(settings.tiers.len());
        for (at, spec) in settings.tiers.iter().enumerate() {
            let (folder, found) = Folder::open(spec, Arc::clone(&disk))?;
            state.stats.removed_at_start += found.removed;
            state.stats.foreign += found.foreign;
            for (name, bytes) in found.homes {
                let file = Arc::new(name);
                if !state.adopt(at, &file, bytes) {
                    folder.note_foreign(&file);
                }
            }
            folders.push(folder);
        }
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok(Self { tiers: settings.tiers, folders, sets, view, state, changed })
    }

    /// Removes a file from all tiers, durably: it does not come back after a loss of power, also not from a tier that it
    /// left before.
    ///
    /// # Errors
    /// There is no such file; a tier fails. A tier that cannot remove its copy still has it. If a tier cannot make its removal
    /// durable, the copy is gone; its name is free after another call that succeeds. A tier that the file left before, and
    /// that fails now, leaves the file with all its copies.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let (file, copies, bytes) = self.begin_removal(name)?;
        let homes = copies.iter().filter(|held| held.kind == Kind::Home);
        if let Err(e) = self.settle(&file, homes.fold(0, |mask, held| mask | 1 << held.tier)) {
            let mut state = self.lock();
            state.set_work(name, Work::None);
            self.done(state);
            return Err(e);
        }
        let mut state = self.lock();
        for held in &copies {
            state.take_copy(name, held.tier, held.kind);
        }
        drop(state);
        let mut failed = None;
        for held in &copies {
            if let Err(e) = self.remove_copy(&file, *held, bytes) {
                failed = Some(self.tier_failed(held.tier, "remove a file", e));
            }
        }
        let mut state = self.lock();
        match &failed {
            None => state.drop_file(name),
            Some(_) => state.set_work(name, Work::None),
        }
        self.done(state);
        failed.map_or(Ok(()), Err)
    }

    /// Begins the work of a removal when the file is idle. Returns the file, its copies and its bytes. The list of copies is
    /// empty if an earlier removal is not durable.
    fn begin_removal(&self, name: &str) -> Result<(Arc<FileName>, Vec<Held>, u64), Error> {
        let mut state = self.lock();
        loop {
            let idle = state.files.get_mut(name).filter(|entry| entry.work == Work::None);
            if let Some(entry) = idle {
                entry.work = Work::Removing;
                return Ok((entry.file.clone(), entry.copies.clone(), entry.bytes));
            }
            // A file without a copy that counts is not there yet, or another thread removes it.
            entry_of(&mut state, name)?;
            state = self.wait(state);
        }
    }

    /// Removes a copy, which was taken from its file, and makes the removal of one that counts durable.
    fn remove_copy(&self, file: &FileName, held: Held, bytes: u64) -> io::Result<()> {
        let folder = &self.folders[held.tier];
        let removed = folder.remove(held.kind, file);
        let mut state = self.lock();
        match removed {
            Ok(()) => state.removed(held.tier, held.kind, bytes),
            Err(e) => {
                state.failed(held.tier, &e);
                state.add_copy(&file.name, held.tier, held.kind);
                return Err(e);
            }
        }
        drop(state);
        if held.kind == Kind::Cache {
            return Ok(());
        }
        // The folder keeps the name until it is synced, so a failure leaves the name to the next removal.
        folder.sync().inspect_err(|e| self.lock().failed(held.tier, e))
    }

    /// Returns when no old file of this name can come back on a tier, but those of the mask `holders`, which have a copy that
    /// counts.
    pub(super) fn settle(&self, file: &FileName, holders: u32) -> Result<(), Error> {
        for (at, folder) in self.folders.iter().enumerate() {
            if holders & (1 << at) != 0 {
                continue;
            }
            if let Err(e) = folder.settle(file) {
                self.lock().failed(at, &e);
                return Err(self.tier_failed(at, "remove an old file", e));
            }
        }
        Ok(())
    }

    /// Returns the names of the tiers that have a copy of a file, the fastest first; empty if there is no such file.
    pub fn holders(&self, name: &str) -> Vec<&str> {
        let state = self.lock();
        let copies = state.files.get(name).map(|entry| &entry.copies[..]).unwrap_or_default();
        copies.iter().map(|held| &*self.tiers[held.tier].name).collect()
    }

    /// Returns the names of all files, in no order.
    pub fn files(&self) -> Vec<String> {
        let state = self.lock();
        let there = state.files.iter().filter(|(_, entry)| !entry.copies.is_empty());
        there.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the bytes that are used or reserved on each tier.
    pub fn used_bytes(&self) -> Vec<u64> {
        self.lock().tiers.iter().map(|tier| tier.used_bytes).collect()
    }

    /// Returns the counts since the start.
    pub fn stats(&self) -> Stats {
        self.lock().stats
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        unpoisoned(self.state.lock())
    }

    /// Waits for a change.
    pub(super) fn wait<'a>(&'a self, state: Guard<'a>) -> Guard<'a> {
        unpoisoned(self.changed.wait(state))
    }

    /// Waits for a change, as one of the threads that go on only after it.
    pub(super) fn wait_for_room<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        state.waiting += 1;
        let seen = state.changes;
        unpoisoned(self.changed.wait_while(state, |state| state.changes == seen))
    }

    /// Wakes threads that wait for a change. They all go on, even before they have run.
    pub(super) fn notify(&self, state: &mut State) {
        state.changes += 1;
        state.waiting = 0;
        self.changed.notify_all();
    }

    /// Ends a change.
    pub(super) fn done(&self, mut state: Guard<'_>) {
        self.notify(&mut state);
    }

    /// Returns the epoch. Each change after which a deferred prefetch may be possible raises it.
    pub(super) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Waits until a change raises the epoch above `epoch`, at most for `timeout`.
    pub(super) fn wait_for_change(&self, epoch: u64, timeout: Duration) {
        let (state, until) = (self.lock(), Instant::now() + timeout);
        let same = |state: &mut State| state.epoch == epoch && Instant::now() < until;
        drop(unpoisoned(self.changed.wait_timeout_while(state, timeout, same)));
    }

    /// Asks the policy.
    pub(super) fn decide<T>(
        &self,
        state: &mut State,
        excluded: u32,
        ask: impl FnOnce(&mut dyn Policy, &[Tier]) -> T,
    ) -> T {
        state.decide(|telemetry| self.view.look(telemetry), excluded, ask)
    }

    pub(super) fn tier_failed(&self, at: usize, doing: &'static str, source: io::Error) -> Error {
        let (tier, path) = (self.tiers[at].name.clone(), self.folders[at].root().to_owned());
        Error::TierFailed { tier, path, doing, source }
    }
}

impl State {
    /// Adds a file that was found on a tier at the start. A copy whose length differs from that on a faster tier is foreign:
    /// it is counted, and the result is false.
    fn adopt(&mut self, at: usize, file: &Arc<FileName>, bytes: u64) -> bool {
        let fresh = || Entry::new(file.clone(), bytes, Work::None);
        let entry = self.files.entry(file.name.clone()).or_insert_with(fresh);
        if entry.bytes != bytes {
            self.stats.foreign += 1;
            return false;
        }
        self.reserve(at, Kind::Home, bytes);
        self.add_copy(&file.name, at, Kind::Home);
        true
    }

    pub(super) fn set_work(&mut self, name: &str, work: Work) {
        if let Some(entry) = self.files.get_mut(name) {
            entry.work = work;
        }
        self.epoch += 1;
    }
}

/// Returns the entry of a file that has a copy.
pub(super) fn entry_of<'a>(state: &'a mut Guard<'_>, name: &str) -> Result<&'a mut Entry, Error> {
    let entry = state.files.get_mut(name).filter(|entry| !entry.copies.is_empty());
    entry.ok_or_else(|| Error::NoSuchFile(name.chars().take(super::MAX_NAME_BYTES).collect()))
}
