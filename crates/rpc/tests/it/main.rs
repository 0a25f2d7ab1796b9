//! Tests of the recorder with real files and processes, and of analyses with traces that are known.

mod traces;
mod analysis;

#[cfg(feature = "tonic")]
mod tonic;
