//! A tonic echo service without and with recording, server and clients in one process over the loopback.

#[path = "../../../crates/rpc/examples/tonic_echo/echo.rs"]
#[allow(dead_code)]
mod service;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_sdk::trace::SdkTracerProvider;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use service::{EchoClient, EchoServer};
use skopos_rpc::Recorder;
use skopos_rpc::host::tonic::{ClientLayer, ServerLayer, options};
use tokio::net::TcpListener;
use tonic::Request;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};

use crate::peers;
use crate::statistics::median;

/// Calls of a round, by clients that each wait for their answer.
const CALLS: usize = 4000;
const CLIENTS: usize = 8;
const MESSAGE: &[u8] = &[7; 100];
/// Every recorder writes what it has within this.
const SETTLE: Duration = Duration::from_millis(250);
const SAY: &str = "/echo.Echo/Say";

struct Variant {
    name: &'static str,
    address: SocketAddr,
    /// The client records too.
    both: bool,
    per_second: Vec<f64>,
    cpu_us: Vec<f64>,
}

/// The places to which spans go.
pub(crate) struct Export {
    /// The collector of OpenTelemetry, as `http://HOST:PORT`.
    pub(crate) collector: String,
    /// The folder of the trace of Skopos, which stays.
    pub(crate) folder: PathBuf,
}

pub(crate) fn run(rounds: usize, export: Option<Export>) -> Value {
    // Outside of the runtime: the exporter has a client of its own, which waits.
    let provider = match &export {
        Some(export) => peers::opentelemetry_to(&export.collector),
        None => peers::opentelemetry(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let report = runtime.block_on(measure(rounds, export, &provider));
    drop(runtime);
    provider.shutdown().expect("all spans are sent");
    report
}

async fn listener() -> (SocketAddr, TcpIncoming) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    (address, TcpIncoming::from(listener).with_nodelay(Some(true)))
}

async fn measure(rounds: usize, export: Option<Export>, provider: &SdkTracerProvider) -> Value {
    let own = std::env::temp_dir().join(format!("peers-rpc-echo-{}", std::process::id()));
    let folder = export.as_ref().map_or(&own, |export| &export.folder);
    for folder in [folder, &own] {
        std::fs::create_dir_all(folder).expect("a folder for the trace");
    }
    let settings = options("peers").trace_folder(folder).dir(own.join("run")).budget(None);
    let recorder = Recorder::start(settings).expect("a recorder");
    opentelemetry::global::set_tracer_provider(provider.clone());

    let mut variants = Vec::new();
    let mut add = |name, address, both| {
        variants.push(Variant { name, address, both, per_second: Vec::new(), cpu_us: Vec::new() });
    };
    let service = EchoServer::default();
    for name in ["off", "off, again"] {
        let (address, incoming) = listener().await;
        tokio::spawn(Server::builder().add_service(service.clone()).serve_with_incoming(incoming));
        add(name, address, false);
    }
    for (name, both) in [("skopos, server", false), ("skopos, server and client", true)] {
        let (address, incoming) = listener().await;
        let mut server = Server::builder().layer(ServerLayer::with(recorder));
        tokio::spawn(server.add_service(service.clone()).serve_with_incoming(incoming));
        add(name, address, both);
    }
    let (address, incoming) = listener().await;
    let layer = opentelemetry_instrumentation_tower::http::server::LayerBuilder::builder()
        .with_route_extractor(opentelemetry_instrumentation_tower::http::extractors::PathExtractor)
        .with_metrics(false)
        .build()
        .expect("a layer");
    let mut server = Server::builder().layer(layer);
    tokio::spawn(server.add_service(service).serve_with_incoming(incoming));
    add("opentelemetry, server", address, false);

    // The first round warms everything up and is left out.
    for round in 0..=rounds {
        for at in 0..variants.len() {
            let at = (at + round) % variants.len();
            let settle = export.as_ref().map(|_| SETTLE);
            one_round(&mut variants[at], recorder, settle, round > 0).await;
        }
    }
    let counters = serde_json::to_value(recorder.counters()).unwrap_or_default();
    recorder.close().expect("closed");
    let _ = std::fs::remove_dir_all(&own);
    report(&variants, &counters)
}

/// Makes the calls of a round. With `settle`, the processor time is that until all spans were written or sent.
async fn one_round(variant: &mut Variant, recorder: Recorder, settle: Option<Duration>, is_kept: bool) {
    let recorder = if variant.both { recorder } else { Recorder::off() };
    let channel = Channel::from_shared(format!("http://{}", variant.address)).expect("an address");
    let channel = channel.connect().await.expect("connected");
    let client = EchoClient::new(channel.clone());
    let recorded = EchoClient::new(ClientLayer::with(recorder, Some("echo")).wrap(channel));
    let (start, cpu) = (Instant::now(), process_cpu_us());
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let (client, recorded) = (client.clone(), recorded.clone());
        let both = variant.both;
        tasks.push(tokio::spawn(async move {
            for _ in 0..CALLS / CLIENTS {
                let request = Request::new(Bytes::from_static(MESSAGE));
                let answer = match both {
                    true => recorded.unary(SAY, request).await,
                    false => client.unary(SAY, request).await,
                };
                assert_eq!(answer.expect("answered").len(), MESSAGE.len());
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let seconds = start.elapsed().as_secs_f64();
    if let Some(time) = settle {
        tokio::time::sleep(time).await;
    }
    if is_kept {
        variant.per_second.push(CALLS as f64 / seconds);
        variant.cpu_us.push((process_cpu_us() - cpu) / CALLS as f64);
    }
}

fn process_cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn report(variants: &[Variant], counters: &Value) -> Value {
    let base = &variants[0];
    let rows: Vec<Value> = variants
        .iter()
        .map(|v| {
            // Round by round, so that a slow moment of the machine does not count.
            let ratio = |a: &[f64], b: &[f64]| -> Vec<f64> {
                a.iter().zip(b).map(|(a, b)| (a / b - 1.0) * 100.0).collect()
            };
            json!({
                "name": v.name,
                "per_second": median(&v.per_second),
                "cpu_us": median(&v.cpu_us),
                "cpu_more_percent": median(&ratio(&v.cpu_us, &base.cpu_us)),
                "throughput_less_percent": median(&ratio(&base.per_second, &v.per_second)),
                "per_second_rounds": v.per_second,
                "cpu_us_rounds": v.cpu_us,
            })
        })
        .collect();
    json!({"benchmark": "rpc tonic echo", "calls_per_round": CALLS, "clients": CLIENTS, "rows": rows, "skopos_counters": counters})
}
