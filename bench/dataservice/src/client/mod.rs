//! Clients of the providers: a function for each RPC that issues a call, and functions that read answers.

pub mod keyvalue;
pub mod object;
pub mod document;
pub mod sequencer;
