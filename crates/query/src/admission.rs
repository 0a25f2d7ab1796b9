//! Admission of statements that the planner answers: permits, and the bytes that an answer holds.
//!
//! A permit lasts from the first step of planning until the last byte of the answer is sent. Point reads take
//! microseconds on threads of their own, and need none.
//!
//! DataFusion counts what its operators keep, in a pool that all statements share. It counts neither the batches that
//! an expression builds nor what the allocator keeps. So the process itself is watched while statements run: when they
//! have made it grow too far, the youngest is stopped, and then the next.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use skopos_access::Caller;
use skopos_model::unpoisoned;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::error::Error;
use crate::limits::MEMORY_BYTES;

/// Number of statements that are planned or run at one time. More would only share the same cores.
const MAX_STATEMENTS: usize = 64;

/// Number of those of one caller, so that others always find a place.
const MAX_OF_A_CALLER: usize = 32;

/// Number of statements that wait for a permit. Each holds its text.
const MAX_WAITING: usize = 256;

/// Time that a statement waits for a permit: a burst of short statements passes in it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes by which all statements together may make the process grow: what the pool counts, and as much again for what
/// it does not.
const MAX_GROWTH: usize = 2 * MEMORY_BYTES;

/// Time between two looks at the size of the process: an attacker fills some 100 MiB in it.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Looks between two statements that are stopped: a statement ends where it yields, and memory returns after that.
const LOOKS_TO_END: u32 = 4;

/// Time for which the smallest size of the process counts as its size without statements. It is longer than the
/// deadline of most, and in it a hub grows little by itself.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Gives permits to statements.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Arc<Semaphore>,
    waiting: Semaphore,
    by_caller: Mutex<HashMap<Caller, Weak<Semaphore>>>,
    pool: Arc<dyn MemoryPool>,
    running: Arc<Running>,
}

/// The statements that run, the oldest first.
#[derive(Debug, Default)]
struct Running {
    statements: Mutex<Vec<Arc<watch::Sender<bool>>>>,
    begun: Notify,
}

/// The right to plan and to run one statement, and the bytes of its answer.
#[derive(Debug)]
pub(crate) struct Permit {
    answer: MemoryReservation,
    stop: Arc<watch::Sender<bool>>,
    running: Arc<Running>,
    _permits: [OwnedSemaphorePermit; 2],
    _share: Arc<Semaphore>,
}

