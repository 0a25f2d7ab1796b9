//! The effect of a batch of records.

use skopos_model::job::{JobId, JobRecord};
use thiserror::Error;

use super::batch::BatchError;

/// The most refused records of a batch that an answer names. Further ones are counted.
const MAX_NAMED: usize = 32;

/// The effect of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Number of new records.
    pub accepted: u64,
    /// Number of records that were stored already.
    pub duplicates: u64,
    /// Number of records that were refused for good.
    pub refused: u64,
    /// The first of these: their sequences, and the reasons.
    pub refusals: Vec<(i64, String)>,
    /// The highest sequence that is stored.
    pub last: Option<i64>,
    /// Number of all these records.
    pub passed: usize,
    /// Bytes that count in the next turn of the stream: those beyond this turn, or, if the stream stepped aside, all.
    pub owed: u64,
}

impl Stored {
    /// Notes a record that was refused for good.
    pub(super) fn refuse(&mut self, sequence: i64, why: String) {
        self.refused += 1;
        if self.refusals.len() < MAX_NAMED {
            self.refusals.push((sequence, why));
        }
    }

    /// Adds the effect of the next turn of the same stream.
    pub fn add(&mut self, next: Self) {
        self.accepted += next.accepted;
        self.duplicates += next.duplicates;
        self.refused += next.refused;
        let room = MAX_NAMED.saturating_sub(self.refusals.len());
        self.refusals.extend(next.refusals.into_iter().take(room));
        self.last = self.last.max(next.last);
        self.passed += next.passed;
        self.owed = next.owed;
    }
}

/// The reason why the rest of a batch was not taken.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The batch is not one of records.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The storage has no room now. The same records can be sent again.
    #[error("{0}")]
    Busy(String),
    /// The turn of the stream is over. The rest comes in its next turn.
    #[error("the turn of the stream is over")]
    TurnOver,
    /// The job of the next record is looked up first ([`Jobs::look_up`](super::Jobs::look_up)), while other streams have the
    /// turn.
    #[error("the job of the next record is looked up first")]
    Lookup(Lookup),
    /// The kernel lost records of the stream that were not durable. The producer sends again what was not acknowledged.
    #[error("the disk lost records that were not acknowledged; send them again in a new stream")]
    Lost,
    /// The producer has begun a later epoch, or its name is not valid.
    #[error("{0}")]
    Producer(String),
}

/// A job that is looked up before its record is stored.
#[derive(Clone, Debug)]
pub struct Lookup {
    pub(super) id: JobId,
    pub(super) place: LookupPlace,
}

/// The place in which a job is looked up.
#[derive(Clone, Copy, Debug)]
pub(super) enum LookupPlace {
    /// The catalogue, for the policy. `last_part` is the last sealed part of the job, which the intake does not have.
    Catalogue { last_part: Option<u32> },
    /// The segments, for the sequences that they have.
    Segments,
}

/// The time between two losses of records that were not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(pub(super) u64);

/// Takes a record with its sequence.
pub type Visit<'v> = dyn FnMut(i64, JobRecord<'_>) -> Result<(), StoreError> + 'v;
