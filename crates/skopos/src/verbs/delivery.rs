//! Delivers records of jobs to the hub of this machine, or spools them until there is one.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skopos_hub::client::{reach, store_batch};
use skopos_hub::messages::socket_path;
use skopos_model::Timestamp;
use skopos_model::job::JobRecord;
use skopos_store::jobs::StoredRecord;
use skopos_store::jobs::spool::{Sent, Spool, SpooledBatch};
use skopos_term::{state, tell};

/// Returns true if jobs of this user are kept on this machine: a hub runs or ran here, or records wait for one. Otherwise
/// a task is not a job, and nothing is spooled.
pub(crate) fn keeps_jobs(dir: &Path) -> bool {
    let is_own =
        |metadata: std::fs::Metadata| metadata.uid() == rustix::process::geteuid().as_raw();
    let is_there = |folder: Option<PathBuf>| folder.is_some_and(|folder| folder.is_dir());
    // The socket of a hub that was killed is still there.
    std::fs::metadata(socket_path(dir)).is_ok_and(is_own)
        || is_there(state::jobs())
        || is_there(state::spool())
}

/// Records of one epoch of a producer.
pub(crate) struct Batch(SpooledBatch);

impl Batch {
    /// Returns a batch without records.
    pub(crate) fn new(producer: String, epoch: i64) -> Self {
        Self(SpooledBatch { producer, epoch, records: Vec::new() })
    }

    /// Adds a record. One that no hub would take is named and left out.
    pub(crate) fn add(&mut self, record: &JobRecord<'_>) {
        if let Err(e) = record.check() {
            tell(format!("skopos: the {} of the job is not valid: {e}", record.kind.name()));
            return;
        }
        let sequence = i64::try_from(self.0.records.len()).unwrap_or(i64::MAX);
        self.0.records.push((sequence, StoredRecord::of(record)));
    }

    /// Sends the records to the hub in `dir`, which may take `patience` for each step. Without an acknowledgement they are
    /// spooled: the hub stores records only once that it gets twice. Failures are printed. Returns true if a hub answered.
    pub(crate) fn deliver(&self, dir: &Path, patience: Duration) -> bool {
        if self.0.records.is_empty() {
            return false;
        }
        match send(dir, &self.0, patience) {
            Sent::Acknowledged { .. } => true,
            Sent::Refused(why) => {
                tell(format!("skopos: the hub refused records of the job: {why}"));
                true
            }
            Sent::Later(why) => {
                self.spool(&why);
                false
            }
        }
    }

    fn spool(&self, why: &str) {
        let lost = |but: &str| {
            tell(format!("skopos: records of the job are lost: {why}, and {but}"));
        };
        let Some(folder) = state::spool() else {
            return lost("neither SKOPOS_STATE nor HOME names a place to keep them");
        };
        let spool = Spool::new(folder);
        match spool.add(&self.0, Timestamp::from_nanos(now())) {
            Ok(added) => {
                let at = spool.folder().display();
                tell(format!("skopos: {why}: records of the job wait in {at}"));
                if added.dropped > 0 {
                    let dropped = added.dropped;
                    tell(format!(
                        "skopos: {at} is full: {dropped} older records were dropped, and counted as losses of their jobs"
                    ));
                }
                tell_aside(&spool, &added.damaged);
            }
            Err(e) => {
                let mut causes = e.to_string();
                if let Some(cause) = std::error::Error::source(&e) {
                    causes += &format!(": {cause}");
                }
                lost(&format!("they cannot be spooled: {causes}"));
            }
        }
    }
}

/// Sends what is spooled to the hub in `dir`, until `time` is over. The rest is left to the hub and to later deliveries.
pub(crate) fn send_spooled(dir: &Path, patience: Duration, time: Duration) {
    let Some(folder) = state::spool() else { return };
    let (spool, until) = (Spool::new(folder), Instant::now() + time);
    let delivered = spool.deliver(&mut |batch| match Instant::now() < until {
        true => send(dir, batch, patience),
        false => Sent::Later("the others are sent later".to_owned()),
    });
    match delivered {
        Ok(delivered) => tell_aside(&spool, &delivered.aside),
        Err(e) => tell(format!("skopos: spooled records of jobs cannot be sent: {e}")),
    }
}

fn tell_aside(spool: &Spool, aside: &[impl std::fmt::Display]) {
    let at = spool.folder().display();
    aside.iter().for_each(|damage| tell(format!("skopos: a batch in {at}: {damage}")));
}

fn send(dir: &Path, batch: &SpooledBatch, patience: Duration) -> Sent {
    match reach(dir, patience) {
        Ok(Some(stream)) => store_batch(&stream, batch),
        Ok(None) => Sent::Later("no hub runs".to_owned()),
        Err(failure) => Sent::Later(failure.message().to_owned()),
    }
}

/// Returns the time in nanoseconds of UNIX time.
pub(crate) fn now() -> i64 {
    nanos(SystemTime::now())
}

/// Returns nanoseconds of UNIX time.
pub(crate) fn nanos(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
