//! The cost of a request with one span, for its caller and for the whole process.

use std::hint::black_box;
use std::time::Duration;

use opentelemetry::trace::{Span as _, Tracer, TracerProvider};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use skopos_rpc::{Interval, Options, Recorder, Stage, Status};
use tracing_subscriber::layer::SubscriberExt;

use crate::peers::{self, EXPORTED};
use crate::statistics::median;

/// Requests of a round: enough that clocks of 1 µs do not matter.
const REQUESTS: u32 = 100_000;
/// Requests between two pauses, in which the threads of all recorders catch up.
const BURST: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(2);
/// Every recorder writes what it has within this.
const SETTLE: Duration = Duration::from_millis(400);

struct Variant {
    name: &'static str,
    request: Box<dyn Fn()>,
    flush: Box<dyn Fn()>,
    caller: Vec<f64>,
    process: Vec<f64>,
    exported: u64,
}

impl Variant {
    fn new(name: &'static str, request: impl Fn() + 'static, flush: impl Fn() + 'static) -> Self {
        let (request, flush) = (Box::new(request), Box::new(flush));
        Self { name, request, flush, caller: Vec::new(), process: Vec::new(), exported: 0 }
    }

    fn round(&mut self) {
        let exported = EXPORTED.load(std::sync::atomic::Ordering::Relaxed);
        let process = cpu(ClockId::ProcessCPUTime);
        let mut caller = 0.0;
        for _ in 0..REQUESTS / BURST {
            let start = cpu(ClockId::ThreadCPUTime);
            for _ in 0..BURST {
                (self.request)();
            }
            caller += cpu(ClockId::ThreadCPUTime) - start;
            std::thread::sleep(PAUSE);
        }
        (self.flush)();
        std::thread::sleep(SETTLE);
        let per_request = |ns: f64| ns / f64::from(REQUESTS);
        self.caller.push(per_request(caller));
        self.process.push(per_request(cpu(ClockId::ProcessCPUTime) - process));
        self.exported += EXPORTED.load(std::sync::atomic::Ordering::Relaxed) - exported;
    }
}

fn cpu(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

pub(crate) fn run(rounds: usize) -> Value {
    let folder = std::env::temp_dir().join(format!("peers-rpc-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the trace");
    let options = Options::new("peers").trace_folder(&folder).dir(folder.join("run")).budget(None);
    let recorder = Recorder::start(options).expect("a recorder");
    let provider = peers::opentelemetry();
    let bridged = peers::opentelemetry();
    peers::fastrace();
    let layer = tracing_opentelemetry::layer().with_tracer(bridged.tracer("peers"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
        .expect("the only subscriber");

    let mut variants = ours(recorder);
    let tracer = provider.tracer("peers");
    let flush = move || drop(provider.force_flush());
    variants.push(Variant::new(
        "opentelemetry, batch",
        move || {
            let mut span = tracer.start("echo.Echo/Say");
            black_box(span.span_context());
            span.end();
        },
        flush,
    ));
    variants.push(Variant::new(
        "fastrace",
        || {
            let parent = fastrace::collector::SpanContext::random();
            drop(black_box(fastrace::Span::root("echo.Echo/Say", parent)));
        },
        fastrace::flush,
    ));
    variants.push(Variant::new(
        "tracing-opentelemetry, batch",
        || {
            let span = tracing::info_span!("echo.Echo/Say");
            drop(black_box(span.enter()));
        },
        move || drop(bridged.force_flush()),
    ));
    for round in 0..rounds {
        for at in 0..variants.len() {
            // Another variant is the first in each round.
            let at = (at + round) % variants.len();
            recorder.set_stage(stage_of(variants[at].name));
            variants[at].round();
        }
    }
    let counters = recorder.counters();
    recorder.close().expect("closed");
    let _ = std::fs::remove_dir_all(&folder);
    report(rounds, &variants, &serde_json::to_value(counters).unwrap_or_default())
}

/// Stages of ours, by the names of the variants; others run while ours is off.
fn stage_of(name: &str) -> Stage {
    match name {
        "skopos, context" => Stage::Context,
        "skopos, spans" => Stage::Spans,
        "skopos, full with two intervals" => Stage::Full,
        _ => Stage::Off,
    }
}

fn ours(recorder: Recorder) -> Vec<Variant> {
    let rpc = recorder.rpc("echo.Echo/Say");
    let flush = move || recorder.flush().expect("flushed");
    let one = move || {
        let span = recorder.origin(black_box(rpc), None);
        black_box(span.context());
        span.end(Status::Ok);
    };
    let full = move || {
        let mut span = recorder.origin(black_box(rpc), None);
        black_box(span.context());
        span.interval(Interval::InputSerialization, 100);
        span.interval(Interval::OriginCompletionCallback, 100);
        span.end(Status::Ok);
    };
    vec![
        Variant::new("nothing", || { black_box(REQUESTS); }, || ()),
        Variant::new("skopos, off", one, flush),
        Variant::new(
            "skopos, off, a look at the stage",
            move || {
                if black_box(recorder.stage()) != Stage::Off {
                    one();
                }
            },
            flush,
        ),
        Variant::new("skopos, context", one, flush),
        Variant::new("skopos, spans", one, flush),
        Variant::new("skopos, full with two intervals", full, flush),
    ]
}

fn report(rounds: usize, variants: &[Variant], counters: &Value) -> Value {
    // The first records nothing and calls no recorder: it is the cost of the loop.
    let empty = &variants[0].caller;
    let rows: Vec<Value> = variants
        .iter()
        .map(|v| {
            let beyond: Vec<f64> = v.caller.iter().zip(empty).map(|(own, empty)| own - empty).collect();
            json!({
                "name": v.name,
                "caller_ns": median(&v.caller),
                "process_ns": median(&v.process),
                "beyond_ns": median(&beyond),
                "beyond_rounds": beyond,
                "caller_rounds": v.caller,
                "process_rounds": v.process,
                "exported": v.exported,
                "requests": rounds as u64 * u64::from(REQUESTS),
            })
        })
        .collect();
    json!({"benchmark": "rpc span", "requests_per_round": REQUESTS, "rows": rows, "skopos_counters": counters})
}
