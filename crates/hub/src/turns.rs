//! Turns: work of a kind that is done at one time, with a part of it for each caller.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use skopos_access::Caller;
use skopos_model::unpoisoned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Gives turns to callers: first come, first served.
#[derive(Debug)]
pub struct Turns {
    all: Arc<Semaphore>,
    of_a_caller: usize,
    by_caller: Mutex<HashMap<Caller, Weak<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Returns `at_once` turns, of which one caller has at most `of_a_caller`: a caller with slow work leaves turns to
    /// others.
    #[must_use]
    pub fn new(at_once: usize, of_a_caller: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(at_once)), of_a_caller, by_caller: Mutex::default() }
    }

    /// Waits for a turn.
    pub async fn take(&self, caller: &Caller) -> Turn {
        // They fail only if the semaphores are closed, which they never are.
        let own = self.of(caller).acquire_owned().await.ok();
        Turn { _own: own, _all: self.all.clone().acquire_owned().await.ok() }
    }

    /// Returns the number of turns of a caller that are taken or waited for.
    #[cfg(test)]
    pub(crate) fn count(&self, caller: &Caller) -> usize {
        unpoisoned(self.by_caller.lock()).get(caller).map_or(0, Weak::strong_count)
    }

    fn of(&self, caller: &Caller) -> Arc<Semaphore> {
        let mut by_caller = unpoisoned(self.by_caller.lock());
        if let Some(turns) = by_caller.get(caller).and_then(Weak::upgrade) {
            return turns;
        }
        by_caller.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(self.of_a_caller));
        by_caller.insert(caller.clone(), Arc::downgrade(&turns));
        turns
    }
}

/// Wakes a thread that waits for a turn.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a turn on a thread without a runtime. Blocks.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn slow_work_of_a_caller_takes_no_turn_from_others() {
        let turns = Turns::new(4, 2);
        let _slow = [turns.take(&Caller::Anybody).await, turns.take(&Caller::Anybody).await];
        let soon = Duration::from_millis(10);
        assert!(tokio::time::timeout(soon, turns.take(&Caller::Anybody)).await.is_err());
        drop(turns.take(&Caller::Owner).await);
    }
}
