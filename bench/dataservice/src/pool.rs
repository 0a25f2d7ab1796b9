//! User-level tasks in a pool, which *execution streams* (threads) execute in the order in which they became ready.
//!
//! A task is a future. It leaves its execution stream where it waits for a call, and stays on it while it computes,
//! sleeps or waits for a database.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;

use crate::error::{Error, Result};

type Body = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A pool of tasks with its execution streams. Tasks that are not done when the pool is dropped are dropped.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    streams: Vec<JoinHandle<()>>,
}

/// The side of a pool that starts tasks and counts them.
#[derive(Clone, Debug)]
pub struct Tasks {
    shared: Arc<Shared>,
}

#[derive(Default, Debug)]
struct Shared {
    ready: Mutex<Ready>,
    changed: Condvar,
    /// Tasks that are not done.
    live: AtomicU64,
    /// Tasks on an execution stream.
    running: AtomicU64,
    /// Tasks on an execution stream that wait there, for a database.
    waiting: AtomicU64,
}

#[derive(Default, Debug)]
struct Ready {
    tasks: VecDeque<Arc<Task>>,
    is_closed: bool,
}

struct Task {
    body: Mutex<Option<Body>>,
    /// Whether the task is in the queue.
    is_queued: AtomicBool,
    pool: Arc<Shared>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Task")
    }
}

impl Pool {
    /// Starts `streams` execution streams, named after `name`.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(name: &str, streams: u32) -> Result<Self> {
        let mut pool = Self { shared: Arc::default(), streams: Vec::new() };
        for number in 0..streams {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("{name}-es{number}"))
                .spawn(move || shared.execute())
                .map_err(Error::io("start an execution stream"))?;
            pool.streams.push(thread);
        }
        Ok(pool)
    }

    /// Returns the side that starts tasks.
    #[must_use]
    pub fn tasks(&self) -> Tasks {
        Tasks { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let left = {
            let mut ready = self.shared.lock();
            ready.is_closed = true;
            std::mem::take(&mut ready.tasks)
        };
        self.shared.changed.notify_all();
        // A task may own the last handle of something whose end locks the queue.
        drop(left);
        for stream in self.streams.drain(..) {
            // A stream that broke has printed its reason.
            let _ = stream.join();
        }
    }
}

impl Tasks {
    /// Adds a task to the end of the queue. A closed pool drops it.
    pub fn spawn(&self, body: impl Future<Output = ()> + Send + 'static) {
        let task = Arc::new(Task {
            body: Mutex::new(Some(Box::pin(body))),
            is_queued: AtomicBool::new(true),
            pool: Arc::clone(&self.shared),
        });
        self.shared.live.fetch_add(1, Ordering::Relaxed);
        self.shared.push(task);
    }

    /// Number of tasks that wait for an execution stream.
    #[must_use]
    pub fn runnable(&self) -> u64 {
        self.shared.lock().tasks.len() as u64
    }

    /// Number of tasks that are not done.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.shared.live.load(Ordering::Relaxed)
    }

    /// Number of tasks that wait for something else than an execution stream: a call of theirs, or a database.
    #[must_use]
    pub fn blocked(&self) -> u64 {
        let running = self.shared.running.load(Ordering::Relaxed);
        let off = self.depth().saturating_sub(running).saturating_sub(self.runnable());
        off + self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Counts the calling task as blocked while `wait` runs.
    pub fn while_blocked<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let result = wait();
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, task: Arc<Task>) {
        let mut ready = self.lock();
        if ready.is_closed {
            drop(ready);
            drop(task);
            return;
        }
        ready.tasks.push_back(task);
        drop(ready);
        self.changed.notify_one();
    }

    /// The loop of an execution stream.
    fn execute(&self) {
        while let Some(task) = self.next() {
            self.running.fetch_add(1, Ordering::Relaxed);
            task.run();
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn next(&self) -> Option<Arc<Task>> {
        let mut ready = self.lock();
        loop {
            if ready.is_closed {
                return None;
            }
            if let Some(task) = ready.tasks.pop_front() {
                return Some(task);
            }
            ready = self.changed.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Task {
    fn run(self: Arc<Self>) {
        // A wake-up from here on queues the task again: its poll may have passed the place that changed.
        self.is_queued.store(false, Ordering::Release);
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(future) = body.as_mut() else { return };
        let waker = Waker::from(Arc::clone(&self));
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            *body = None;
            self.pool.live.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            let pool = Arc::clone(&self.pool);
            pool.push(self);
        }
    }
}

/// Moves the calling task to the end of the queue.
pub async fn yield_now() {
    let mut is_first = true;
    std::future::poll_fn(|context| {
        if std::mem::take(&mut is_first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// Runs `body` as a task of `tasks`, and blocks the calling thread until it is done. `None` if the pool was closed.
pub fn run<T: Send + 'static>(
    tasks: &Tasks,
    body: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    tasks.spawn(async move {
        // The receiver waits below.
        let _ = sender.send(body.await);
    });
    receiver.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_yields_lets_the_others_run_first() {
        let pool = Pool::start("test", 1).expect("a pool");
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut done = Vec::new();
        let (gate, gate_opens) = std::sync::mpsc::channel::<()>();
        // Holds the only stream until both tasks are queued.
        pool.tasks().spawn(async move {
            let _ = gate_opens.recv();
        });
        for name in ["a", "b"] {
            let (sender, receiver) = std::sync::mpsc::channel();
            let order = Arc::clone(&order);
            pool.tasks().spawn(async move {
                for _ in 0..2 {
                    order.lock().expect("order").push(name);
                    yield_now().await;
                }
                let _ = sender.send(());
            });
            done.push(receiver);
        }
        gate.send(()).expect("the gate");
        for receiver in done {
            receiver.recv().expect("a task");
        }
        assert_eq!(*order.lock().expect("order"), ["a", "b", "a", "b"]);
    }

    #[test]
    fn tasks_of_many_streams_are_all_done_once() {
        let pool = Pool::start("test", 4).expect("a pool");
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..500 {
            let sender = sender.clone();
            pool.tasks().spawn(async move {
                for _ in 0..3 {
                    yield_now().await;
                }
                let _ = sender.send(number);
            });
        }
        let mut seen: Vec<i32> = (0..500).map(|_| receiver.recv().expect("a task")).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..500).collect::<Vec<_>>());
        assert_eq!(run(&pool.tasks(), async { 5 }), Some(5));
    }

    #[test]
    fn tasks_of_a_dropped_pool_are_dropped() {
        let pool = Pool::start("test", 1).expect("a pool");
        let tasks = pool.tasks();
        drop(pool);
        assert_eq!(run(&tasks, async { 5 }), None);
    }
}
