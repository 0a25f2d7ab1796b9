//! The common form of exported spans, and the pass over a trace that makes them.

use std::io::{self, Write};
use std::path::Path;

use crate::analysis::process::label;
use crate::analysis::stream::{ProcessSample, Reader, Side, Visit};
use crate::analysis::trace::Trace;
use crate::error::Error;
use crate::interval::Interval;
use crate::record::{Kind, Status};

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// The amount that was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Exported {
    /// Number of spans: one for each side of a call and each local step.
    pub spans: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// One side of a call, on the common clock.
pub(super) struct Exporting<'s> {
    pub(super) side: &'s Side,
    /// Upper half of the trace's id; 0 if not all records have it.
    pub(super) trace_high: u64,
    pub(super) name: &'s str,
    /// Name of the service, and the process.
    pub(super) service: &'s str,
    pub(super) process: &'s str,
    pub(super) peer: Option<&'s str>,
    /// Begin in ns since 1970; a time before is 0.
    pub(super) start: u64,
    pub(super) reader: &'s Reader,
}

impl Exporting<'_> {
    /// The status, if the call did not end well.
    pub(super) fn failure(&self) -> Option<&'static str> {
        (self.side.status != Status::Ok).then(|| self.side.status.name())
    }

    /// The intervals and variables: name, unit, value.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        let intervals = Interval::ALL
            .into_iter()
            .filter_map(|interval| Some((interval.name(), "ns", self.side.interval(interval)?)));
        let variables = self.side.values().iter().filter_map(|(pvar, value)| {
            let pvar = self.reader.pvars.get(*pvar as usize)?;
            Some((pvar.name.as_str(), pvar.unit.as_str(), *value))
        });
        intervals.chain(variables)
    }

    pub(super) fn end(&self) -> u64 {
        self.start.saturating_add(self.side.duration)
    }

    pub(super) fn is_target(&self) -> bool {
        self.side.kind == Kind::Target
    }

    pub(super) fn is_local(&self) -> bool {
        self.side.kind == Kind::Local
    }
}

/// A format of spans.
pub(super) trait Format {
    /// Appends one span.
    fn span(&mut self, span: &Exporting<'_>, out: &mut Vec<u8>);

    /// Appends one sample of a process; most formats have none.
    fn sample(&mut self, _: &ProcessSample, _time: u64, _: &Reader, _out: &mut Vec<u8>) {}
}

/// Sends all spans of a trace through a format.
pub(super) struct Pass<'p, F: Format> {
    trace: &'p Trace<'p>,
    format: &'p mut F,
    sink: &'p mut dyn Write,
    out: Vec<u8>,
    labels: Vec<String>,
    exported: Exported,
    failure: Option<io::Error>,
}

impl<'p, F: Format> Pass<'p, F> {
    pub(super) fn run(
        trace: &'p Trace<'p>,
        format: &'p mut F,
        sink: &'p mut dyn Write,
        frame: [&[u8]; 2],
    ) -> Result<Exported, Error> {
        let labels = trace.reader.processes.iter().map(label).collect();
        let (out, exported) = (frame[0].to_vec(), Exported::default());
        let mut pass = Self { trace, format, sink, out, labels, exported, failure: None };
        trace.stream(&mut pass)?;
        pass.out.extend_from_slice(frame[1]);
        pass.flush();
        match pass.failure {
            Some(source) => Err(Error::io(Path::new("the export"), "cannot write")(source)),
            None => Ok(pass.exported),
        }
    }

    fn flush(&mut self) {
        self.exported.bytes += self.out.len() as u64;
        if self.failure.is_none() {
            self.failure = self.sink.write_all(&self.out).err();
        }
        self.out.clear();
    }
}

impl<F: Format> Visit for Pass<'_, F> {
    fn side(&mut self, side: &Side, reader: &Reader) {
        // The rest of the trace is passed over once its reader has gone.
        if self.failure.is_some() {
            return;
        }
        let process = side.process as usize;
        let time = self.trace.clocks.correct(side.process, side.start);
        let span = Exporting {
            side,
            trace_high: if self.trace.has_whole_ids { side.request_high } else { 0 },
            name: &reader.callpaths.get(side.path).name,
            service: reader.processes.get(process).map_or("", |process| &process.name),
            process: self.labels.get(process).map_or("", String::as_str),
            peer: side.peer.and_then(|peer| reader.peers.get(peer as usize)).map(String::as_str),
            start: u64::try_from(time).unwrap_or(0),
            reader,
        };
        self.format.span(&span, &mut self.out);
        self.exported.spans += 1;
        if self.out.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    fn sample(&mut self, sample: &ProcessSample, reader: &Reader) {
        if self.failure.is_none() {
            let time = self.trace.clocks.correct(sample.process, sample.time);
            let time = u64::try_from(time).unwrap_or(0);
            self.format.sample(sample, time, reader, &mut self.out);
        }
    }
}
