//! SQL goes in, numbers come out: as case files with the results beside them, and as properties.

mod cases;
mod properties;

/// How many cases a property tries. Failures are printed with what it takes to repeat them, and
/// leave no file behind.
fn cases(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
