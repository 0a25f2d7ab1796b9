//! The peers, each set up as its documentation says, with a sink that takes spans and drops them: so no peer pays for a
//! network, unless a collector is named. Ours writes its trace to a disk, which is a part of its cost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{Protocol, WithExportConfig};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter,
};

/// Spans that reached the sink of a peer.
pub(crate) static EXPORTED: AtomicU64 = AtomicU64::new(0);
/// Places in the queue of OpenTelemetry. Its default of 2048 drops spans in bursts of this benchmark.
const QUEUE: usize = 1 << 16;

#[derive(Debug)]
struct Sink;

impl SpanExporter for Sink {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        EXPORTED.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// OpenTelemetry with the batch processor and its own thread.
pub(crate) fn opentelemetry() -> SdkTracerProvider {
    provider(Sink)
}

/// OpenTelemetry with its own exporter to a collector: OTLP by HTTP, the default of the specification.
pub(crate) fn opentelemetry_to(collector: &str) -> SdkTracerProvider {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{collector}/v1/traces"))
        .build();
    provider(exporter.expect("an exporter"))
}

fn provider(exporter: impl SpanExporter + 'static) -> SdkTracerProvider {
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(512)
        .with_scheduled_delay(Duration::from_millis(100))
        .build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    SdkTracerProvider::builder().with_span_processor(processor).build()
}

struct FastSink;

impl fastrace::collector::Reporter for FastSink {
    fn report(&mut self, spans: Vec<fastrace::collector::SpanRecord>) {
        EXPORTED.fetch_add(spans.len() as u64, Ordering::Relaxed);
    }
}

/// fastrace with its own thread.
pub(crate) fn fastrace() {
    let config = fastrace::collector::Config::default().report_interval(Duration::from_millis(100));
    fastrace::set_reporter(FastSink, config);
}
