//! The reasons why the telemetry of a network cannot be read, sent or measured.

use std::io;

/// The reason why an operation of this crate failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A packet ends before the field that its header promises.
    #[error("{what} needs {needed} bytes, and {left} are left")]
    Short {
        /// The structure that was read.
        what: &'static str,
        /// Bytes that it needs.
        needed: usize,
        /// Bytes that the packet has.
        left: usize,
    },
    /// A version that this build does not know.
    #[error("{what} has version {found}; this build reads version {known}")]
    Version {
        /// The structure that was read.
        what: &'static str,
        /// The version of the packet.
        found: u8,
        /// The version that is known.
        known: u8,
    },
    /// A field with a value that contradicts the specification or another field.
    #[error("{what}: {why}")]
    Malformed {
        /// The structure that was read.
        what: &'static str,
        /// The field with its value, and the values that it may have.
        why: String,
    },
    /// The system refused an operation.
    #[error("{doing}")]
    System {
        /// The operation, with its subject.
        doing: String,
        /// The answer of the kernel.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Returns the conversion of an error of the system while `doing` something.
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source }
    }

    /// Returns the error of a field with a wrong value.
    pub(crate) fn malformed(what: &'static str, why: impl Into<String>) -> Self {
        Self::Malformed { what, why: why.into() }
    }
}
