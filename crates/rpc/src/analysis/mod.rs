//! Analyses of traces. Pure: files come in through a [`loader::Loader`], clock and random numbers through arguments.
//!
//! A verb opens a trace once and asks it; every answer is a structure that serialises, and the verb formats it:
//!
//! ```
//! use skopos_rpc::analysis::{comparison, critical, finding, profile, request, system, trace::Trace};
//! # let service = skopos_rpc::synthetic::Service { requests: 300, ..Default::default() };
//! # let loader = service.trace();
//! // let loader = skopos_rpc::folder::Folder::open(path)?;      // a folder, or one file
//! let trace = Trace::open(&loader)?;                                  // names, counts, clocks
//! for (text, count) in trace.counts().defects() {
//!     println!("{count} {text}");                                     // always printed: nothing is lost in silence
//! }
//! let profile = profile::profile(&trace)?;                            // dominant callpaths
//! let slowest = request::list::requests(&trace, &Default::default())?;
//! let request = request::show::show(&trace, &slowest.requests[0].id)?;
//! for line in request::waterfall::waterfall(&request, 80) {
//!     println!("{} {}", line.name, line.bar);
//! }
//! let path = critical::critical_path_of(&trace, &slowest.requests[0].id, 0.25)?;
//! let paths = critical::critical_paths(&trace, &Default::default())?; // over all requests, with predictions
//! let system = system::system(&trace, 60)?;                           // processes over time
//! let findings = finding::judge(&trace, &Default::default())?;        // ranked, with evidence and fixes
//! let change = comparison::compare(&trace, &trace)?;
//! let gate = comparison::gate(&change, &Default::default());
//! assert!(gate.passes);
//! # assert!(profile.paths.len() == 3 && !path.steps.is_empty() && !paths.paths.is_empty());
//! # assert!(!system.processes.is_empty() && !findings.findings.is_empty());
//! # Ok::<(), skopos_rpc::Error>(())
//! ```
//!
//! `skopos trace export` calls [`crate::export`], `skopos trace import` [`crate::import::margo::parse`].
//!
//! # Invariants
//! - A trace of any length is analysed in bounded memory: [`profile`], [`system`] and exports stream; requests are held as
//!   72 bytes a side, at most [`request::calls::MAX_HELD`] at once, in as many passes as that needs.
//! - Damage is counted in [`counts::Counts`], never an error of the whole trace.
//! - Times of different processes are compared on one clock, whose bound is reported ([`clocks`]).
//! - An interval that no host reported is unknown, with its reason.
//!
//! Read in this order: `histogram`, `loader`, `names`, `stream`, `clocks`, `trace`; then `profile`, the smallest analysis.

pub mod histogram;
pub mod loader;
pub mod names;
pub mod process;
pub mod counts;
pub mod stream;
pub mod clocks;
pub mod blocks;
pub mod trace;
pub mod profile;
pub mod request;
pub mod critical;
pub mod system;
pub mod finding;
pub mod comparison;
