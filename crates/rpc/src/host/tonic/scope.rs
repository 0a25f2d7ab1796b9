//! The request in which a task works: its context, and the time that its own calls cover.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task;
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use skopos_model::unpoisoned;

use crate::context::{Attached, Context};

thread_local! {
    static SCOPE: RefCell<Option<Arc<Scope>>> = const { RefCell::new(None) };
}

/// A request that is served.
#[derive(Debug)]
pub(super) struct Scope {
    context: Mutex<Context>,
    children: Mutex<Children>,
    /// Members of other systems in `tracestate`, which go on with calls.
    pub(super) others: Option<String>,
}

/// The union of the times of calls, which may overlap.
#[derive(Debug, Default)]
struct Children {
    active: u32,
    since: Option<Instant>,
    covered: Duration,
}

impl Scope {
    pub(super) fn new(context: Context, others: Option<String>) -> Arc<Self> {
        let children = Mutex::default();
        Arc::new(Self { context: Mutex::new(context), children, others })
    }

    /// Returns the scope in which this thread polls.
    pub(super) fn current() -> Option<Arc<Self>> {
        SCOPE.with_borrow(Clone::clone)
    }

    /// Makes this the scope of the thread until the guard is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Entered {
        let before = SCOPE.replace(Some(Arc::clone(self)));
        let attached = unpoisoned(self.context.lock()).attach();
        Entered { before, scope: Arc::clone(self), _attached: attached }
    }

    pub(super) fn child_begins(&self, now: Instant) {
        let mut children = unpoisoned(self.children.lock());
        children.active += 1;
        children.since.get_or_insert(now);
    }

    pub(super) fn child_ends(&self, now: Instant) {
        let mut children = unpoisoned(self.children.lock());
        children.active = children.active.saturating_sub(1);
        if children.active == 0 {
            let since = children.since.take();
            children.covered += since.map_or(Duration::ZERO, |since| now.duration_since(since));
        }
    }

    /// Returns the time that calls covered up to `now`, which is asked for if a call is under way.
    pub(super) fn covered(&self, now: impl FnOnce() -> Instant) -> Duration {
        let children = unpoisoned(self.children.lock());
        let open = children.since.map_or(Duration::ZERO, |since| now().duration_since(since));
        children.covered + open
    }
}

/// Keeps a scope current; restores the one before when dropped.
#[derive(Debug)]
pub(super) struct Entered {
    before: Option<Arc<Scope>>,
    scope: Arc<Scope>,
    // Dropped after the body of `drop`, which still reads the context.
    _attached: Attached,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Calls that were made here have raised the order, and the next poll goes on from there.
        if let Some(current) = Context::current() {
            let mut own = unpoisoned(self.scope.context.lock());
            if own.span == current.span {
                *own = current;
            }
        }
        SCOPE.set(self.before.take());
    }
}

pin_project! {
    /// A future that works in the request in which it was made. See [`in_context`].
    #[derive(Debug)]
    pub struct InContext<F> {
        #[pin]
        inner: F,
        scope: Option<Arc<Scope>>,
    }
}

/// Keeps the current request for a future that another task polls: `tokio::spawn(in_context(work))`.
pub fn in_context<F: Future>(future: F) -> InContext<F> {
    InContext { inner: future, scope: Scope::current() }
}

impl<F: Future> Future for InContext<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> task::Poll<F::Output> {
        let this = self.project();
        let _entered = this.scope.as_ref().map(Scope::enter);
        this.inner.poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tonic::headers::new_request;

    #[test]
    fn calls_that_overlap_are_covered_once() {
        let scope = Scope::new(new_request(), None);
        let start = Instant::now();
        let at = |ns| start + Duration::from_nanos(ns);
        let covered = |ns| scope.covered(|| at(ns)).as_nanos();
        scope.child_begins(at(10));
        scope.child_begins(at(20));
        scope.child_ends(at(30));
        assert_eq!(covered(35), 25);
        scope.child_ends(at(40));
        scope.child_begins(at(100));
        scope.child_ends(at(101));
        assert_eq!(covered(200), 31);
    }

    #[test]
    fn a_scope_is_restored_and_keeps_its_order() {
        let (outer, inner) = (Scope::new(new_request(), None), Scope::new(new_request(), None));
        let first = outer.enter();
        drop(inner.enter());
        assert!(Scope::current().is_some_and(|scope| Arc::ptr_eq(&scope, &outer)));
        let context = Context::current().expect("entered");
        assert_eq!([context.next_order(), context.next_order()], [1, 2]);
        drop(first);
        assert!(Scope::current().is_none());
        assert!(Context::current().is_none());
        let _again = outer.enter();
        assert_eq!(context.next_order(), 3);
    }
}
