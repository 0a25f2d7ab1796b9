//! Admission: places for statements and point reads, and the bytes that answers hold.
//!
//! The place of a statement lasts from the first step of planning until the last byte of the answer is sent. A point read
//! that is not known as a small one has a place while it is parsed and read. Each caller has a number of places, and
//! waits for its own places before it waits for those that all share: so it never keeps others waiting for long.
//!
//! DataFusion counts what its operators keep, in a pool that all statements share. It counts neither the batches that
//! an expression builds nor what the allocator keeps. So the process itself is watched while statements run: when they
//! have made it grow too far, the youngest is stopped, and then the next.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
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
const MAX_STATEMENTS_OF_A_CALLER: usize = 32;

/// Number of point reads that are parsed or read at one time: one for each of their threads.
pub(crate) const MAX_READS: usize = 4;

/// Number of those of one caller, so that the reads of others never wait behind its own.
const MAX_READS_OF_A_CALLER: usize = 2;

/// Number of requests of one caller that wait for a place. Each holds its text.
const MAX_WAITING: usize = 256;

/// Time that a request waits for a place: a burst of short statements passes in it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes that the answers of one caller may hold: others always have a quarter of the pool.
const MAX_HELD_BY_A_CALLER: usize = MEMORY_BYTES / 4 * 3;

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

/// Gives places to statements and point reads.
#[derive(Debug)]
pub(crate) struct Admission {
    statements: Places,
    reads: Places,
    pool: Arc<dyn MemoryPool>,
    running: Arc<Running>,
}

/// Places for work of one kind.
#[derive(Debug)]
struct Places {
    all: Arc<Semaphore>,
    of_a_caller: usize,
    by_caller: Mutex<HashMap<Caller, Weak<Share>>>,
}

/// The places of one caller.
#[derive(Debug)]
struct Share {
    places: Arc<Semaphore>,
    waiting: Semaphore,
    /// Bytes that its answers hold.
    held: AtomicUsize,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    share: Arc<Share>,
    _permits: [OwnedSemaphorePermit; 2],
}

/// The statements that run, the oldest first.
#[derive(Debug, Default)]
struct Running {
    statements: Mutex<Vec<Arc<watch::Sender<bool>>>>,
    begun: Notify,
}

/// The bytes of an answer, and the right to plan and to run the statement if the planner answers it.
#[derive(Debug)]
pub(crate) struct Permit {
    answer: MemoryReservation,
    share: Arc<Share>,
    statement: Option<RunningStatement>,
}

#[derive(Debug)]
struct RunningStatement {
    stop: Arc<watch::Sender<bool>>,
    running: Arc<Running>,
    _place: Place,
}

impl Places {
    fn new(all: usize, of_a_caller: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_a_caller, by_caller: Mutex::default() }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// Too many requests have a place, and too many of this caller wait.
    async fn take(&self, caller: &Caller, patience: Duration) -> Result<Place, Error> {
        let share = self.share(caller);
        let waited = async {
            let _waiting = share.waiting.try_acquire().ok()?;
            let own = share.places.clone().acquire_owned().await.ok()?;
            Some([own, self.all.clone().acquire_owned().await.ok()?])
        };
        let permits = timeout(PATIENCE.min(patience), waited).await.ok().flatten();
        Ok(Place { _permits: permits.ok_or(Error::Busy)?, share })
    }

    /// Returns the places of a caller.
    fn share(&self, caller: &Caller) -> Arc<Share> {
        let mut by_caller = unpoisoned(self.by_caller.lock());
        if let Some(share) = by_caller.get(caller).and_then(Weak::upgrade) {
            return share;
        }
        by_caller.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Share {
            places: Arc::new(Semaphore::new(self.of_a_caller)),
            waiting: Semaphore::new(MAX_WAITING),
            held: AtomicUsize::new(0),
        });
        by_caller.insert(caller.clone(), Arc::downgrade(&share));
        share
    }
}

