//! Tests of the recorder with real files and processes.

mod support;

mod traces;
mod recorders;
mod killed;
