//! A simulator of clients that choose among three replicas of each key, for comparing ways to choose. Everything follows
//! from one seed.

mod world;
mod policy;
mod run;

pub use run::{Outcome, Peer, simulate};
pub use world::{JUDGING, MS, Nanos, SCENARIOS, Scenario, Shape, TUNING};
