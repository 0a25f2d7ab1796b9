//! The store: a report or a sample that goes in comes out once, and estimates are what they claim.

mod archive;
mod catalogue;
mod estimate;
mod history;
mod replay;
#[path = "../../src/rounds.rs"]
mod rounds;
mod segment;
mod stats;
