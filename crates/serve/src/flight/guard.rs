//! The guard before every request: it counts requests, also those that are not valid, finds out who asks, and refuses
//! whoever the policy refuses.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use skopos_access::{Action, Caller, may};
use skopos_hub::counts::Counts;

use super::status;
use crate::listen::{Admittance, Client};

/// The header with gRPC's status; the head of a response has it if the request failed at once.
const STATUS: &str = "grpc-status";

/// A service that guards another one.
#[derive(Clone)]
pub(super) struct Guard<S> {
    inner: S,
    admittance: Admittance,
    counts: Arc<Counts>,
}

impl<S> Guard<S> {
    /// Guards `inner`.
    pub(super) fn new(inner: S, admittance: Admittance, counts: Arc<Counts>) -> Self {
        Self { inner, admittance, counts }
    }
}

/// Returns who makes a request, if the policy lets that caller in.
async fn caller_of(
    admittance: &Admittance,
    request: &mut http::Request<Body>,
) -> Result<Caller, Status> {
    let connection = request.extensions_mut().remove::<(Caller, Client)>();
    let client = connection.map(|(caller, client)| {
        request.extensions_mut().insert(caller);
        client
    });
    let caller = admittance.caller(request.headers(), request.extensions()).await;
    let wrong = || Status::unauthenticated("the token is not valid, or not any more");
    let caller = caller.ok_or_else(wrong)?;
    may(&caller, Action::ReadFacts).map_err(|denied| status::denied(&denied))?;
    if let Some(client) = client {
        client.introduce();
    }
    Ok(caller)
}

impl<S> Service<http::Request<Body>> for Guard<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let counts = self.counts.clone();
        counts.request();
        // The service that said that it is ready takes the request; a clone takes its place.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let admittance = self.admittance.clone();
        async move {
            match caller_of(&admittance, &mut request).await {
                Ok(caller) => drop(request.extensions_mut().insert(caller)),
                Err(status) => {
                    counts.refuse();
                    return Ok(status.into_http());
                }
            }
            let response = inner.call(request).await?;
            if response.headers().get(STATUS).is_some_and(|status| status != "0") {
                counts.refuse();
            }
            Ok(response)
        }
        .boxed()
    }
}

impl<S: NamedService> NamedService for Guard<S> {
    const NAME: &'static str = S::NAME;
}
