//! Chrome trace JSON, which Perfetto opens: a track for each call, grouped by process, and counters of the processes.

use std::io::Write;

use super::span::{Exported, Exporting, Format, Pass};
use super::text::{hex, microseconds, number, string};
use crate::analysis::process::label;
use crate::analysis::stream::{ProcessSample, Reader};
use crate::analysis::trace::Trace;
use crate::error::Error;

struct Perfetto;

/// Writes a trace as Chrome trace JSON.
///
/// # Errors
/// A trace file cannot be read any more, or `sink` takes no more bytes.
pub fn perfetto(trace: &Trace<'_>, sink: &mut dyn Write) -> Result<Exported, Error> {
    let mut head = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[".to_vec();
    for (number_of_process, process) in (1_u64..).zip(&trace.reader.processes) {
        head.extend_from_slice(b"\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":");
        number(&mut head, number_of_process);
        head.extend_from_slice(b",\"args\":{\"name\":");
        string(&mut head, &label(process));
        head.extend_from_slice(b"}},");
    }
    // There is a process, so there is a comma; the next event follows it.
    head.pop();
    Pass::run(trace, &mut Perfetto, sink, [&head, b"\n]}\n"])
}

/// The front of an event of an asynchronous slice.
fn event(out: &mut Vec<u8>, phase: u8, span: &Exporting<'_>, time: u64) {
    out.extend_from_slice(b",\n{\"ph\":\"");
    out.push(phase);
    out.extend_from_slice(match (span.is_target(), span.is_local()) {
        (true, _) => b"\",\"cat\":\"target\",\"id\":\"0x",
        (_, true) => b"\",\"cat\":\"local\",\"id\":\"0x",
        _ => b"\",\"cat\":\"origin\",\"id\":\"0x",
    });
    hex(out, span.side.span);
    out.extend_from_slice(b"\",\"pid\":");
    number(out, u64::from(span.side.process) + 1);
    out.extend_from_slice(b",\"tid\":");
    number(out, u64::from(span.side.thread) + 1);
    out.extend_from_slice(b",\"ts\":");
    microseconds(out, time);
    out.extend_from_slice(b",\"name\":");
    string(out, span.name);
}

impl Format for Perfetto {
    fn span(&mut self, span: &Exporting<'_>, out: &mut Vec<u8>) {
        event(out, b'b', span, span.start);
        out.extend_from_slice(b",\"args\":{\"request\":\"");
        hex(out, span.side.request);
        out.push(b'"');
        if let Some(failure) = span.failure() {
            out.extend_from_slice(b",\"error\":");
            string(out, failure);
        }
        for (name, _, value) in span.values() {
            out.push(b',');
            string(out, name);
            out.push(b':');
            number(out, value);
        }
        out.extend_from_slice(b"}}");
        event(out, b'e', span, span.end());
        out.push(b'}');
    }

    fn sample(&mut self, sample: &ProcessSample, time: u64, reader: &Reader, out: &mut Vec<u8>) {
        for (pvar, value) in &sample.values {
            let Some(pvar) = reader.pvars.get(*pvar as usize) else { continue };
            out.extend_from_slice(b",\n{\"ph\":\"C\",\"pid\":");
            number(out, u64::from(sample.process) + 1);
            out.extend_from_slice(b",\"ts\":");
            microseconds(out, time);
            out.extend_from_slice(b",\"name\":");
            string(out, &pvar.name);
            out.extend_from_slice(b",\"args\":{\"value\":");
            number(out, *value);
            out.extend_from_slice(b"}}");
        }
    }
}
