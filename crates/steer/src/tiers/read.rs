//! Reads.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::Error;
use crate::place::{Moved, Policy, Tier};
use crate::tiers::engine::{Engine, entry_of};
use crate::tiers::folder::Kind;
use crate::tiers::name::FileName;
use crate::tiers::state::{Entry, Work};

/// Tries of a read whose copy was moved before it was opened. A file is moved once for each tier at most in the time of a
/// read, unless tiers are far too small.
const MAX_TRIES: usize = 64;

/// A copy that is being read.
struct Chosen {
    file: Arc<FileName>,
    at: usize,
    kind: Kind,
    bytes: u64,
    /// A copy that was brought up for this read was evicted.
    is_missed: bool,
}

impl Engine {
    /// Reads a file.
    ///
    /// # Errors
    /// There is no such file; no tier that has it can read it.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut data = Vec::new();
        self.read_into(name, &mut data)?;
        Ok(data)
    }

    /// Reads a file into `into`, whose content is replaced. A file that is being brought up is read when that is done.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_into(&self, name: &str, into: &mut Vec<u8>) -> Result<(), Error> {
        let (mut excluded, mut last) = (0, None);
        for _ in 0..MAX_TRIES {
            let Some(chosen) = self.choose(name, excluded)? else { break };
            let Chosen { file, at, kind, bytes, is_missed } = chosen;
            into.clear();
            let begun = Instant::now();
            let read = self.folders[at].read(kind, &file, into).and_then(|()| whole(into, bytes));
            let mut state = self.lock();
            state.end(at, Moved::Read, bytes, read.is_err());
            match read {
                Ok(()) => {
                    if is_missed && kind == Kind::Home {
                        state.stats.stalls += 1;
                        state.stats.stalled += begun.elapsed();
                    }
                    state.stats.read_bytes += bytes;
                    state.used(name, at);
                    self.done(state);
                    return Ok(());
                }
                Err(e) => {
                    let is_there = state.files.get(name).is_some_and(|entry| entry.has(at, kind));
                    if is_there {
                        // A missing file is a failure of the tier only if the tier is missing too.
                        if e.kind() != io::ErrorKind::NotFound || !self.folders[at].root().is_dir()
                        {
                            state.failed(at, &e);
                        }
                        excluded |= 1 << at;
                        last = Some(self.tier_failed(at, "read a file", e));
                    }
                    self.done(state);
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::Unreadable(name.to_owned())))
    }

    /// Chooses the copy of a read, and begins it; `None` if all copies were tried.
    fn choose(&self, name: &str, excluded: u32) -> Result<Option<Chosen>, Error> {
        let mut state = self.lock();
        let mut waits_since = None;
        while entry_of(&mut state, name)?.work == Work::Prefetching {
            waits_since.get_or_insert_with(Instant::now);
            state = self.wait(state);
        }
        if let Some(since) = waits_since {
            state.stats.stalls += 1;
            state.stats.stalled += since.elapsed();
        }
        let entry = entry_of(&mut state, name)?;
        let (file, bytes, is_missed) = (entry.file.clone(), entry.bytes, entry.was_evicted);
        let untried = entry.copies.iter().filter(|held| excluded & (1 << held.tier) == 0);
        let copies: Vec<(usize, Kind)> = untried.map(|held| (held.tier, held.kind)).collect();
        let holders: Vec<usize> = copies.iter().map(|(tier, _)| *tier).collect();
        let read = |policy: &mut dyn Policy, tiers: &[Tier]| policy.read(bytes, &holders, tiers);
        let chosen = self.decide(&mut state, excluded, read);
        // A tier that failed a moment ago is better than no tier.
        let at = chosen.filter(|at| holders.contains(at)).or(holders.first().copied());
        let Some((at, kind)) = copies.into_iter().find(|(tier, _)| Some(*tier) == at) else {
            return Ok(None);
        };
        state.begin(at, Moved::Read, bytes);
        Ok(Some(Chosen { file, at, kind, bytes, is_missed }))
    }
}

impl Entry {
    fn has(&self, tier: usize, kind: Kind) -> bool {
        self.copies.iter().any(|held| held.tier == tier && held.kind == kind)
    }
}

fn whole(data: &[u8], bytes: u64) -> io::Result<()> {
    if data.len() as u64 == bytes {
        return Ok(());
    }
    let why = "the file has another length than when it was written";
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}
