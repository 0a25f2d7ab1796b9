//! The layer of a server.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tonic::transport::server::{TcpConnectInfo, UdsConnectInfo};
use tower_layer::Layer;
use tower_service::Service;

use super::answer::{AnswerBody, AnswerFuture};
use super::call::{Call, Shared};
use super::meter::Metered;
use crate::recorder::{PeerId, Recorder, Stage};

/// Name of a peer that is connected by a UNIX socket.
const LOCAL_PEER: &str = "unix";

/// Records the requests that a server answers: `Server::builder().layer(ServerLayer::new())`.
#[derive(Clone, Debug)]
pub struct ServerLayer {
    shared: &'static Shared,
    local: PeerId,
}

impl ServerLayer {
    /// Makes a layer with the recorder of [`Recorder::global`]. It samples the runtime in which it is made.
    pub fn new() -> Self {
        Self::with(Recorder::global())
    }

    /// Makes a layer with a recorder.
    pub fn with(recorder: Recorder) -> Self {
        Self { local: recorder.peer(LOCAL_PEER), shared: Shared::of(recorder) }
    }
}

impl Default for ServerLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for ServerLayer {
    type Service = ServerService<S>;

    fn layer(&self, inner: S) -> ServerService<S> {
        ServerService { inner, shared: self.shared, local: self.local, cloned_at: 0 }
    }
}

/// A service whose requests are recorded.
///
/// hyper clones the service when the head of a request arrives, and calls the clone in a task of its own. So the time of
/// the clone is the arrival.
#[derive(Debug)]
pub struct ServerService<S> {
    inner: S,
    shared: &'static Shared,
    local: PeerId,
    /// In ticks; 0 if the service is called a second time without being cloned.
    cloned_at: u64,
}

impl<S: Clone> Clone for ServerService<S> {
    fn clone(&self) -> Self {
        Self {
            cloned_at: self.shared.recorder.ticks(),
            inner: self.inner.clone(),
            shared: self.shared,
            local: self.local,
        }
    }
}

impl<S> ServerService<S> {
    fn peer<B>(&self, request: &Request<B>) -> PeerId {
        let extensions = request.extensions();
        if extensions.get::<UdsConnectInfo>().is_some() {
            return self.local;
        }
        let address = extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        address.map_or_else(PeerId::default, |address| {
            self.shared.names.peer(&self.shared.recorder, address.ip())
        })
    }
}

impl<S, B> Service<Request<Body>> for ServerService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    B: HttpBody<Data = Bytes>,
{
    type Response = Response<AnswerBody<B>>;
    type Error = S::Error;
    type Future = AnswerFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let recorder = self.shared.recorder;
        let arrived = match std::mem::take(&mut self.cloned_at) {
            0 => recorder.ticks(),
            cloned_at => cloned_at,
        };
        if recorder.stage() == Stage::Off {
            return AnswerFuture::new(self.inner.call(request), None);
        }
        let rpc = self.shared.names.foreign_rpc(&recorder, request.uri().path());
        let mut call = Call::serve(self.shared, rpc, request.headers(), arrived);
        call.peer(self.peer(&request));
        let flow = call.request();
        let request = request.map(|body| Body::new(Metered::new(body, recorder, flow)));
        // The service may work before it returns its future, and that belongs to the handler.
        let entered = call.enter();
        let future = self.inner.call(request);
        drop(entered);
        AnswerFuture::new(future, Some(call))
    }
}
