//! Integration tests, one binary.

mod table;
mod scorers;
mod ranking;
mod bad_input;
mod history;
mod learning;
mod utility;
mod choice;
mod replay;
mod rule;
mod place;
mod place_policies;
mod tiers;
mod tiers_faults;
mod tiers_crash;
