//! Tests of statements: case files with the expected results, and properties.

mod cases;
mod properties;

/// Sets the number of cases that a property tries. A failure prints its input and leaves no file behind.
fn cases(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
