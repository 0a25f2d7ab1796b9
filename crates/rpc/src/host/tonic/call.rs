//! One side of a call, from its begin until its trailers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::HeaderMap;
use skopos_model::unpoisoned;

use super::headers;
use super::meter::{Flow, Messages};
use super::names::Names;
use super::scope::{Entered, Scope};
use super::variables::{CLIENT, Counts, SERVER, Variables};
use crate::context::Context;
use crate::interval::Interval;
use crate::record::Status;
use crate::recorder::{PeerId, Recorder, Rpc, Span};

/// The greatest difference between the beginnings of a timeout at both ends: the latency of a network.
const MAX_EARLY: Duration = Duration::from_millis(50);

/// The parts that all calls of a recorder share. They live as long as the process, as recorders do: a count of their users
/// would be one memory cell that all threads write with each request.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) recorder: Recorder,
    pub(super) names: Names,
    /// `None` if the registry of variables has no room for them.
    variables: Option<Variables>,
}

/// The shared parts of all recorders of this process: at most two of each, without and with a runtime.
static ALL: Mutex<Vec<&'static Shared>> = Mutex::new(Vec::new());

impl Shared {
    /// Returns the shared parts of a recorder. Those that were made outside of a runtime give way to those with one.
    pub(super) fn of(recorder: Recorder) -> &'static Self {
        let mut all = unpoisoned(ALL.lock());
        let known = all.iter().rposition(|shared| shared.recorder.is(recorder));
        let has_runtime =
            |shared: &Self| shared.variables.as_ref().is_some_and(Variables::has_runtime);
        if let Some(shared) = known.map(|at| all[at])
            && (has_runtime(shared) || tokio::runtime::Handle::try_current().is_err())
        {
            return shared;
        }
        let variables = Variables::register(&recorder).ok();
        let shared: &Self =
            Box::leak(Box::new(Self { recorder, names: Names::default(), variables }));
        all.push(shared);
        shared
    }
}

#[derive(Debug)]
enum Side {
    /// The callee, with the scope of its handler.
    Server(Arc<Scope>),
    /// The caller, with the scope in which it calls.
    Client(Option<Arc<Scope>>),
}

/// A call that is recorded. Dropped before its end, it was cancelled.
#[derive(Debug)]
pub(super) struct Call {
    span: Option<Span>,
    shared: &'static Shared,
    side: Side,
    request: Arc<Flow>,
    deadline: Option<Instant>,
    has_begun: bool,
}

/// The numbers of a response's body.
#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) messages: Messages,
    /// Ticks of the polls that returned data.
    pub(super) polling: u64,
}

impl Call {
    /// Begins the side of the callee, at `arrived` in ticks.
    pub(super) fn serve(shared: &'static Shared, rpc: Rpc, sent: &HeaderMap, arrived: u64) -> Self {
        let context = headers::context(sent).unwrap_or_else(headers::new_request);
        let span = shared.recorder.target_at(rpc, &context, arrived);
        let others = headers::others(sent).map(str::to_owned);
        SERVER.begin();
        Self {
            side: Side::Server(Scope::new(span.context(), others)),
            span: Some(span),
            shared,
            request: Arc::default(),
            deadline: deadline(sent),
            has_begun: false,
        }
    }

    /// Begins the side of the caller of `rpc` at `peer`, and writes the context into the headers of the request.
    pub(super) fn send(
        shared: &'static Shared,
        (rpc, peer): (Rpc, PeerId),
        sent: &mut HeaderMap,
    ) -> Self {
        let scope = Scope::current();
        // A caller without a scope of ours may have set a context, or another system's header.
        let parent = Context::current().or_else(|| headers::context(sent));
        let mut span = shared.recorder.origin(rpc, parent.as_ref());
        span.peer(peer);
        let others = scope.as_ref().and_then(|scope| scope.others.as_deref());
        let others = others.or(headers::others(sent)).map(str::to_owned);
        headers::insert(&span.context(), others.as_deref(), sent);
        if let Some(scope) = &scope {
            scope.child_begins(Instant::now());
        }
        CLIENT.begin();
        Self {
            side: Side::Client(scope),
            span: Some(span),
            shared,
            request: Arc::default(),
            deadline: deadline(sent),
            has_begun: false,
        }
    }

    /// Returns the measures of the request's body.
    pub(super) fn request(&self) -> Arc<Flow> {
        Arc::clone(&self.request)
    }

    pub(super) fn recorder(&self) -> Recorder {
        self.shared.recorder
    }

    pub(super) fn counts(&self) -> &'static Counts {
        match self.side {
            Side::Server(_) => &SERVER,
            Side::Client(_) => &CLIENT,
        }
    }

    pub(super) fn peer(&mut self, peer: PeerId) {
        if let Some(span) = &mut self.span {
            span.peer(peer);
        }
    }

    /// Makes the request of a handler current while it is polled. The first time, the handler begins (t5).
    pub(super) fn enter(&mut self) -> Option<Entered> {
        let counts = self.counts();
        if let (false, Some(span)) = (self.has_begun, &mut self.span) {
            self.has_begun = true;
            if let Some(variables) = &self.shared.variables {
                variables.levels(&self.shared.recorder, counts, span);
            }
            span.begin();
        }
        match &self.side {
            Side::Server(scope) => Some(scope.enter()),
            Side::Client(_) => None,
        }
    }

    /// The handler has ended (t8), or at least its response begins.
    pub(super) fn respond(&mut self) {
        if let (Side::Server(_), Some(span)) = (&self.side, &mut self.span) {
            span.respond();
        }
    }

    /// Ends the call.
    pub(super) fn end(mut self, status: Status, response: &Response) {
        self.finish(status, response);
    }

    fn finish(&mut self, status: Status, response: &Response) {
        let Some(mut span) = self.span.take() else { return };
        let request_bytes = self.request.bytes.load(Ordering::Relaxed);
        let response_bytes = response.messages.bytes;
        let has_one_message = self.request.messages.load(Ordering::Relaxed) == 1;
        let (received, sent) = match &self.side {
            Side::Server(scope) => {
                span.exclude(scope.covered(Instant::now).as_nanos() as u64);
                if has_one_message {
                    let ticks = self.request.between.load(Ordering::Relaxed);
                    span.interval_between(Interval::InputDeserialization, 0, ticks);
                }
                if response.messages.count == 1 {
                    span.interval_between(Interval::OutputSerialization, 0, response.polling);
                }
                (request_bytes, response_bytes)
            }
            Side::Client(scope) => {
                if has_one_message {
                    let ticks = self.request.polling.load(Ordering::Relaxed);
                    span.interval_between(Interval::InputSerialization, 0, ticks);
                }
                if let Some(scope) = scope {
                    scope.child_ends(Instant::now());
                }
                (response_bytes, request_bytes)
            }
        };
        self.counts().end(received, sent);
        if let Some(variables) = &self.shared.variables {
            variables.bytes(request_bytes, response_bytes, &mut span);
        }
        span.end(status);
    }
}

/// Returns the moment after which the caller does not wait any more. It is a little early: the caller's time began before
/// the request was here, and its cancellation may be here before our own clock says so.
fn deadline(sent: &HeaderMap) -> Option<Instant> {
    let timeout = Duration::from_nanos(headers::timeout_ns(sent)?);
    Instant::now().checked_add(timeout - (timeout / 10).min(MAX_EARLY))
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.span.is_none() {
            return;
        }
        let timed_out = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let status = if timed_out { Status::TimedOut } else { Status::Cancelled };
        self.finish(status, &Response::default());
    }
}
