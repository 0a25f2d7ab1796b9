//! The agent of a node: the role that watches a machine.
//!
//! Read in this order: [`args`] holds what a user may type and [`config`] what a file may say, `settings`
//! joins the two. [`agent`](Agent) is the loop: one thread that sleeps in `poll(2)` until a sensor is due, a
//! request arrives or a signal ends it. `clock` reads the time; `probe` is a sensor with its facts, `sink`
//! puts what it yields into the segment; `polled` decides when it is polled, `overhead` keeps all sensors
//! within a budget, `lanes` polls the sensors that may hang; `insights` computes from what they yield.
//! `self_facts` publishes what the agent itself does, `user_facts` what scripts hand in, `foreign` reads
//! what other processes publish, `server` answers the requests of [`control`], `signals` turns signals
//! into a readable descriptor. [`Archiver`] keeps on disk what is published, [`calibrate`] measures what a
//! device is able to do, [`ask`] and [`fresh`] are for clients of the control socket.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod config;
mod names;
mod root;
mod settings;
mod clock;
mod probe;
mod sink;
mod polled;
mod overhead;
mod lanes;
mod insights;
mod self_facts;
mod user_facts;
mod foreign;
pub mod control;
mod server;
mod signals;
mod link;
mod agent;
mod archiver;
pub mod calibrate;
pub mod ask;
pub mod fresh;

pub use agent::{Agent, Event, MIN_REFRESH};
pub use archiver::{Archiver, folder_of};
pub use args::AgentArgs;
pub use insights::from_sql::is_for_hub;
pub use link::Link;
pub use names::{HISTORY_NAME, HUB_FACTS_NAME, HUB_INSIGHTS_NAME, MIRROR_NAME, SEGMENT_NAME};
pub use root::root;
pub use settings::host_name;
pub use signals::Signals;
