//! Timeouts that several cases share.

use std::time::Duration;

/// The longest time of a compiler.
pub(super) const COMPILE: Duration = Duration::from_secs(120);
