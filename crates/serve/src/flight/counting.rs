//! Counts requests, also those that are not valid and do not reach the inner service.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use skopos_hub::counts::Counts;

/// The header with gRPC's status; the head of a response has it if the request failed at once.
const STATUS: &str = "grpc-status";

/// A service that counts requests before it passes them on.
#[derive(Clone)]
pub(super) struct CountingService<S> {
    inner: S,
    counts: Arc<Counts>,
}

impl<S> CountingService<S> {
    /// Counts the requests to `inner`.
    pub(super) fn new(inner: S, counts: Arc<Counts>) -> Self {
        Self { inner, counts }
    }
}

impl<S> Service<http::Request<Body>> for CountingService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let counts = self.counts.clone();
        counts.request();
        let answered = self.inner.call(request);
        async move {
            let response = answered.await?;
            if response.headers().get(STATUS).is_some_and(|status| status != "0") {
                counts.refuse();
            }
            Ok(response)
        }
        .boxed()
    }
}

impl<S: NamedService> NamedService for CountingService<S> {
    const NAME: &'static str = S::NAME;
}
