use std::io;
use std::path::PathBuf;

/// The reason for which a recorder, a context or a trace file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be used.
    #[error("{path}: {doing}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        doing: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file does not begin with the process frame of a trace.
    #[error("{path}: not a trace: {why}; traces are the files `*.sktrace` that a recorder wrote")]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// An input cannot be analysed.
    #[error("{input}: {why}")]
    Input {
        /// The trace, the request or the document.
        input: String,
        /// The reason, with a form that would be right.
        why: String,
    },
    /// Bytes or headers of a request are not a context.
    #[error("not a context: {0}")]
    Context(&'static str),
    /// The name of a process cannot be the name of a file.
    #[error("`{0}` is not a name: 1 to 48 of the characters a-z 0-9 _ - . and no `.` in front")]
    Name(String),
    /// A variable cannot have this name or unit.
    #[error("`{0}` is not a variable: a name has 1 to 128 bytes, a unit at most 128")]
    PvarName(String),
    /// A registry has no room for another performance variable.
    #[error("no room for the variable `{name}`: a process has at most {capacity}")]
    PvarsFull {
        /// Name of the refused variable.
        name: String,
        /// Number of variables that fit.
        capacity: usize,
    },
    /// A variable is already registered under this name, as something else.
    #[error("the variable `{0}` is already registered with another class, binding or unit")]
    PvarDiffers(String),
    /// The registry has no variable of this name.
    #[error("no variable `{0}`; `query` lists those of this process")]
    NoPvar(String),
    /// A variable is sampled without the object to which it is bound, or has no source.
    #[error("the variable `{name}` {why}")]
    Sample {
        /// Name of the variable.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The source of a variable failed before, and is not called any more.
    #[error("the source of the variable `{name}` failed: {reason}")]
    SourceFailed {
        /// Name of the variable.
        name: String,
        /// The message of its panic.
        reason: String,
    },
    /// The session was finalized, or the handle is of another session.
    #[error("the session of this handle was finalized, or the handle is of another session")]
    Session,
    /// The segment in shared memory could not be made or read.
    #[error(transparent)]
    Shm(#[from] skopos_shm::Error),
}

impl Error {
    pub(crate) fn io(
        path: &std::path::Path,
        doing: &'static str,
    ) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { path, doing, source }
    }
}
