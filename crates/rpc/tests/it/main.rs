//! Tests of the recorder with real files and processes, and of analyses with traces that are known.

mod support;

mod traces;
mod recorders;
mod killed;
mod analysis;

#[cfg(feature = "tonic")]
mod tonic;
