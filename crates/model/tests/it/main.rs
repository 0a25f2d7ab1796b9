//! The nouns: any text or byte goes in, and only valid ones come out.

mod pattern;
mod schema;
mod segment;
mod structured;
mod time;
mod topic;
mod unit;
mod value;

/// How many cases a property tries. Failures are printed with what it takes to repeat them, and
/// leave no file behind.
fn cases(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
