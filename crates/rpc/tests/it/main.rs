//! Tests of the recorder with real files and processes, and of analyses with traces that are known.

mod support;

mod traces;
mod analysis;
mod recorders;
mod killed;
