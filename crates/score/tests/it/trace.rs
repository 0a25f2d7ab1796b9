//! Trace files: valid and invalid texts, and that a written trace reads back unchanged.

use std::time::Duration;

use proptest::prelude::*;
use skopos_score::trace::{Trace, TraceError};

const GOOD: &str = "# topic: n01/mem/free_bytes\n# unit: bytes\n# recorded: 2026-11-21\n\
                    time_seconds,value\n0,5\n1.5,-2.25e3\r\n1.5,7\n\n";

#[test]
fn a_trace_is_read_and_written() {
    let trace = Trace::parse(GOOD).expect("a trace");
    assert_eq!((trace.topic.as_str(), trace.unit.as_str()), ("n01/mem/free_bytes", "bytes"));
    assert_eq!(trace.notes, ["recorded: 2026-11-21"]);
    let millis = Duration::from_millis;
    assert_eq!(trace.samples, [(millis(0), 5.0), (millis(1500), -2250.0), (millis(1500), 7.0)]);
    let expected = "# topic: n01/mem/free_bytes\n# unit: bytes\n# recorded: 2026-11-21\n\
                    time_seconds,value\n0,5\n1.5,-2250\n1.5,7\n";
    assert_eq!(trace.to_string(), expected);
}

#[test]
fn an_invalid_trace_is_refused_with_its_line() {
    let head = |line, found: &str| TraceError::Head { line, found: found.to_owned() };
    let row = |line, found: &str| TraceError::Row { line, found: found.to_owned() };
    for (text, expected) in [
        ("", TraceError::NoHead),
        ("# topic: a/b\n", TraceError::NoHead),
        ("# unit: bytes\n0,1\n", head(2, "0,1")),
        ("time,value\n0,1\n", head(1, "time,value")),
        ("time_seconds,value\n0\n", row(2, "0")),
        ("time_seconds,value\n0,1\nx,1\n", row(3, "x,1")),
        ("time_seconds,value\n-1,1\n", row(2, "-1,1")),
        ("time_seconds,value\n1e300,1\n", row(2, "1e300,1")),
        ("time_seconds,value\n0,NaN\n", row(2, "0,NaN")),
        ("time_seconds,value\n0,inf\n", row(2, "0,inf")),
        ("time_seconds,value\n0,1,2\n", row(2, "0,1,2")),
        ("time_seconds,value\n2,1\n1,1\n", TraceError::Backwards { line: 3 }),
    ] {
        assert_eq!(Trace::parse(text), Err(expected), "{text:?}");
    }
}

proptest! {
    #[test]
    fn a_written_trace_reads_back(
        gaps in prop::collection::vec((0u64..10_000_000_000, any::<f64>()), 0..50),
        topic in "[a-z/]{0,20}",
        note in "[a-z]([a-z ,]{0,20}[a-z])?",
    ) {
        let mut time = Duration::ZERO;
        let samples = gaps.into_iter().filter(|(_, value)| value.is_finite()).map(|(gap, value)| {
            time += Duration::from_nanos(gap);
            (time, value)
        });
        let samples = samples.collect();
        let trace = Trace { topic, unit: "bytes".to_owned(), notes: vec![note], samples };
        prop_assert_eq!(Trace::parse(&trace.to_string()), Ok(trace));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
        let _ = Trace::parse(&format!("time_seconds,value\n{text}"));
    }
}
