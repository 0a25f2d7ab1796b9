//! Policies that decide the time until the next poll, from the results of past polls.
//!
//! A [`Policy`] is called once after each poll of its sensor. It gets the result of the poll as one
//! number, the change in units of the tolerance ([`Finding::change`]); for a sensor with many
//! facts, a [`Surprise`] computes that number. `docs/internals/intervals.md` compares the policies, with
//! plots.
//!
//! # Invariants
//! - The interval always lies within the [`Bounds`].
//! - A constant metric is polled ever less, down to the longest interval.
//! - There is no clock and no randomness: the same findings give the same intervals. A policy
//!   allocates nothing once it is built.
//!
//! Read in this order: `policy`, `config`; then the policies `fixed`, `aimd`, `aimd_window` and
//! `hazard`, which is our own; `surprise` for their input; `replay` and `hacc` for their
//! evaluation.
//!
//! ```
//! use std::time::Duration;
//! use skopos_score::interval::{Finding, PolicyConfig, PolicyKind};
//!
//! let mut policy = PolicyConfig::new(PolicyKind::Aimd).build()?;
//! let same = Finding { at: Duration::ZERO, change: 0.0, value: None };
//! assert_eq!(policy.next(&same), Duration::from_secs(2));
//! # Ok::<(), skopos_score::interval::PolicyError>(())
//! ```

mod policy;
mod config;
mod fixed;
mod aimd;
mod aimd_window;
mod hazard;
mod surprise;
mod replay;
pub mod hacc;

pub use aimd::Aimd;
pub use aimd_window::{AimdWindow, MAX_WINDOW};
pub use config::{PolicyConfig, PolicyError, PolicyKind};
pub use fixed::Fixed;
pub use hazard::Hazard;
pub use policy::{Bounds, Finding, Policy};
pub use replay::{Belief, LastValue, Replayed, Truth, replay};
pub use surprise::{MAX_CHANGE, Surprise, least_deviation};