impl Admission {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_STATEMENTS)),
            waiting: Semaphore::new(MAX_WAITING),
            by_caller: Mutex::default(),
            pool,
            running: Arc::default(),
        }
    }

    /// Waits a moment for a permit.
    ///
    /// # Errors
    /// Too many statements run, and too many wait.
    pub(crate) async fn admit(&self, caller: &Caller, deadline: Duration) -> Result<Permit, Error> {
        let share = self.share(caller);
        let waited = async {
            let _waiting = self.waiting.try_acquire().ok()?;
            let own = share.clone().acquire_owned().await.ok()?;
            Some([own, self.all.clone().acquire_owned().await.ok()?])
        };
        let permits = timeout(PATIENCE.min(deadline), waited).await.ok().flatten();
        let permits = permits.ok_or(Error::Busy)?;
        let (stop, _) = watch::channel(false);
        let stop = Arc::new(stop);
        unpoisoned(self.running.statements.lock()).push(stop.clone());
        self.running.begun.notify_one();
        let answer = MemoryConsumer::new("answer").register(&self.pool);
        Ok(Permit { answer, stop, running: self.running.clone(), _permits: permits, _share: share })
    }

    /// Returns the permits of a caller.
    fn share(&self, caller: &Caller) -> Arc<Semaphore> {
        let mut by_caller = unpoisoned(self.by_caller.lock());
        if let Some(share) = by_caller.get(caller).and_then(Weak::upgrade) {
            return share;
        }
        by_caller.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(MAX_OF_A_CALLER));
        by_caller.insert(caller.clone(), Arc::downgrade(&share));
        share
    }

    /// Returns the work of the guard: it stops statements that make the process grow too far. It never ends.
    pub(crate) fn guard(&self) -> impl Future<Output = ()> + Send + use<> {
        let running = self.running.clone();
        async move {
            let mut sizes = Sizes::default();
            let mut patience = 0;
            loop {
                let are_any = !unpoisoned(running.statements.lock()).is_empty();
                if !are_any {
                    running.begun.notified().await;
                }
                let growth = resident_bytes().map_or(0, |bytes| sizes.growth(bytes));
                if growth <= MAX_GROWTH {
                    patience = 0;
                } else if patience > 0 {
                    patience -= 1;
                } else {
                    running.stop_youngest();
                    patience = LOOKS_TO_END;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
}

impl Running {
    fn stop_youngest(&self) {
        let statements = unpoisoned(self.statements.lock());
        if let Some(youngest) = statements.iter().rev().find(|stop| !*stop.borrow()) {
            youngest.send_replace(true);
        }
    }
}

impl Permit {
    /// Counts bytes of the answer, until the permit is dropped.
    ///
    /// # Errors
    /// All statements together hold too much.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Error> {
        self.answer.try_grow(bytes).map_err(Error::Memory)
    }

    /// Waits until the guard stops the statement, and returns its error.
    pub(crate) async fn stopped(&self) -> Error {
        let mut stop = self.stop.subscribe();
        // This permit holds the sender.
        let _ = stop.wait_for(|is_stopped| *is_stopped).await;
        let reason = "the statements have made the process grow too far".to_owned();
        Error::Memory(DataFusionError::ResourcesExhausted(reason))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut statements = unpoisoned(self.running.statements.lock());
        statements.retain(|stop| !Arc::ptr_eq(stop, &self.stop));
    }
}

/// The smallest sizes of the process in two stretches of time, this one and the one before.
#[derive(Debug, Default)]
struct Sizes {
    now: Option<(Instant, usize)>,
    before: Option<usize>,
}

impl Sizes {
    /// Returns the bytes by which the process is larger than it was.
    fn growth(&mut self, bytes: usize) -> usize {
        let least = match &mut self.now {
            Some((began, least)) if began.elapsed() < REMEMBERED => {
                *least = bytes.min(*least);
                *least
            }
            now => {
                self.before = now.take().map(|(_, least)| least);
                *now = Some((Instant::now(), bytes));
                bytes
            }
        };
        bytes - self.before.map_or(least, |before| before.min(least))
    }
}

/// Returns the bytes of memory that the process has; `None` if the system does not say.
fn resident_bytes() -> Option<usize> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    fn admission() -> Admission {
        Admission::new(Arc::new(GreedyMemoryPool::new(1000)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_cannot_take_the_places_of_others() {
        let admission = admission();
        let admit = |caller| {
            let admission = &admission;
            async move { admission.admit(&caller, Duration::MAX).await }
        };
        let mut held = Vec::new();
        for _ in 0..MAX_OF_A_CALLER {
            held.push(admit(Caller::Anybody).await.expect("a place"));
        }
        assert!(matches!(admit(Caller::Anybody).await, Err(Error::Busy)));
        held.push(admit(Caller::Owner).await.expect("a place of its own"));
        held.swap_remove(0);
        admit(Caller::Anybody).await.expect("the place of the one that ended");
    }

    #[tokio::test]
    async fn an_answer_holds_its_bytes_until_its_permit_is_dropped() {
        let admission = admission();
        let permit = admission.admit(&Caller::Owner, PATIENCE).await.expect("a place");
        permit.hold(800).expect("room");
        let other = admission.admit(&Caller::Owner, PATIENCE).await.expect("a place");
        assert!(matches!(other.hold(800), Err(Error::Memory(_))));
        drop(permit);
        other.hold(800).expect("room again");
    }

    #[tokio::test]
    async fn the_youngest_statement_is_stopped_first() {
        let admission = admission();
        let older = admission.admit(&Caller::Owner, PATIENCE).await.expect("a place");
        let younger = admission.admit(&Caller::Owner, PATIENCE).await.expect("a place");
        admission.running.stop_youngest();
        assert!(matches!(younger.stopped().await, Error::Memory(_)));
        assert!(!*older.stop.borrow());
        admission.running.stop_youngest();
        assert!(*older.stop.borrow(), "the next one");
    }

    #[test]
    fn growth_is_counted_from_the_smallest_size() {
        let mut sizes = Sizes::default();
        assert_eq!([500, 700, 400, 900].map(|bytes| sizes.growth(bytes)), [0, 200, 0, 500]);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
