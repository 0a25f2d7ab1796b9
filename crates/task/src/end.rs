//! The end of a task.

use crate::sys::Status;

/// The event that ended the monitoring of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    /// Its first process exited with this status.
    Exited(Status),
    /// Its first process exited, and only the parent of that process knows the status.
    Unseen,
    /// The monitor detached; the task runs on.
    Detached,
}
