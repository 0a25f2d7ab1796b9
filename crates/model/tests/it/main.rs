//! Tests of the nouns: for any text or byte, a parser returns a valid value or an error.

mod pattern;
mod schema;
mod segment;
mod structured;
mod time;
mod topic;
mod unit;
mod value;

/// Sets the number of cases that a property tries. A failure prints its input and leaves no file behind.
fn cases(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
