//! Ranking of nodes: candidates and a profile in, an ordered list with weights and reasons out.
//!
//! Read in this order: [`Profile`], [`Inputs`], `trust` for the checks of values, [`Scorer`] and its implementations,
//! [`Ranker`], then [`Chooser`] for clients that choose with a published ranking,
//! and [`replay`].
//!
//! # Invariants
//! - There is no clock, file or thread: times and seeds come in.
//! - The parts of a score sum to it exactly, in their order.
//! - A ranking with no recent value at all has the order of the caller, and says so.

mod limits;
mod profile;
mod inputs;
mod trust;
mod experience;
mod scorer;
mod weighted;
mod learned;
mod pareto;
mod outcome;
mod ranking;
mod history;
mod utility;
mod ranker;
mod choice;
pub mod replay;

pub use choice::{Chooser, Published, Report, Settings};
pub use experience::Experience;
pub use history::{FLAP_CHANGES, FLAP_WINDOW};
pub use inputs::{Inputs, MAX_PEERS, Reading};
pub use learned::{Learned, MAX_COEFFICIENT};
pub use limits::{
    MAX_CANDIDATES, MAX_COST, MAX_METRICS, MAX_OUTCOME_SECONDS, MIN_COST,
    VERSION as RECORDING_VERSION,
};
pub use outcome::Outcome;
pub use pareto::Pareto;
pub use profile::{Better, Combine, HOLD_AGES, Method, Metric, Profile, Stale, Subject};
pub use ranker::Ranker;
pub use ranking::{Basis, Confidence, Contribution, MAX_REASONS, Ranked, Ranking, State};
pub use scorer::{Parts, Scorer, View};
pub use trust::{Fault, MAX_SKEW};
pub use utility::{Collection, RELAXED_FACTOR, Utility};
pub use weighted::Weighted;
