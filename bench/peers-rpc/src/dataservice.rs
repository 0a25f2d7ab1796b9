//! OpenTelemetry as the recorder of the data service: a span for each side of a call, which its own exporter sends to a
//! collector.
//!
//! The context travels in binary: 16 bytes of trace id, 8 of span id, and one of flags. With values, intervals and
//! performance variables are attributes under the names that Skopos gives them.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
    TraceId, TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use skopos_dataservice::rpcs::Rpc;
use skopos_dataservice::tracer::{Setup, TracedSide, Tracer};
use skopos_dataservice::{Error, Result};
use skopos_rpc::Interval;

use crate::peers;

/// Starts the recorder of a process of the service.
pub(crate) fn start(setup: &Setup<'_>) -> Result<Arc<dyn Tracer>> {
    let provider = peers::opentelemetry_to(setup.collector);
    let tracer = provider.tracer("skopos-dataservice");
    Ok(Arc::new(OpenTelemetry { provider, tracer, has_values: setup.has_values }))
}

#[derive(Debug)]
struct OpenTelemetry {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    has_values: bool,
}

/// Moments of the target's side, of which its intervals follow.
#[derive(Debug)]
struct Moments {
    arrived: Instant,
    begun: Option<Instant>,
    responded: Option<Instant>,
    /// Time of calls to others, ns.
    excluded: u64,
}

#[derive(Debug)]
struct Side {
    span: Span,
    /// `None` of an origin, and without values.
    moments: Option<Moments>,
}

impl OpenTelemetry {
    fn side(&self, kind: SpanKind, rpc: Rpc, parent: Option<SpanContext>) -> Box<dyn TracedSide> {
        let is_target = kind == SpanKind::Server;
        let above = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder = SpanBuilder::from_name(rpc.name()).with_kind(kind);
        let span = self.tracer.build_with_context(builder, &above);
        let moments = (is_target && self.has_values).then(|| Moments {
            arrived: Instant::now(),
            begun: None,
            responded: None,
            excluded: 0,
        });
        Box::new(Side { span, moments })
    }
}

impl Tracer for OpenTelemetry {
    fn has_values(&self) -> bool {
        self.has_values
    }

    fn origin(&self, rpc: Rpc, parent: Option<&skopos_rpc::Context>) -> Box<dyn TracedSide> {
        let parent = parent.map(|parent| {
            let trace = u128::from(parent.request_high) << 64 | u128::from(parent.request_low);
            span_context(trace.to_be_bytes(), parent.span.to_be_bytes(), parent.flags)
        });
        self.side(SpanKind::Client, rpc, parent)
    }

    fn target(&self, rpc: Rpc, context: &[u8; 32]) -> Box<dyn TracedSide> {
        let trace = std::array::from_fn(|at| context[at]);
        let span = std::array::from_fn(|at| context[16 + at]);
        // An origin that records nothing sends zeros: its calls begin a trace.
        let parent = Some(span_context(trace, span, context[24])).filter(SpanContext::is_valid);
        self.side(SpanKind::Server, rpc, parent)
    }

    fn close(&self) -> Result<()> {
        self.provider.shutdown().map_err(|error| Error::Tracer(Box::new(error)))
    }
}

impl TracedSide for Side {
    fn context(&self) -> [u8; 32] {
        let context = self.span.span_context();
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&context.trace_id().to_bytes());
        bytes[16..24].copy_from_slice(&context.span_id().to_bytes());
        bytes[24] = context.trace_flags().to_u8();
        bytes
    }

    fn parent(&self) -> skopos_rpc::Context {
        let context = self.span.span_context();
        let trace = u128::from_be_bytes(context.trace_id().to_bytes());
        skopos_rpc::Context {
            request_low: trace as u64,
            request_high: (trace >> 64) as u64,
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            callpath: 0,
            lamport: 0,
            order: 0,
            flags: context.trace_flags().to_u8(),
        }
    }

    fn begin(&mut self) {
        let Some(moments) = &mut self.moments else { return };
        let now = Instant::now();
        moments.begun = Some(now);
        let queue = nanoseconds(moments.arrived, now);
        self.interval(Interval::TargetHandler, queue);
    }

    fn respond(&mut self) {
        let Some(moments) = &mut self.moments else { return };
        let now = Instant::now();
        moments.responded = Some(now);
        let execution = moments.begun.map_or(0, |begun| nanoseconds(begun, now));
        let exclusive = execution.saturating_sub(moments.excluded);
        self.interval(Interval::TargetExecutionExclusive, exclusive);
    }

    fn interval(&mut self, interval: Interval, ns: u64) {
        if let Some(moments) = self.moments.as_mut().filter(|_| interval == Interval::Children) {
            moments.excluded = moments.excluded.saturating_add(ns);
        }
        self.value(interval.name(), ns);
    }

    fn value(&mut self, name: &'static str, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.span.set_attribute(KeyValue::new(name, value));
    }

    fn end(mut self: Box<Self>, is_ok: bool) {
        let responded = self.moments.as_ref().and_then(|moments| moments.responded);
        if let Some(responded) = responded {
            let response = nanoseconds(responded, Instant::now());
            self.interval(Interval::TargetCompletionCallback, response);
        }
        if !is_ok {
            self.span.set_status(Status::error("the call failed"));
        }
        self.span.end();
    }
}

fn span_context(trace: [u8; 16], span: [u8; 8], flags: u8) -> SpanContext {
    let (trace, span) = (TraceId::from_bytes(trace), SpanId::from_bytes(span));
    SpanContext::new(trace, span, TraceFlags::new(flags), true, TraceState::NONE)
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
