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
        let call = is_counted.then(|| Call { load: self.load.clone(), is_error: true });
        LoadFuture { inner: self.inner.call(request), call }
    }
}

/// A call, which is counted when it is dropped. Until its status is known it is an error: its client gave it up, for
/// example at a deadline.
#[derive(Debug)]
struct Call {
    load: Load,
    is_error: bool,
}

impl Call {
    /// Counts the call by the status in its trailers, and adds the report to them.
    fn finish(mut self, trailers: &mut HeaderMap) {
        self.is_error = trailers.get(&STATUS).is_some_and(|status| status != "0");
        let load = self.load.clone();
        drop(self);
        let report = STANDARD_NO_PAD.encode(load.report().encode_to_vec());
        if let Ok(value) = HeaderValue::from_str(&report) {
            trailers.insert(REPORT.clone(), value);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.load.count(self.is_error);
    }
}

pin_project! {
    /// The future of a response.
    #[derive(Debug)]
    pub struct LoadFuture<F> {
        #[pin]
        inner: F,
        call: Option<Call>,
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
        polled.map(|answer| -> Self::Output {
            // The call of an error is dropped here, and counted.
            let mut call = this.call.take();
            let mut response = answer?;
            // A response without messages has its status in the head.
            if response.headers().contains_key(&STATUS)
                && let Some(call) = call.take()
            {
                call.finish(response.headers_mut());
            }
            Ok(response.map(|inner| LoadBody { inner, call }))
        })
    }
}

pin_project! {
    /// The body of a response, whose trailers carry a report.
    #[derive(Debug)]
    pub struct LoadBody<B> {
        #[pin]
        inner: B,
        call: Option<Call>,
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
                    && let Some(call) = this.call.take()
                {
                    call.finish(trailers);
                }
            }
            // An end without a status is an error.
            Poll::Ready(Some(Err(_)) | None) => drop(this.call.take()),
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::thread;
    use std::time::{Duration, Instant};

    use tonic::body::Body;

    use super::*;

    /// Time that only ends a hang.
    const PATIENCE: Duration = Duration::from_secs(180);

    /// A service that never answers, or answers with a body that is dropped before its end.
    struct Stub {
        answers: bool,
    }

    type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

    impl Service<http::Request<()>> for Stub {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Boxed<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<()>) -> Self::Future {
            match self.answers {
                true => Box::pin(std::future::ready(Ok(http::Response::new(Body::empty())))),
                false => Box::pin(std::future::pending()),
            }
        }
    }

    #[test]
    fn calls_that_their_clients_give_up_are_counted_as_errors() {
        for answers in [false, true] {
            let load = Load::new();
            let mut service = LoadLayer::new(load.clone()).layer(Stub { answers });
            let until = Instant::now() + PATIENCE;
            // The rates are those of the last whole window.
            loop {
                let mut call = Box::pin(service.call(http::Request::new(())));
                let mut context = Context::from_waker(std::task::Waker::noop());
                assert_eq!(call.as_mut().poll(&mut context).is_ready(), answers);
                drop(call);
                let report = load.report();
                if report.rps_fractional > 0.0 {
                    assert_eq!(report.eps, report.rps_fractional);
                    break;
                }
                assert!(Instant::now() < until, "{report:?}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
