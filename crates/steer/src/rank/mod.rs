//! Ranking of nodes.
mod limits;
mod choice;
pub use choice::{Chooser, Published, Report, Settings};
pub use limits::*;
