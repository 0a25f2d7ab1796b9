//! OTLP as JSON: ids are hexadecimal, 64-bit numbers are strings.

use super::{Encoding, Ids};
use crate::export::span::Exporting;
use crate::export::text::{hex, number, string};

/// Encodes batches as lines of JSON.
#[derive(Default)]
pub(super) struct Json {
    out: Vec<u8>,
}

fn text(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(b"{\"key\":");
    string(out, key);
    out.extend_from_slice(b",\"value\":{\"stringValue\":");
    string(out, value);
    out.extend_from_slice(b"}}");
}

impl Encoding for Json {
    fn span(&mut self, span: &Exporting<'_>, ids: Ids) {
        let out = &mut self.out;
        if out.is_empty() {
            out.extend_from_slice(b"{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
            text(out, "service.name", span.service);
            out.push(b',');
            text(out, "service.instance.id", span.process);
            out.extend_from_slice(
                b"]},\"scopeSpans\":[{\"scope\":{\"name\":\"skopos\"},\"spans\":[",
            );
        } else {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"traceId\":\"");
        hex(out, span.trace_high);
        hex(out, span.side.request);
        out.extend_from_slice(b"\",\"spanId\":\"");
        hex(out, ids.span);
        if ids.parent != 0 {
            out.extend_from_slice(b"\",\"parentSpanId\":\"");
            hex(out, ids.parent);
        }
        out.extend_from_slice(b"\",\"name\":");
        string(out, span.name);
        out.extend_from_slice(match (span.is_target(), span.is_local()) {
            (true, _) => b",\"kind\":2,\"startTimeUnixNano\":\"",
            (_, true) => b",\"kind\":1,\"startTimeUnixNano\":\"",
            _ => b",\"kind\":3,\"startTimeUnixNano\":\"",
        });
        number(out, span.start);
        out.extend_from_slice(b"\",\"endTimeUnixNano\":\"");
        number(out, span.end());
        out.extend_from_slice(b"\",\"attributes\":[");
        if let Some(peer) = span.peer {
            text(out, "peer.service", peer);
            out.push(b',');
        }
        for (name, _, value) in span.values() {
            out.extend_from_slice(b"{\"key\":");
            string(out, name);
            out.extend_from_slice(b",\"value\":{\"intValue\":\"");
            number(out, value);
            out.extend_from_slice(b"\"}},");
        }
        if out.last() == Some(&b',') {
            out.pop();
        }
        out.extend_from_slice(b"],\"status\":{");
        if let Some(failure) = span.failure() {
            out.extend_from_slice(b"\"code\":2,\"message\":");
            string(out, failure);
        }
        out.extend_from_slice(b"}}");
    }

    fn batch(&mut self) -> Vec<u8> {
        self.out.extend_from_slice(b"]}]}]}\n");
        std::mem::take(&mut self.out)
    }
}
