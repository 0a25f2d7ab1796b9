//! The replication of this hub's jobs to another hub: the part that the state of the storage has.

use std::io;
use std::sync::Mutex;

use skopos_model::unpoisoned;
use skopos_store::jobs::Intake;
use skopos_store::jobs::replica::Sender;

/// The part of the state that exists once jobs are replicated.
#[derive(Debug, Default)]
pub(super) struct Replication {
    pub(super) sender: Mutex<Option<Sender>>,
}

impl Replication {
    /// Returns the number of records that the replica has, the bytes that it lacks, and the number of restored segments.
    pub(super) fn numbers(&self, intake: &Mutex<Intake>) -> (u64, u64, u64) {
        let sender = unpoisoned(self.sender.lock());
        sender.as_ref().map_or((0, 0, 0), |sender| {
            let (standing, intake) = (sender.standing(), unpoisoned(intake.lock()));
            (standing.records, sender.behind_bytes(&intake), standing.restored)
        })
    }
}

/// Returns a random number.
pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}
