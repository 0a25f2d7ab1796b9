//! Zipkin v2 JSON: an array of spans, as `POST /api/v2/spans` takes it.
//!
//! Both sides of a call have one id; that of the target is `shared`. Zipkin has microseconds only: exact nanoseconds are in
//! the tags `start_ns` and `duration_ns`. Intervals and variables are tags with their unit at the end of the name.

use std::io::Write;

use super::span::{Exported, Exporting, Format, Pass};
use super::text::{hex, number, string};
use crate::analysis::trace::Trace;
use crate::error::Error;

struct Zipkin {
    is_first: bool,
}

/// Writes a trace as Zipkin v2 JSON.
///
/// # Errors
/// A trace file cannot be read any more, or `sink` takes no more bytes.
pub fn zipkin(trace: &Trace<'_>, sink: &mut dyn Write) -> Result<Exported, Error> {
    Pass::run(trace, &mut Zipkin { is_first: true }, sink, [b"[", b"\n]\n"])
}

impl Format for Zipkin {
    fn span(&mut self, span: &Exporting<'_>, out: &mut Vec<u8>) {
        let side = span.side;
        out.extend_from_slice(if self.is_first { b"\n" } else { b",\n" });
        self.is_first = false;
        out.extend_from_slice(b"{\"traceId\":\"");
        if span.trace_high != 0 {
            hex(out, span.trace_high);
        }
        hex(out, side.request);
        out.extend_from_slice(b"\",\"id\":\"");
        hex(out, side.span);
        if side.parent != 0 {
            out.extend_from_slice(b"\",\"parentId\":\"");
            hex(out, side.parent);
        }
        out.extend_from_slice(match (span.is_target(), span.is_local()) {
            (true, _) => b"\",\"kind\":\"SERVER\",\"shared\":true,\"name\":",
            (_, true) => b"\",\"name\":",
            _ => b"\",\"kind\":\"CLIENT\",\"name\":",
        });
        string(out, span.name);
        out.extend_from_slice(b",\"timestamp\":");
        number(out, (span.start / 1000).max(1));
        // Zipkin drops a duration of 0.
        out.extend_from_slice(b",\"duration\":");
        number(out, (side.duration.saturating_add(500) / 1000).max(1));
        out.extend_from_slice(b",\"localEndpoint\":{\"serviceName\":");
        string(out, span.service);
        if let Some(peer) = span.peer {
            out.extend_from_slice(b"},\"remoteEndpoint\":{\"serviceName\":");
            string(out, peer);
        }
        out.extend_from_slice(b"},\"tags\":{\"start_ns\":\"");
        number(out, span.start);
        out.extend_from_slice(b"\",\"duration_ns\":\"");
        number(out, side.duration);
        out.extend_from_slice(b"\",\"process\":");
        string(out, span.process);
        if let Some(failure) = span.failure() {
            out.extend_from_slice(b",\"error\":");
            string(out, failure);
        }
        for (name, unit, value) in span.values() {
            tag(out, name, unit, value);
        }
        out.extend_from_slice(b"}}");
    }
}

fn tag(out: &mut Vec<u8>, name: &str, unit: &str, value: u64) {
    out.push(b',');
    match unit.is_empty() || name.ends_with(unit) {
        true => string(out, name),
        false => string(out, &format!("{name}_{unit}")),
    }
    out.extend_from_slice(b":\"");
    number(out, value);
    out.push(b'"');
}
