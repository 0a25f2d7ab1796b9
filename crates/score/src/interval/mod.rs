//! How long to wait until the next poll: policies that learn it from what polls found.
//!
//! A [`Policy`] is asked once after each poll of its sensor. What the poll found comes as one
//! number, the change in units of what matters ([`Finding::change`]); a sensor of many facts gets
//! it from a [`Surprise`]. `docs/internals/intervals.md` has the policies side by side, with plots.
//!
//! # Invariants
//! - The interval always lies within the [`Bounds`].
//! - A metric that stays constant is polled less and less, to the longest interval.
//! - No clock, no randomness: the same findings give the same intervals. Nothing is allocated once
//!   a policy is built.
//!
//! Read in this order: `policy`, `config`; `fixed`, `aimd`, `aimd_window` and `hazard`, which is ours, for the
//! policies; `surprise` for what they are told; `replay` and `hacc` for what they are judged by.
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
pub use surprise::{MAX_CHANGE, Surprise, least};
