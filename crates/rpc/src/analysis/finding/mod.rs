//! Findings: reasons why a service is slow, each a rule in a file of its own, with a change of the configuration and its
//! predicted gain.
//!
//! A rule reads a [`View`]: sums of callpaths, variables, calls with both sides, the configuration of each process, facts of
//! nodes. It returns a [`Verdict`]: the finding with the numbers on which it stands, the absence of the condition, or the
//! reason why the trace cannot be judged. A host that reports little gets fewer verdicts, never guesses.
//!
//! # Invariants
//! - The rules are pure and read nothing but the view.
//! - Each number of a finding is finite.
//! - The thresholds are named constants, and each says its reason.
//! - A gain is a share of the end-to-end time of all root calls, so that findings can be compared.
//!
//! Read in this order: `verdict`, `facts`, `view`, `rule`, `eager_overflow`, the smallest rule; `replay`, the simulation.

mod verdict;
mod facts;
mod numbers;
mod view;
mod rule;
mod replay;
mod handlers;
mod execution_streams;
mod databases;
mod starved_progress;
mod unaccounted;
mod eager_overflow;
mod imbalance;
mod slow_node;
mod large_messages;
mod long_handlers;
mod serialized_handlers;
mod slow_children;
mod table;

pub use facts::{NodeFact, NodeFacts};
pub use rule::Rule;
pub use table::{Findings, RULES, judge};
pub use verdict::{Evidence, Fix, Found, Judged, Verdict};
pub use view::View;
