//! The rounds of tests that are repeated with other seeds. Tests of other crates share this file.

use std::time::{Duration, Instant};

/// Returns the numbers of rounds, from 0 on: as many as the variable `count` of the environment says, else `usual`. With the
/// variable `SKOPOS_SOAK_SECONDS` further rounds follow the usual ones until that time is over.
pub(crate) fn rounds(count: &str, usual: u64) -> impl Iterator<Item = u64> + use<> {
    rounds_in(count, usual, 1)
}

/// The same for rounds of which each takes as long as `part` others.
#[allow(dead_code, reason = "some of the tests that share this file have no such rounds")]
pub(crate) fn rounds_in(count: &str, usual: u64, part: u64) -> impl Iterator<Item = u64> + use<> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("SKOPOS_SOAK_SECONDS");
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let least = number(count).filter(|_| until.is_none()).unwrap_or(usual) / part;
    (0..).take_while(move |round| {
        *round < least || until.is_some_and(|until| Instant::now() < until)
    })
}
