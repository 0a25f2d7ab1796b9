//! The agent of a node: it watches a machine.
//!
//! Read in this order: [`args`] holds the command-line options and [`config`] the configuration file;
//! `settings` merges the two. [`agent`](Agent) is the loop: a thread that sleeps in `poll(2)` until a sensor
//! is due, a request arrives or a signal ends it. `clock` reads the time. `probe` is a sensor with its facts,
//! and `sink` writes its values into the segment. `polled` decides when a sensor is polled, `overhead` keeps
//! all sensors within a budget, `shares` distributes the processor time of a tick, and `lanes` polls the
//! sensors that may hang. `telemetry` has the parts of network telemetry. `insights` computes insights from the facts. `self_facts` publishes the work and
//! cost of the agent, `user_facts` the facts of scripts; `foreign` reads the segments of other processes,
//! `ranks` ranks candidates by facts of all of them, `server` answers the requests of [`control`], and `signals` turns signals into a readable descriptor.
//! [`Archiver`] keeps published samples on disk, [`calibrate`] measures the limits of a device, [`ask`] and
//! [`fresh`] are for clients of the control socket.

#![forbid(unsafe_code)]
// These macros panic on a closed pipe; `skopos_term` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod config;
mod names;
mod root;
mod settings;
mod clock;
mod beat;
mod event;
mod probe;
mod shares;
#[cfg(test)]
mod large;
mod sink;
mod polled;
mod overhead;
mod lanes;
mod insights;
mod self_facts;
mod user_facts;
mod foreign;
mod ranks;
mod telemetry;
mod traces;
pub mod control;
mod server;
mod signals;
mod link;
mod agent;
mod archiver;
pub mod calibrate;
pub mod ask;
pub mod fresh;

pub use agent::Agent;
pub use archiver::{Archiver, folder_of};
pub use args::AgentArgs;
pub use event::Event;
pub use insights::from_sql::is_for_hub;
pub use link::Link;
pub use names::{
    HISTORY_NAME, HUB_FACTS_NAME, HUB_INSIGHTS_NAME, HUB_RULES_NAME, MIRROR_NAME, SEGMENT_NAME,
};
pub use root::root;
pub use settings::host_name;
pub use signals::Signals;
