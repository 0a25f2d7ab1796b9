//! The service `xds.service.orca.v3.OpenRcaService`: a stream of reports.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use prost::Message as _;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::tokio_stream::Stream;
use tonic::server::{NamedService, ServerStreamingService};
use tonic::{Request, Response, Status};
use tower_service::Service;

use super::load::Load;
use super::message::{OrcaLoadReport, ReportRequest};

/// Most streams of one service. Each client of a balancer has one, and a balancer of Envoy one for each of its threads.
pub const MAX_STREAMS: usize = 4096;

/// Shortest time between two reports of a stream: rates are counted for as long.
pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two reports for a client that names none: gRPC's default.
const USUAL_INTERVAL: Duration = Duration::from_secs(30);

/// Longest time between two reports. A timer of years would hide a mistake.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);

/// The beginning of the service's paths, and its method.
pub(super) const PATH_PREFIX: &str = "/xds.service.orca.v3.OpenRcaService/";
const METHOD: &str = "StreamCoreMetrics";

/// Streams reports to clients that balance by them.
#[derive(Clone, Debug)]
pub struct OrcaService {
    load: Load,
    streams: Arc<AtomicUsize>,
}

impl OrcaService {
    /// Makes a service that reports `load`.
    pub fn new(load: Load) -> Self {
        Self { load, streams: Arc::default() }
    }

    /// Returns the number of streams that are open.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }
}

impl NamedService for OrcaService {
    const NAME: &'static str = "xds.service.orca.v3.OpenRcaService";
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Service<http::Request<Body>> for OrcaService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path().strip_prefix(PATH_PREFIX) != Some(METHOD) {
            return Box::pin(ready(Ok(Status::unimplemented("no such method").into_http())));
        }
        let mut grpc = tonic::server::Grpc::new(OrcaCodec);
        let method = Method(self.clone());
        Box::pin(async move { Ok(grpc.server_streaming(method, request).await) })
    }
}

/// The method `StreamCoreMetrics`.
struct Method(OrcaService);

impl ServerStreamingService<ReportRequest> for Method {
    type Response = OrcaLoadReport;
    type ResponseStream = Reports;
    type Future = std::future::Ready<Result<Response<Reports>, Status>>;

    fn call(&mut self, request: Request<ReportRequest>) -> Self::Future {
        let OrcaService { load, streams } = &self.0;
        let place = Place(streams.clone());
        if streams.fetch_add(1, Ordering::Relaxed) >= MAX_STREAMS {
            // Dropping the place gives it back.
            drop(place);
            return ready(Err(Status::resource_exhausted("too many streams of reports are open")));
        }
        let every = request.get_ref().interval().unwrap_or(USUAL_INTERVAL);
        let mut timer = interval(every.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL));
        // A client that was slow gets the present report, not those that it missed.
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ready(Ok(Response::new(Reports { load: load.clone(), timer, _place: place })))
    }
}

/// A place among the open streams, until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The reports of one stream; the first comes at once. A report is made when the client has room for it.
struct Reports {
    load: Load,
    timer: Interval,
    _place: Place,
}

impl Stream for Reports {
    type Item = Result<OrcaLoadReport, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.timer.poll_tick(cx).map(|_| Some(Ok(self.load.report())))
    }
}

/// Protocol buffers of the two messages.
#[derive(Clone, Copy)]
struct OrcaCodec;

impl Codec for OrcaCodec {
    type Encode = OrcaLoadReport;
    type Decode = ReportRequest;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for OrcaCodec {
    type Item = OrcaLoadReport;
    type Error = Status;

    fn encode(&mut self, report: OrcaLoadReport, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        report.encode(to).map_err(|e| Status::internal(e.to_string()))
    }
}

impl Decoder for OrcaCodec {
    type Item = ReportRequest;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<ReportRequest>, Status> {
        let request = ReportRequest::decode(from);
        request.map(Some).map_err(|e| Status::invalid_argument(e.to_string()))
    }
}
