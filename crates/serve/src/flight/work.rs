//! Works for other hubs of the site, and asks them to work for this one: statements that several hubs answer together.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use skopos_access::{Action, Caller, is_loopback, may};
use skopos_query::{Engine, HubChannel, Hubs};
use skopos_term::{Failure, tell};
use skopos_wire::Identity;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint};

use super::dial::Dial;
use super::status;

/// Time in which a hub must accept a connection to take part in a statement.
const REACH_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for a connection with its certificates.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between pings, and time for their answer: a hub whose machine is gone is noticed then.
const PING_EVERY: Duration = Duration::from_secs(2);

/// Lets other hubs alone ask a service, and does its work on the engine's threads, so that listeners go on meanwhile.
#[derive(Clone)]
pub(super) struct ForHubs<S> {
    inner: S,
    engine: Arc<Engine>,
}

impl<S> ForHubs<S> {
    pub(super) fn new(inner: S, engine: Arc<Engine>) -> Self {
        Self { inner, engine }
    }
}

impl<S> Service<http::Request<Body>> for ForHubs<S>
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

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or(Caller::Stranger);
        if let Err(denied) = may(&caller, Action::Work) {
            return std::future::ready(Ok(status::denied(&denied).into_http())).boxed();
        }
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let engine = self.engine.clone();
        async move {
            let work = async move { inner.call(request).await };
            match engine.on_thread(work).await {
                Ok(done) => done,
                Err(e) => Ok(Status::unavailable(e.to_string()).into_http()),
            }
        }
        .boxed()
    }
}

impl<S: NamedService> NamedService for ForHubs<S> {
    const NAME: &'static str = S::NAME;
}

/// The configured hubs that answer statements with this one.
pub(crate) struct OtherHubs {
    channels: BTreeMap<String, Channel>,
    runtime: Handle,
}

impl fmt::Debug for OtherHubs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.channels.keys()).finish()
    }
}

impl OtherHubs {
    /// Returns the hubs at these URLs. With `is_insecure` they need no certificate.
    ///
    /// # Errors
    /// An address is not one of the loopback, and this hub has no certificate.
    pub(crate) fn new(
        urls: &[String],
        (identity, is_insecure): (Option<Arc<Identity>>, bool),
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let identity = identity.filter(|_| !is_insecure);
        // A channel works on the threads on which it is made.
        let _entered = runtime.enter();
        let mut channels = BTreeMap::new();
        for url in urls {
            let address = url.rsplit_once('/').map_or(&**url, |(_, address)| address);
            if identity.is_none() && !is_insecure && !is_loopback(address) {
                let text = format!("values of jobs would come from {address} in clear text");
                let hint = "make certificates with `skopos pki init`; on this machine write 127.0.0.1; on a network of friends add --insecure";
                return Err(Failure::new(text).hint(hint));
            }
            let wrong = |e| Failure::new(format!("{url} is not an address")).because(&e);
            let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(wrong)?;
            let channel = endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_EVERY)
                .connect_with_connector_lazy(Dial::new(address, identity.clone()));
            channels.insert(address.to_owned(), channel);
        }
        Ok(Self { channels, runtime: runtime.clone() })
    }
}

impl Hubs for OtherHubs {
    fn reachable(&self) -> BoxFuture<'_, Vec<String>> {
        let reach = |address: &String| {
            let address = address.clone();
            self.runtime.spawn(async move {
                let connected = timeout(REACH_TIMEOUT, TcpStream::connect(&*address)).await;
                matches!(connected, Ok(Ok(_))).then_some(address)
            })
        };
        let all = join_all(self.channels.keys().map(reach));
        all.map(|all| all.into_iter().filter_map(|reached| reached.ok().flatten()).collect())
            .boxed()
    }

    fn channel(&self, address: &str) -> Option<HubChannel> {
        self.channels.get(address).cloned().map(HubChannel::new)
    }

    fn failed(&self, why: &str) {
        tell(format!(
            "warning: a statement runs again on this hub alone; of those that helped: {why}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use skopos_access::{Invitation, Names, User};
    use skopos_model::Timestamp;
    use skopos_query::{Described, Node, Registry, Row, Source, Wanted};

    use super::*;

    #[derive(Debug)]
    struct Empty;

    impl Source for Empty {
        fn now(&self) -> Timestamp {
            Timestamp::from_nanos(0)
        }
        fn latest(&self, _: &Wanted, _: &mut dyn FnMut(&Row<'_>)) {}
        fn samples(&self, _: &Wanted, _: RangeInclusive<Timestamp>, _: &mut dyn FnMut(&Row<'_>)) {}
        fn topics(&self, _: &Wanted, _: &mut dyn FnMut(&Described<'_>)) {}
        fn nodes(&self) -> Vec<Node> {
            Vec::new()
        }
    }

    /// A service that counts its requests.
    #[derive(Clone, Default)]
    struct Counting(Arc<AtomicUsize>);

    impl Service<http::Request<Body>> for Counting {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Self::Future {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(http::Response::new(Body::empty())))
        }
    }

    #[tokio::test]
    async fn without_a_certificate_another_hub_is_at_an_address_of_the_loopback() {
        let runtime = Handle::current();
        let hubs = |url: &str| OtherHubs::new(&[url.to_owned()], (None, false), &runtime);
        hubs("grpc://127.0.0.1:7471").expect("this machine");
        for url in ["grpc://localhost:7471", "grpc://192.0.2.1:7471"] {
            let why = hubs(url).expect_err(url);
            assert!(why.message().contains("in clear text"), "{why:?}");
        }
    }

    #[tokio::test]
    async fn hubs_alone_have_work_done() {
        let engine = Arc::new(Engine::new(Registry::new(Arc::new(Empty))).expect("an engine"));
        let node = |is_hub| {
            let (site, node) = ("s".to_owned(), "n01".to_owned());
            Some(Caller::Node(Names { site, node, is_hub }))
        };
        for (caller, is_allowed) in [
            (Some(Caller::Owner), true),
            (node(true), true),
            (node(false), false),
            (Some(Caller::User(User { name: "ann".to_owned(), ..User::default() })), false),
            (Some(Caller::Anybody), false),
            (Some(Caller::Invited(Invitation::default())), false),
            (Some(Caller::Stranger), false),
            // A request that passed no guard.
            (None, false),
        ] {
            let counting = Counting::default();
            let mut service = ForHubs::new(counting.clone(), engine.clone());
            let mut request = http::Request::new(Body::empty());
            if let Some(caller) = caller.clone() {
                request.extensions_mut().insert(caller);
            }
            let Ok(response) = service.call(request).await;
            let status = response.headers().get("grpc-status");
            let status = status.map(|it| it.to_str().expect("a number").to_owned());
            assert_eq!(counting.0.load(Ordering::Relaxed), usize::from(is_allowed), "{caller:?}");
            assert_eq!(status.is_none(), is_allowed, "{caller:?}: {status:?}");
        }
    }
}
