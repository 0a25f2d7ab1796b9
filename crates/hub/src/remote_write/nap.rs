//! The pause of a waiting thread.

use std::time::Duration;

/// Maximum time that a thread sleeps before it checks if it has to end.
pub(super) const NAP: Duration = Duration::from_millis(100);
