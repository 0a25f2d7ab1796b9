//! The state of the storage of a site, which its threads share.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use skopos_model::{Timestamp, unpoisoned};
use skopos_store::jobs::{Catalogue, Intake, Lts, Retention, catalogue};
use tokio::sync::watch;

use super::counts::Counts;
use super::replication::Replication;
use super::signal::Signal;
use super::troubles::Troubles;
use crate::turns::Turns;

/// The state that the threads share.
pub(super) struct Shared {
    pub(super) site: String,
    pub(super) intake: Arc<Mutex<Intake>>,
    pub(super) lts: Arc<Lts>,
    pub(super) catalogue: Box<dyn Catalogue>,
    pub(super) turns: Turns,
    pub(super) signal: Signal,
    pub(super) retention: Retention,
    pub(super) counts: Counts,
    /// Number of changes of what is acknowledged: commits, and sealed parts.
    pub(super) commits: watch::Sender<u64>,
    /// Number of times that the log was opened anew because the kernel had lost records. It changes under the intake's lock.
    pub(super) reopened: AtomicU64,
    /// Number of streams that wait until their records are sealed.
    pub(super) awaited: AtomicUsize,
    /// The errors of the threads that are not mended, for people.
    pub(super) troubles: Mutex<Troubles>,
    /// The end of the replication that this storage has, if there is a replica.
    pub(super) replication: Replication,
}

impl Shared {
    /// Returns the state of a storage with these records, segments and catalogue.
    pub(super) fn new(
        site: &str,
        (intake, lts): (Arc<Mutex<Intake>>, Arc<Lts>),
        catalogue: Box<dyn Catalogue>,
        retention: Retention,
    ) -> Self {
        Self {
            site: site.to_owned(),
            intake,
            lts,
            catalogue,
            // One stream at a time, and one place in the order for each caller.
            turns: Turns::new(1, 1),
            signal: Signal::default(),
            retention,
            counts: Counts::default(),
            commits: watch::Sender::default(),
            reopened: AtomicU64::new(0),
            awaited: AtomicUsize::new(0),
            troubles: Mutex::default(),
            replication: Replication::default(),
        }
    }

    pub(super) fn intake(&self) -> MutexGuard<'_, Intake> {
        unpoisoned(self.intake.lock())
    }

    /// Returns true if a stream waits until its records are sealed.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("site", &self.site).finish_non_exhaustive()
    }
}

/// Returns true if an error is one of a catalogue that may answer later.
pub(super) fn is_away(e: &(dyn std::error::Error + 'static)) -> bool {
    matches!(e.downcast_ref(), Some(catalogue::Error::Database { .. }))
}

/// An error of a thread's work.
pub(super) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Returns an error with its causes.
pub(super) fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
