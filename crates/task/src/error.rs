//! The reasons why a task cannot be monitored.

use std::io;

/// The reason why a process cannot be attached to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// No process has this id.
    #[error("there is no process {0}")]
    Missing(i32),
    /// The process has exited and waits for its parent.
    #[error("process {0} has already exited")]
    Ended(i32),
    /// The id is that of a thread.
    #[error("{thread} is a thread of process {process}")]
    Thread {
        /// The id that was given.
        thread: i32,
        /// The process of that thread.
        process: i32,
    },
    /// The process is the monitor.
    #[error("{0} is this monitor itself")]
    Own(i32),
    /// All processes descend from it.
    #[error("1 is the process from which all others descend")]
    Init,
    /// The process is a kernel thread.
    #[error("{pid} is a kernel thread: {name}")]
    Kernel {
        /// The id that was given.
        pid: i32,
        /// Its name, in brackets.
        name: String,
    },
    /// The kernel gives no handle of the process.
    #[error("there is no handle of process {pid}: {why}")]
    NoHandle {
        /// The id that was given.
        pid: i32,
        /// The kernel's error.
        why: String,
    },
}

/// The reason why there is no task to measure.
#[derive(Debug)]
pub enum RunError {
    /// There is no command.
    Empty,
    /// The program does not exist.
    NotFound(io::Error),
    /// The program cannot be started.
    NotExecutable(io::Error),
    /// The monitor itself failed before the task began.
    Start(io::Error),
    /// This process may not open the descriptors that starting a child needs.
    NoDescriptors,
    /// The process cannot be attached to.
    Attach(AttachError),
}

impl RunError {
    /// Converts an error of the monitor's own start.
    pub(crate) fn of_start(e: io::Error) -> Self {
        match e.raw_os_error() {
            Some(libc::EMFILE) => Self::NoDescriptors,
            _ => Self::Start(e),
        }
    }

    /// Converts the error of `exec` in the child.
    pub(crate) fn of_exec(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::NotFound => Self::NotFound(e),
            _ => Self::NotExecutable(e),
        }
    }
}
