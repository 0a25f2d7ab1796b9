//! The completion queue of an origin: the network adapter appends a response, and the progress loop reads a bounded
//! number of them at a time.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// An event of the network.
#[derive(Debug)]
pub(crate) enum Event {
    /// A call was answered.
    Response {
        /// Number of the call.
        call: u64,
        /// Whether the target reports a failure.
        has_failed: bool,
        /// Bytes of the whole output.
        body_bytes: u32,
        /// The part of the output that the message carried: all of it, or nothing.
        eager: Vec<u8>,
    },
    /// The connection of this number ended.
    End(usize),
}

/// The queue.
#[derive(Default, Debug)]
pub(crate) struct CompletionQueue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default, Debug)]
struct State {
    events: VecDeque<Event>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl CompletionQueue {
    /// Appends `events`, and wakes the progress loop.
    pub(crate) fn push(&self, events: &mut Vec<Event>) {
        let waker = {
            let mut state = self.lock();
            state.events.extend(events.drain(..));
            state.waker.take()
        };
        self.filled.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the progress loop.
    pub(crate) fn close(&self) {
        let waker = {
            let mut state = self.lock();
            state.is_closed = true;
            state.waker.take()
        };
        self.filled.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes at most `limit` events. Returns them with the number that is left.
    pub(crate) fn take(&self, limit: usize) -> (Vec<Event>, usize) {
        let mut state = self.lock();
        let count = limit.min(state.events.len());
        let events = state.events.drain(..count).collect();
        (events, state.events.len())
    }

    /// Blocks the calling thread until there is an event. Returns false once the queue is closed and empty.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.lock();
        loop {
            if !state.events.is_empty() {
                return true;
            }
            if state.is_closed {
                return false;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does what [`wait`](Self::wait) does, for a task.
    pub(crate) fn poll_wait(&self, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.lock();
        if !state.events.is_empty() {
            return Poll::Ready(true);
        }
        if state.is_closed {
            return Poll::Ready(false);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_takes_no_more_than_its_limit() {
        let queue = CompletionQueue::default();
        queue.push(&mut (0..20).map(Event::End).collect());
        let (events, left) = queue.take(16);
        assert_eq!((events.len(), left), (16, 4));
        assert!(queue.wait());
        queue.close();
        assert_eq!(queue.take(16).0.len(), 4);
        assert!(!queue.wait());
    }
}
