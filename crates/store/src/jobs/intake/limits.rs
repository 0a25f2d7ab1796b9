use std::time::Duration;

use skopos_model::job::MAX_DOCUMENT_BYTES;

use crate::log::Capacity;

/// The room of a log. A commit every few milliseconds writes a megabyte or two, so 16 are some commits of a slow disk. The
/// longest content is a document with its job and node.
pub(super) const CAPACITY: Capacity = Capacity::new(16 << 20, MAX_DOCUMENT_BYTES + 1024);

/// Length at which another log begins. A log is read as a whole after a crash, and removed as a whole.
pub(super) const MAX_LOG_BYTES: u64 = 128 << 20;

/// The longest name of a producer: a host with a program and a number.
pub(super) const MAX_PRODUCER_BYTES: usize = 256;

/// The most producers that are known: some for each node of the largest machine. With the longest names they fit before
/// the first commit of a log.
pub(super) const MAX_PRODUCERS: usize = 50_000;

/// The most that an account may hold of the room for records, jobs and producers that are not sealed, as a multiple of what is free. One
/// that floods alone stops at three quarters, and leaves the rest to others; when several flood, each stops earlier
/// (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet switches, 1998). It is more than the half from
/// which on all jobs are due, so that sealing goes on for an account that waits.
pub(super) const SHARE_OF_FREE: u64 = 3;

/// Limits of an intake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntakeLimits {
    /// The most bytes of all logs together. At the limit, records are refused until parts are sealed.
    pub max_bytes: u64,
    /// The most jobs with records that are not sealed.
    pub max_jobs: usize,
    /// The most unsealed records of one job, and their most bytes. At half of that, the job is due.
    pub max_job_records: usize,
    /// See `max_job_records`.
    pub max_job_bytes: u64,
    /// Time without a record after which an ended job is due.
    pub settle: Duration,
    /// Time after which a part of a job that goes on is due.
    pub seal_every: Duration,
    /// Time after which a silent producer is forgotten. Its records of before are not told from new ones then.
    pub forget_after: Duration,
}

impl Default for IntakeLimits {
    fn default() -> Self {
        let day = Duration::from_secs(86_400);
        Self {
            max_bytes: 4 << 30,
            max_jobs: 200_000,
            max_job_records: 1_000_000,
            max_job_bytes: 256 << 20,
            settle: Duration::from_secs(5),
            seal_every: Duration::from_secs(3600),
            forget_after: 30 * day,
        }
    }
}
