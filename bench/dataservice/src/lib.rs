//! A composed data service, which Skopos watches: a client, a key-value provider, an object provider and a sequencer
//! over an RPC layer of its own.
#![forbid(unsafe_code)]

pub mod error;
pub mod config;
pub mod codec;
pub mod message;
pub mod rpcs;
pub mod tracer;
pub mod gauges;
pub mod probe;
mod socket;
pub mod region;
pub mod pool;
pub mod reply;
mod completion;
pub mod origin;
pub mod call;
mod connection;
pub mod server;
pub mod provider;
pub mod client;
pub mod latencies;
pub mod statistics;
pub mod load;
pub mod process;
pub mod children;
pub mod case;
pub mod overhead;
pub mod view;
pub mod run;
mod verbs;
pub mod program;

pub use error::{Error, Result};
