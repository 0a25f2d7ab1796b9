//! The hub of a site: one live view of what all nodes publish, asked in SQL.
//!
//! Read in this order: [`Hub`] puts the parts together, and [`Backend`] holds what its listeners share.
//! `source` is the input of the query engine: [`Local`], the segments of this machine, and a mirror of each
//! other node. `past` asks nodes for samples that only they have; [`read`] has nodes measure values that are
//! too old; [`ranks`] puts the ranks of agents together. [`Standing`] is a statement that the hub answers again when its
//! inputs change; [`Pulse`] wakes it. `insights` computes insights that need a query engine or several nodes; `rules` acts
//! when a statement has rows, and [`rule_trial`] tries that on recorded samples; [`estimates`] sizes the next task of a
//! class; `remote_write` sends latest values to a Prometheus store. [`jobs`] stores and finds the jobs of the site, and
//! `bucket` is a disk in an object store for them. [`counts`] counts requests, and `facts` publishes the counts. [`client`] asks
//! a hub through its UNIX socket with the [`messages`] that both sides share. The listeners themselves are in
//! `skopos-serve`.

#![forbid(unsafe_code)]
// They panic when the reader is gone; `skopos_term` has replacements that do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(test)]
#[path = "../../sense/tests/it/ports.rs"]
mod ports;
pub mod config;
pub mod counts;
mod insight_infos;
mod reasons;
mod local;
mod pulse;
mod turns;
mod standing;
pub mod pieces;
mod source;
pub mod ranks;
pub mod tables;
mod past;
pub mod topics;
mod measuring;
mod bucket;
pub mod jobs;
pub mod pki;
pub mod catalogue;
mod backend;
pub mod read;
mod insights;
mod rules;
pub mod rule_trial;
pub mod estimates;
pub mod prometheus;
mod remote_write;
mod facts;
mod hub;
pub mod messages;
pub mod client;

pub use backend::Backend;
pub use bucket::{BucketConfig, BucketError};
pub use hub::Hub;
pub use local::Local;
pub use measuring::Measuring;
pub use pki::Pki;
pub use pulse::{Pulse, any_changed};
pub use rules::RulesPlace;
pub use source::HubSource;
pub use standing::{Change, MAX_ROWS, Question, Standing, Standings};
pub use turns::{Turn, Turns};
