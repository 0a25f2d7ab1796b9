//! The turns of streams of records.
//!
//! One stream at a time passes records to the intake: a caller after another, and of a caller a stream after another. In its
//! turn a stream passes on [`TURN_BYTES`]; then it stands behind all that wait. A record that is longer counts in its next
//! turns, too: deficit round robin (Shreedhar and Varghese, Efficient fair queuing using deficit round robin, 1996). If too
//! much waits for the disk, the stream whose turn it is waits for a commit, and the others keep their order. A stream that has
//! to read files or the catalogue steps aside meanwhile, and keeps no thread while it waits for its next turn.
//!
//! # Invariants
//! - A commit follows the end of a turn. So a stream waits for at most as many commits as there are turns before its own: those
//!   of the other streams. A producer that floods has one place among them for each of its streams.
//! - A stream that waits holds one batch in memory, and reads no more from its producer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use skopos_access::Caller;

use super::counts::add;
use super::shared::Shared;
use crate::turns::{Turn, block_on};

/// Bytes of a turn. A commit writes 16 MiB at most, and a listener has 1,024 streams, so a round of all of them is at most four
/// commits. Some hundred records make the exchange of turns cheap.
pub(super) const TURN_BYTES: u64 = 64 << 10;

/// The turn of a stream, until it is dropped.
#[derive(Debug)]
pub struct StoreTurn {
    _held: Turn,
    /// Bytes that were passed on, with those that count from before.
    used: u64,
}

impl Shared {
    /// Waits for the turn of a stream of a caller. `owed` are bytes that count in it.
    pub(super) async fn turn(&self, caller: &Caller, mut owed: u64) -> StoreTurn {
        loop {
            let held = self.turns.take(caller).await;
            add(&self.counts.turns, 1);
            if owed < TURN_BYTES {
                return StoreTurn { _held: held, used: owed };
            }
            owed -= TURN_BYTES;
        }
    }
}

/// A stream that stores a batch, with its turn.
pub(super) struct InTurn<'s> {
    shared: &'s Shared,
    pub(super) caller: &'s Caller,
    /// `None` only while the stream waits for it.
    turn: Option<StoreTurn>,
}

impl<'s> InTurn<'s> {
    pub(super) fn new(shared: &'s Shared, caller: &'s Caller, turn: StoreTurn) -> Self {
        Self { shared, caller, turn: Some(turn) }
    }

    fn used(&self) -> u64 {
        self.turn.as_ref().map_or(0, |turn| turn.used)
    }

    /// Notes that the stream passes on bytes.
    pub(super) fn pass(&mut self, bytes: u64) {
        if let Some(turn) = &mut self.turn {
            turn.used = turn.used.saturating_add(bytes);
        }
    }

    /// Returns true if the turn is over.
    pub(super) fn is_over(&self) -> bool {
        self.used() >= TURN_BYTES
    }

    /// Returns the bytes that the turn has too many, or all of them if the stream `steps_aside`.
    pub(super) fn owed(&self, steps_aside: bool) -> u64 {
        self.used().saturating_sub(if steps_aside { 0 } else { TURN_BYTES })
    }

    /// Ends the turn, and waits for the next one. Blocks.
    pub(super) fn next(&mut self) {
        let owed = self.owed(false);
        self.turn = None;
        self.turn = Some(block_on(self.shared.turn(self.caller, owed)));
    }

    /// Does work that may take long, and leaves the turn to other streams meanwhile. Blocks: only for a stream that has a
    /// thread of its own, because the stream that gets the turn may need another one.
    pub(super) fn aside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let used = self.owed(true);
        self.turn = None;
        let done = work();
        self.turn = Some(block_on(self.shared.turn(self.caller, used)));
        done
    }
}

/// Bytes of a stream that wait for its turns, until this is dropped.
#[derive(Debug)]
pub struct WaitingBytes {
    shared: Arc<Shared>,
    bytes: u64,
}

impl WaitingBytes {
    pub(super) fn new(shared: Arc<Shared>, bytes: u64) -> Self {
        add(&shared.counts.waiting, bytes);
        Self { shared, bytes }
    }
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        self.shared.counts.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
