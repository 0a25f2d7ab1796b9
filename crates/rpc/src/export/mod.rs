//! Exports of traces for other programs. All of them stream: their memory does not grow with the trace.
//!
//! | format | for | module |
//! |---|---|---|
//! | Zipkin v2 JSON | Zipkin, Jaeger, Tempo | [`zipkin`] |
//! | OTLP, JSON and protobuf | any OpenTelemetry collector | [`otlp`] |
//! | Chrome trace JSON | Perfetto, `chrome://tracing` | [`perfetto`] |
//! | folded stacks | flame graphs | [`folded`] |
//!
//! Read in this order: `span`, the common form; `zipkin`, the smallest format.

mod text;
mod span;
pub mod zipkin;
pub mod otlp;
pub mod perfetto;
pub mod folded;

pub use span::Exported;
