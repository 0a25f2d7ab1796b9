//! Locks that outlive a panic.

use std::sync::{LockResult, PoisonError};

/// Returns the guard of a lock, also after a thread panicked while it held that lock.
///
/// A monitor has to go on after a panic in one of its threads. Callers keep their data consistent at
/// every point where they could panic.
///
/// ```
/// use skopos_model::unpoisoned;
///
/// let polls = std::sync::Mutex::new(0);
/// *unpoisoned(polls.lock()) += 1;
/// ```
#[inline]
pub fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}
