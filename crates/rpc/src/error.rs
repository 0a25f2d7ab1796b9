//! The errors of this crate.

use std::io;

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation of the operating system failed.
    #[error("{path}: {doing}")]
    Io {
        /// The file.
        path: std::path::PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The input cannot be analysed.
    #[error("{input}: {why}")]
    Input {
        /// The file, folder or request.
        input: String,
        /// The reason, with a form that would be right.
        why: String,
    },
}
