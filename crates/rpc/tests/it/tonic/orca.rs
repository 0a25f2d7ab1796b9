//! Load reports by ORCA: in the trailers of responses, and as a stream.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use skopos_rpc::host::tonic::orca::{Load, LoadLayer, OrcaLoadReport, OrcaService};
use skopos_shm::Publisher;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};

use super::echo::{EchoServer, RawCodec};
use super::python::python_with;
use super::serving::runtime;

/// Patience of a test: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(180);

const STREAM: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

/// A request for a report each second: `report_interval { seconds: 1 }`.
const EACH_SECOND: &[u8] = &[0x0a, 0x02, 0x08, 0x01];

/// Serves the echo and the reports on a free port.
async fn serve(load: Load) -> (SocketAddr, OrcaService) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let service = OrcaService::new(load.clone());
    let server = Server::builder()
        .layer(LoadLayer::new(load))
        .add_service(service.clone())
        .add_service(EchoServer::default());
    tokio::spawn(async { server.serve_with_incoming(incoming).await.expect("serves") });
    (address, service)
}

async fn grpc(to: SocketAddr) -> tonic::client::Grpc<Channel> {
    let channel = Channel::from_shared(format!("http://{to}")).expect("an address").connect_lazy();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("it connects");
    grpc
}

/// Calls a method of the echo, and returns the report that came with the response.
async fn reported(to: SocketAddr, path: &'static str) -> Result<OrcaLoadReport, Status> {
    let path = http::uri::PathAndQuery::from_static(path);
    let answer = grpc(to).await.unary(Request::new(Bytes::from("hello")), path, RawCodec).await;
    let (metadata, failed) = match answer {
        Ok(answer) => (answer.metadata().clone(), None),
        Err(status) => (status.metadata().clone(), Some(status)),
    };
    let value = metadata.get_bin("endpoint-load-metrics-bin").expect("a report").to_bytes();
    let report = OrcaLoadReport::decode(value.expect("base64")).expect("a report");
    failed.map_or(Ok(report), Err)
}

#[test]
fn each_response_carries_the_load() {
    let load = Load::new();
    load.set_application_utilization(0.75);
    assert!(load.set_named("queue", 3.0));
    runtime().block_on(async {
        let (address, _) = serve(load.clone()).await;
        let report = reported(address, "/echo.Echo/Say").await.expect("answered");
        assert_eq!(report.application_utilization, 0.75);
        assert_eq!(report.named_metrics["queue"], 3.0);
        assert_eq!((report.cpu_utilization, report.mem_utilization), (0.0, 0.0));
        let failed = reported(address, "/echo.Echo/Fail").await.expect_err("it fails");
        assert_eq!(failed.code(), Code::InvalidArgument);
        let until = Instant::now() + PATIENCE;
        // A window ends each second, perhaps between the two calls: then they are made again.
        loop {
            let report = load.report();
            if report.eps > 0.0 && report.eps < report.rps_fractional {
                break;
            }
            assert!(Instant::now() < until, "{report:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = reported(address, "/echo.Echo/Say").await;
            let _ = reported(address, "/echo.Echo/Fail").await;
        }
    });
}

#[test]
fn a_stream_has_the_utilization_that_the_agent_measures() {
    let dir = tempfile::tempdir().expect("a folder");
    let agent = Publisher::builder("agent").dir(dir.path()).node("n01").create();
    let agent = agent.expect("a segment");
    let mut busy = agent.writer::<f64>("n01/cpu/total/busy_ratio").expect("room");
    let mut available = agent.writer::<u64>("n01/mem/available_bytes").expect("room");
    let mut total = agent.writer::<u64>("n01/mem/total_bytes").expect("room");
    runtime().block_on(async {
        let (address, service) = serve(Load::of_node_in(dir.path())).await;
        let path = http::uri::PathAndQuery::from_static(STREAM);
        let request = Request::new(Bytes::from_static(EACH_SECOND));
        let mut grpc = grpc(address).await;
        let answer = grpc.server_streaming(request, path, RawCodec).await.expect("a stream");
        let mut reports = answer.into_inner();
        let until = Instant::now() + PATIENCE;
        let mut complete = 0;
        while complete < 2 {
            assert!(Instant::now() < until, "{complete} reports have the utilization");
            busy.publish(0.5).expect("published");
            available.publish(1 << 30).expect("published");
            total.publish(4 << 30).expect("published");
            let report = reports.message().await.expect("a message").expect("a report");
            let report = OrcaLoadReport::decode(report).expect("a report");
            // The first report is older than the facts; on a machine that stands still, they are too old for a later one.
            complete += u32::from((report.cpu_utilization, report.mem_utilization) == (0.5, 0.75));
        }
        assert_eq!(service.streams(), 1);
        drop((reports, grpc));
        let until = Instant::now() + PATIENCE;
        while service.streams() > 0 {
            assert!(Instant::now() < until, "the stream does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn a_request_that_is_not_one_is_refused() {
    runtime().block_on(async {
        let (address, service) = serve(Load::new()).await;
        for (path, code) in [
            (STREAM, Code::InvalidArgument),
            ("/xds.service.orca.v3.OpenRcaService/Other", Code::Unimplemented),
        ] {
            let path = http::uri::PathAndQuery::from_static(path);
            let request = Request::new(Bytes::from_static(&[0x0a, 0xff]));
            let answer = grpc(address).await.server_streaming(request, path, RawCodec).await;
            assert_eq!(answer.expect_err("refused").code(), code);
        }
        assert_eq!(service.streams(), 0);
    });
}

#[test]
fn a_client_with_the_published_messages_reads_the_reports() {
    let Some(python) = python_with("import grpc, xds.service.orca.v3.orca_pb2") else {
        println!("skipped: no Python with grpcio and xds-protos; SKOPOS_TEST_PYTHON names one");
        return;
    };
    let load = Load::new();
    load.set_application_utilization(0.75);
    assert!(load.set_named("queue", 3.0) && load.set_utilization("disk", 0.25));
    runtime().block_on(async {
        let (address, _) = serve(load).await;
        let mut command = std::process::Command::new(python);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tonic/orca_client.py");
        command.arg(script).arg(address.to_string());
        let ran = tokio::task::spawn_blocking(move || command.output()).await;
        let ran = ran.expect("no panic").expect("it starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let line = "0.75 {'queue': 3.0} {'disk': 0.25} 0.0\n";
        assert_eq!(String::from_utf8_lossy(&ran.stdout), line);
    });
}
