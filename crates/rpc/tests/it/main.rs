//! Tests of the recorder with real files and processes.

mod traces;

#[cfg(feature = "tonic")]
mod tonic;
