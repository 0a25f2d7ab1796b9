//! OTLP, the protocol of OpenTelemetry: as lines of JSON for a file, and as protobuf for an HTTP collector.
//!
//! OpenTelemetry has no shared spans: the caller's side keeps the id of the call, and the callee's side gets one that is
//! computed from it. A call that a handler makes has the callee's side as its parent.
//!
//! A batch is a whole `ExportTraceServiceRequest`: a line of JSON, or the body of a `POST /v1/traces`.

mod json;
mod proto;

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use super::span::{Exported, Exporting, Format, Pass};
use crate::analysis::clocks::mix;
use crate::analysis::stream::{Reader, Side, Visit};
use crate::analysis::trace::Trace;
use crate::error::Error;
use crate::record::Kind;

/// Spans of a batch: half a megabyte of JSON, far below the 4 MiB that collectors take.
const BATCH_SPANS: usize = 1000;

/// The most local steps whose ids are kept, to tell them from calls: 300 MB. A trace with more shows the children of the
/// rest beside their parents.
const MAX_LOCALS: usize = 8 << 20;

/// The encoding of batches.
trait Encoding {
    fn span(&mut self, span: &Exporting<'_>, ids: Ids);
    /// Ends a batch and returns it, ready for the wire.
    fn batch(&mut self) -> Vec<u8>;
}

/// The ids of an exported span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ids {
    span: u64,
    parent: u64,
}

/// The id of the callee's side of a call; never 0.
fn served(span: u64) -> u64 {
    mix(span ^ 0x5345_5256_4544_2121).max(1)
}

struct Otlp<'o, E: Encoding> {
    encoding: E,
    locals: HashSet<u64>,
    spans: usize,
    process: Option<u32>,
    emit: &'o mut dyn FnMut(Vec<u8>) -> io::Result<()>,
    failure: Option<io::Error>,
    bytes: u64,
}

impl<E: Encoding> Otlp<'_, E> {
    fn end_batch(&mut self) {
        if std::mem::take(&mut self.spans) == 0 {
            return;
        }
        let batch = self.encoding.batch();
        self.bytes += batch.len() as u64;
        if self.failure.is_none() {
            self.failure = (self.emit)(batch).err();
        }
    }
}

impl<E: Encoding> Format for Otlp<'_, E> {
    fn span(&mut self, span: &Exporting<'_>, _: &mut Vec<u8>) {
        // The resource of a batch is one process.
        if self.process != Some(span.side.process) || self.spans >= BATCH_SPANS {
            self.end_batch();
            self.process = Some(span.side.process);
        }
        let parent = span.side.parent;
        let ids = match (span.is_target(), parent) {
            (true, _) => Ids { span: served(span.side.span), parent: span.side.span },
            (false, 0) => Ids { span: span.side.span, parent: 0 },
            (false, _) if self.locals.contains(&parent) => Ids { span: span.side.span, parent },
            (false, _) => Ids { span: span.side.span, parent: served(parent) },
        };
        self.encoding.span(span, ids);
        self.spans += 1;
    }
}

#[derive(Default)]
struct Locals(HashSet<u64>);

impl Visit for Locals {
    fn side(&mut self, side: &Side, _: &Reader) {
        if side.kind == Kind::Local && self.0.len() < MAX_LOCALS {
            self.0.insert(side.span);
        }
    }
}

fn export<E: Encoding>(
    trace: &Trace<'_>,
    encoding: E,
    emit: &mut dyn FnMut(Vec<u8>) -> io::Result<()>,
) -> Result<Exported, Error> {
    let mut locals = Locals::default();
    if trace.counts().locals > 0 {
        trace.stream(&mut locals)?;
    }
    let mut otlp =
        Otlp { encoding, locals: locals.0, spans: 0, process: None, emit, failure: None, bytes: 0 };
    let spans = Pass::run(trace, &mut otlp, &mut io::sink(), [b"", b""])?.spans;
    otlp.end_batch();
    match otlp.failure {
        Some(source) => Err(Error::io(Path::new("the export"), "cannot write")(source)),
        None => Ok(Exported { spans, bytes: otlp.bytes }),
    }
}

/// Writes a trace as OTLP JSON, a line for each batch.
///
/// # Errors
/// A trace file cannot be read any more, or `sink` takes no more bytes.
pub fn otlp_json(trace: &Trace<'_>, sink: &mut dyn Write) -> Result<Exported, Error> {
    export(trace, json::Json::default(), &mut |batch| sink.write_all(&batch))
}

/// Hands a trace over as OTLP protobuf: each batch is the body of a `POST /v1/traces` with the content type
/// `application/x-protobuf`. `send` may fail, which ends the export.
///
/// # Errors
/// A trace file cannot be read any more, or `send` failed.
pub fn otlp_protobuf(
    trace: &Trace<'_>,
    mut send: impl FnMut(Vec<u8>) -> io::Result<()>,
) -> Result<Exported, Error> {
    export(trace, proto::Proto::default(), &mut send)
}
