//! The layer of a server that counts its requests and adds a report to each response.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use prost::Message as _;
use tower_layer::Layer;
use tower_service::Service;

use super::load::Load;
use super::service::PATH_PREFIX;

/// The trailer of a report.
static REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// The trailer with the status of a call.
static STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Counts requests and reports the load with each response: `Server::builder().layer(LoadLayer::new(load))`.
#[derive(Clone, Debug)]
pub struct LoadLayer {
    load: Load,
}

impl LoadLayer {
    /// Makes a layer that reports `load`.
    pub fn new(load: Load) -> Self {
        Self { load }
    }
}

impl<S> Layer<S> for LoadLayer {
    type Service = LoadService<S>;

    fn layer(&self, inner: S) -> LoadService<S> {
        LoadService { inner, load: self.load.clone() }
    }
}

/// A service whose responses carry reports.
#[derive(Clone, Debug)]
pub struct LoadService<S> {
    inner: S,
    load: Load,
}

impl<S, R, B> Service<http::Request<R>> for LoadService<S>
where
    S: Service<http::Request<R>, Response = http::Response<B>>,
    B: Body<Data = Bytes>,
{
    type Response = http::Response<LoadBody<B>>;
    type Error = S::Error;
    type Future = LoadFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<R>) -> Self::Future {
        // A stream of reports is not work of the application.
        let is_counted = !request.uri().path().starts_with(PATH_PREFIX);
        let load = is_counted.then(|| self.load.clone());
        LoadFuture { inner: self.inner.call(request), load }
    }
}

pin_project! {
    /// The future of a response.
    #[derive(Debug)]
    pub struct LoadFuture<F> {
        #[pin]
        inner: F,
        load: Option<Load>,
    }
}

impl<F, B, E> Future for LoadFuture<F>
where
    F: Future<Output = Result<http::Response<B>, E>>,
{
    type Output = Result<http::Response<LoadBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = this.inner.poll(cx);
        polled.map(|answer| match (answer, this.load.take()) {
            (Ok(response), None) => Ok(response.map(|inner| LoadBody { inner, load: None })),
            (Ok(mut response), Some(load)) => {
                // A response without messages has its status in the head.
                let is_over = response.headers().contains_key(&STATUS);
                if is_over {
                    finish(&load, response.headers_mut());
                }
                let load = (!is_over).then_some(load);
                Ok(response.map(|inner| LoadBody { inner, load }))
            }
            (Err(e), load) => {
                load.iter().for_each(|load| load.count(true));
                Err(e)
            }
        })
    }
}

/// Counts a call and adds the report to its trailers.
fn finish(load: &Load, trailers: &mut HeaderMap) {
    load.count(trailers.get(&STATUS).is_some_and(|status| status != "0"));
    let report = STANDARD_NO_PAD.encode(load.report().encode_to_vec());
    if let Ok(value) = HeaderValue::from_str(&report) {
        trailers.insert(REPORT.clone(), value);
    }
}

pin_project! {
    /// The body of a response, whose trailers carry a report.
    #[derive(Debug)]
    pub struct LoadBody<B> {
        #[pin]
        inner: B,
        load: Option<Load>,
    }
}

impl<B: Body<Data = Bytes>> Body for LoadBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let mut polled = this.inner.poll_frame(cx);
        match &mut polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_mut()
                    && let Some(load) = this.load.take()
                {
                    finish(&load, trailers);
                }
            }
            Poll::Ready(Some(Err(_)) | None) => {
                if let Some(load) = this.load.take() {
                    load.count(true);
                }
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
