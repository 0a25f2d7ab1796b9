//! OTLP as protobuf, by the numbers of `opentelemetry/proto/trace/v1/trace.proto`.

use super::{Encoding, Ids};
use crate::export::span::Exporting;

/// Encodes batches as `ExportTraceServiceRequest`.
#[derive(Default)]
pub(super) struct Proto {
    resource: Vec<u8>,
    spans: Vec<u8>,
    span: Vec<u8>,
    value: Vec<u8>,
}

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn fixed64(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3 | FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3 | VARINT);
    varint(out, value);
}

/// Appends a `KeyValue`; `any` is the content of its `AnyValue`.
fn key_value(out: &mut Vec<u8>, field: u64, key: &str, any: &[u8]) {
    let mut pair = Vec::with_capacity(key.len() + any.len() + 8);
    bytes(&mut pair, 1, key.as_bytes());
    bytes(&mut pair, 2, any);
    bytes(out, field, &pair);
}

fn text(out: &mut Vec<u8>, field: u64, key: &str, value: &str) {
    let mut any = Vec::with_capacity(value.len() + 8);
    bytes(&mut any, 1, value.as_bytes());
    key_value(out, field, key, &any);
}

impl Encoding for Proto {
    fn span(&mut self, span: &Exporting<'_>, ids: Ids) {
        if self.resource.is_empty() {
            text(&mut self.resource, 1, "service.name", span.service);
            text(&mut self.resource, 1, "service.instance.id", span.process);
        }
        let out = &mut self.span;
        out.clear();
        let trace = [span.trace_high.to_be_bytes(), span.side.request.to_be_bytes()];
        bytes(out, 1, trace.as_flattened());
        bytes(out, 2, &ids.span.to_be_bytes());
        if ids.parent != 0 {
            bytes(out, 4, &ids.parent.to_be_bytes());
        }
        bytes(out, 5, span.name.as_bytes());
        let kind = match (span.is_target(), span.is_local()) {
            (true, _) => 2,
            (_, true) => 1,
            _ => 3,
        };
        number(out, 6, kind);
        fixed64(out, 7, span.start);
        fixed64(out, 8, span.end());
        if let Some(peer) = span.peer {
            text(out, 9, "peer.service", peer);
        }
        for (name, _, value) in span.values() {
            self.value.clear();
            number(&mut self.value, 3, value);
            key_value(out, 9, name, &self.value);
        }
        if let Some(failure) = span.failure() {
            let mut status = Vec::new();
            bytes(&mut status, 2, failure.as_bytes());
            number(&mut status, 3, 2);
            bytes(out, 15, &status);
        }
        bytes(&mut self.spans, 2, &self.span);
    }

    fn batch(&mut self) -> Vec<u8> {
        let mut scope = Vec::new();
        bytes(&mut scope, 1, b"skopos");
        let mut scope_spans = Vec::with_capacity(self.spans.len() + 16);
        bytes(&mut scope_spans, 1, &scope);
        scope_spans.append(&mut self.spans);
        let mut resource_spans = Vec::with_capacity(scope_spans.len() + self.resource.len() + 16);
        bytes(&mut resource_spans, 1, &std::mem::take(&mut self.resource));
        bytes(&mut resource_spans, 2, &scope_spans);
        let mut request = Vec::with_capacity(resource_spans.len() + 8);
        bytes(&mut request, 1, &resource_spans);
        request
    }
}
