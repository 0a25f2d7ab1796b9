//! The layer of a channel.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tonic::body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::answer::{AnswerBody, AnswerFuture};
use super::call::{Call, Shared};
use super::meter::Metered;
use crate::recorder::{PeerId, Recorder, Stage};

/// Records the calls of a channel: `KvClient::new(ClientLayer::new().layer(channel))`.
#[derive(Clone, Debug)]
pub struct ClientLayer {
    shared: &'static Shared,
    /// The service behind the channel.
    peer: PeerId,
}

impl ClientLayer {
    /// Makes a layer with the recorder of [`Recorder::global`].
    pub fn new() -> Self {
        Self::with(Recorder::global(), None)
    }

    /// Makes a layer with the recorder of [`Recorder::global`] for a channel to the service `peer`.
    pub fn to(peer: &str) -> Self {
        Self::with(Recorder::global(), Some(peer))
    }

    /// Makes a layer with a recorder, for a channel to the service `peer`.
    pub fn with(recorder: Recorder, peer: Option<&str>) -> Self {
        let peer = peer.map(|name| recorder.peer(name)).unwrap_or_default();
        Self { shared: Shared::of(recorder), peer }
    }

    /// Wraps a channel. The same as [`Layer::layer`], for programs that do not import that trait.
    pub fn wrap<S>(&self, channel: S) -> ClientService<S> {
        ClientService { inner: channel, shared: self.shared, peer: self.peer }
    }
}

impl Default for ClientLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for ClientLayer {
    type Service = ClientService<S>;

    fn layer(&self, inner: S) -> ClientService<S> {
        self.wrap(inner)
    }
}

/// A channel whose calls are recorded.
#[derive(Clone, Debug)]
pub struct ClientService<S> {
    inner: S,
    shared: &'static Shared,
    peer: PeerId,
}

impl<S, B> Service<Request<Body>> for ClientService<S>
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

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let recorder = self.shared.recorder;
        if recorder.stage() == Stage::Off {
            return AnswerFuture::new(self.inner.call(request), None);
        }
        let rpc = self.shared.names.rpc(&recorder, request.uri().path());
        let call = Call::send(self.shared, (rpc, self.peer), request.headers_mut());
        let flow = call.request();
        let request = request.map(|body| Body::new(Metered::new(body, recorder, flow)));
        AnswerFuture::new(self.inner.call(request), Some(call))
    }
}
