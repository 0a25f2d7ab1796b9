//! The reply to a call, for which a task waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::Result;

/// The answer to a call.
#[derive(Debug)]
pub struct Answer {
    /// The output as the target wrote it.
    pub output: Vec<u8>,
    /// Nanoseconds from the begin of the call to its completion callback, by the clock of the origin.
    pub nanoseconds: u64,
}

/// A call that is under way: a future of its answer. Dropping it does not cancel the call.
#[derive(Debug)]
#[must_use = "a call is issued at once, but its failure is only known by its reply"]
pub struct Reply {
    slot: Arc<Slot>,
}

/// The place that a completion callback fills.
#[derive(Default, Debug)]
pub(crate) struct Slot {
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    answer: Option<Result<Answer>>,
    waker: Option<Waker>,
}

impl Reply {
    pub(crate) fn of(slot: &Arc<Slot>) -> Self {
        Self { slot: Arc::clone(slot) }
    }
}

impl Slot {
    /// Stores the answer, and wakes the task that waits for it.
    pub(crate) fn fill(&self, answer: Result<Answer>) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.answer = Some(answer);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Reply {
    type Output = Result<Answer>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
