//! The error of this crate.

use std::io;
use std::path::PathBuf;

/// An operation of the service failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file, folder or socket's path could not be used.
    #[error("{path}: {doing}")]
    Path {
        /// The path.
        path: PathBuf,
        /// The failed action, such as "bind the socket".
        doing: &'static str,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A system call on a socket, memory file or thread failed.
    #[error("cannot {doing}")]
    System {
        /// The failed action, such as "send a message".
        doing: &'static str,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A message does not have the layout of [`message`](crate::message).
    #[error("a message was refused: {0}")]
    Message(&'static str),
    /// A peer closed its socket while calls were waiting, or before.
    #[error("the connection to `{0}` ended")]
    Closed(String),
    /// The target executed the call and reports a failure.
    #[error("`{rpc}` failed on the target: {reason}")]
    Remote {
        /// Name of the RPC.
        rpc: &'static str,
        /// The text of the target's error.
        reason: String,
    },
    /// The memory for bulk transfers is in use.
    #[error("no room for {wanted} bytes: all {limit} bytes for bulk transfers are in use")]
    RegionFull {
        /// Bytes that were asked for.
        wanted: u64,
        /// Bytes of the region.
        limit: u64,
    },
    /// A value of the configuration is outside of its range.
    #[error("`{key}` is {value}; it must be {range}")]
    Config {
        /// Key of the configuration.
        key: &'static str,
        /// The value that was given.
        value: u64,
        /// The values that are possible.
        range: &'static str,
    },
    /// A process of a case did not do its part.
    #[error("the process `{name}`: {reason}")]
    Child {
        /// Name of the process in the case.
        name: String,
        /// The part that is missing.
        reason: String,
    },
    /// The recorder of spans could not be used.
    #[error("the recorder of spans")]
    Recorder(#[source] skopos_rpc::Error),
    /// The recorder of another project could not be started or ended.
    #[error("the recorder of another project")]
    Tracer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A text is not the JSON that was expected.
    #[error("{doing}")]
    Json {
        /// The text's role.
        doing: &'static str,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps an error of the system.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |source| Self::System { doing, source: source.into() }
    }

    /// Wraps an error of the standard library.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}