impl Admission {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self {
            statements: Places::new(MAX_STATEMENTS, MAX_STATEMENTS_OF_A_CALLER),
            reads: Places::new(MAX_READS, MAX_READS_OF_A_CALLER),
            pool,
            running: Arc::default(),
        }
    }

    /// Waits a moment for the place of a statement.
    ///
    /// # Errors
    /// Too many statements run, and too many wait.
    pub(crate) async fn admit(&self, caller: &Caller, deadline: Duration) -> Result<Permit, Error> {
        let place = self.statements.take(caller, deadline).await?;
        let (stop, _) = watch::channel(false);
        let stop = Arc::new(stop);
        unpoisoned(self.running.statements.lock()).push(stop.clone());
        self.running.begun.notify_one();
        let share = place.share.clone();
        let statement = RunningStatement { stop, running: self.running.clone(), _place: place };
        Ok(Permit { answer: self.nothing(), share, statement: Some(statement) })
    }

    /// Waits a moment for the place of a point read.
    ///
    /// # Errors
    /// Too many are read, and too many wait.
    pub(crate) async fn read(&self, caller: &Caller) -> Result<Place, Error> {
        self.reads.take(caller, PATIENCE).await
    }

    /// Counts the bytes of an answer without a statement, until the permit is dropped.
    ///
    /// # Errors
    /// The answers of the caller, or all together, hold too much.
    pub(crate) fn hold(&self, caller: &Caller, bytes: usize) -> Result<Permit, Error> {
        let share = self.statements.share(caller);
        let permit = Permit { answer: self.nothing(), share, statement: None };
        permit.hold(bytes)?;
        Ok(permit)
    }

    fn nothing(&self) -> MemoryReservation {
        MemoryConsumer::new("answer").register(&self.pool)
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
    /// The answers of the caller, or all statements together, hold too much.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Error> {
        let held = self.share.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let counted = match held > MAX_HELD_BY_A_CALLER {
            true => Err(exhausted("the answers of this caller hold too much")),
            false => self.answer.try_grow(bytes).map_err(Error::Memory),
        };
        counted.inspect_err(|_| {
            self.share.held.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    /// Waits until the guard stops the statement, and returns its error.
    pub(crate) async fn stopped(&self) -> Error {
        let Some(statement) = &self.statement else { return std::future::pending().await };
        let mut stop = statement.stop.subscribe();
        // This permit holds the sender.
        let _ = stop.wait_for(|is_stopped| *is_stopped).await;
        exhausted("the statements have made the process grow too far")
    }
}

fn exhausted(reason: &str) -> Error {
    Error::Memory(DataFusionError::ResourcesExhausted(reason.to_owned()))
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.share.held.fetch_sub(self.answer.size(), Ordering::Relaxed);
    }
}

impl Drop for RunningStatement {
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
        for _ in 0..MAX_STATEMENTS_OF_A_CALLER {
            held.push(admit(Caller::Anybody).await.expect("a place"));
        }
        assert!(matches!(admit(Caller::Anybody).await, Err(Error::Busy)));
        held.push(admit(Caller::Owner).await.expect("a place of its own"));
        held.swap_remove(0);
        admit(Caller::Anybody).await.expect("the place of the one that ended");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_a_caller_that_wait_keep_no_place_from_others() {
        let admission = admission();
        let flood = (0..2 * MAX_WAITING).map(|_| admission.admit(&Caller::Anybody, PATIENCE));
        let flood = futures_util::future::join_all(flood);
        let other = async {
            // The flood is polled first, so all of it waits by now.
            tokio::task::yield_now().await;
            let begun = tokio::time::Instant::now();
            let _statement = admission.admit(&Caller::Owner, PATIENCE).await.expect("a place");
            drop(admission.read(&Caller::Owner).await.expect("a place"));
            assert!(begun.elapsed().is_zero(), "at once");
        };
        let (flood, ()) = tokio::join!(biased; flood, other);
        let admitted = flood.iter().filter(|permit| permit.is_ok()).count();
        assert_eq!(admitted, MAX_STATEMENTS_OF_A_CALLER);
    }

    #[tokio::test]
    async fn the_answers_of_a_caller_leave_room_for_those_of_others() {
        let pool = GreedyMemoryPool::new(MEMORY_BYTES);
        let admission = Admission::new(Arc::new(pool));
        let held = admission.hold(&Caller::Anybody, MAX_HELD_BY_A_CALLER).expect("room");
        assert!(matches!(admission.hold(&Caller::Anybody, 1), Err(Error::Memory(_))));
        admission.hold(&Caller::Owner, MEMORY_BYTES / 4).expect("the room of others");
        drop(held);
        admission.hold(&Caller::Anybody, 1).expect("room again");
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
        let is_stopped =
            |permit: &Permit| permit.statement.as_ref().is_some_and(|s| *s.stop.borrow());
        assert!(!is_stopped(&older));
        admission.running.stop_youngest();
        assert!(is_stopped(&older), "the next one");
    }

    #[test]
    fn growth_is_counted_from_the_smallest_size() {
        let mut sizes = Sizes::default();
        assert_eq!([500, 700, 400, 900].map(|bytes| sizes.growth(bytes)), [0, 200, 0, 500]);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
