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
