//! Threads that ask mounts for their free space, and may hang for ever.
//!
//! One thread asks all mounts in turn as long as they answer. Another thread starts when questions
//! wait and no answer has come for [`STALL`]; so there is one thread more than mounts that hang. A
//! thread whose question is answered late ends if another thread is idle.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use rustix::io::Errno;

use crate::capacity::Capacity;

/// The most mounts that are asked. A node of a container platform has a mount or two for each
/// container. Each may occupy a thread, and costs the server a request at each poll.
pub(crate) const MAX_MOUNTS: usize = 64;

/// The most threads: one for each mount. A thread that still waits for a mount which was removed
/// while it hung counts, too; only such threads can make this number too small.
pub(super) const MAX_ASKERS: usize = MAX_MOUNTS;

/// The time without an answer after which another thread starts. A server on the same network
/// answers in a millisecond.
const STALL: Duration = Duration::from_millis(50);

/// The stack of a thread, which makes one system call. What it does not touch costs no memory. The allocator needs most: with
/// 64 KiB, the first allocation of a thread went beyond the stack in a debug build.
const STACK_BYTES: usize = 256 << 10;

/// The answer to a question: `None` if the file system has no blocks to fill.
pub(super) type Answer = Result<Option<Capacity>, Errno>;

/// The function that asks a mount: [`Capacity::ask`], except in tests.
pub(super) type Ask = Box<dyn Fn(&CStr) -> Answer + Send + Sync>;

/// An answer, with the number of its question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) number: u64,
    pub(super) answer: Answer,
    /// The time that the answer took.
    pub(super) took: Duration,
}

/// The threads that ask, as many as necessary.
pub(super) struct Askers {
    shared: Arc<Shared>,
    next: u64,
    taken: Vec<Answered>,
}

struct Shared {
    ask: Ask,
    board: Mutex<Board>,
    /// A question waits, or no more questions will come.
    asked: Condvar,
    answered: Condvar,
}

#[derive(Default)]
struct Board {
    questions: VecDeque<(u64, Arc<CStr>)>,
    answers: Vec<Answered>,
    /// All threads, and those of them that wait for questions.
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Askers {
    pub(super) fn new(ask: Ask) -> Self {
        let (board, asked, answered) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { ask, board, asked, answered });
        Self { shared, next: 0, taken: Vec::new() }
    }

    /// Adds a question, and returns its number.
    pub(super) fn ask(&mut self, path: &Arc<CStr>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.shared.board().questions.push_back((number, Arc::clone(path)));
        number
    }

    /// Waits for at most `patience` until the last `count` questions are answered, and delivers
    /// their answers and older ones.
    pub(super) fn collect(
        &mut self,
        count: usize,
        patience: Duration,
        mut take: impl FnMut(&Answered),
    ) {
        let first = self.next - count as u64;
        let (mut left, end) = (count, Instant::now() + patience);
        let mut board = self.shared.board();
        if !board.questions.is_empty() {
            self.shared.asked.notify_one();
            self.shared.start_if_needed(&mut board);
        }
        loop {
            std::mem::swap(&mut board.answers, &mut self.taken);
            left -= self.taken.iter().filter(|answered| answered.number >= first).count();
            self.taken.drain(..).for_each(|answered| take(&answered));
            let patience = end.saturating_duration_since(Instant::now());
            if left == 0 || patience.is_zero() {
                return;
            }
            let waited = self.shared.answered.wait_timeout(board, patience.min(STALL));
            board = unpoisoned(waited).0;
            if board.answers.is_empty() && !board.questions.is_empty() {
                self.shared.start_if_needed(&mut board);
            }
        }
    }

    /// Number of questions that no thread has taken.
    pub(super) fn waiting(&self) -> usize {
        self.shared.board().questions.len()
    }
}

impl Drop for Askers {
    fn drop(&mut self) {
        self.shared.board().closed = true;
        self.shared.asked.notify_all();
    }
}

impl Shared {
    fn board(&self) -> MutexGuard<'_, Board> {
        unpoisoned(self.board.lock())
    }

    /// Starts a thread unless one is idle (or about to wake) or there are [`MAX_ASKERS`]. In the
    /// latter case questions wait for the existing threads, and are reported as not asked.
    fn start_if_needed(self: &Arc<Self>, board: &mut Board) {
        if board.idle > 0 || board.threads >= MAX_ASKERS {
            return;
        }
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name("skopos-ask".into()).stack_size(STACK_BYTES);
        board.threads += usize::from(builder.spawn(move || shared.serve()).is_ok());
    }

    fn serve(&self) {
        let mut answered = None;
        while let Some((number, path)) = self.question(answered.take()) {
            let started = Instant::now();
            let answer = (self.ask)(&path);
            answered = Some(Answered { number, answer, took: started.elapsed() });
        }
    }

    /// Stores an answer and takes the next question under one lock. So a caller that has the answer
    /// also sees that this thread is idle, and does not start another. Returns `None` if the thread
    /// is not needed any more.
    fn question(&self, answered: Option<Answered>) -> Option<(u64, Arc<CStr>)> {
        let mut board = self.board();
        if let Some(answered) = answered {
            board.answers.push(answered);
            self.answered.notify_one();
        }
        loop {
            let question = board.questions.pop_front().filter(|_| !board.closed);
            if question.is_some() {
                return question;
            }
            if board.closed || board.idle > 0 {
                board.threads -= 1;
                return None;
            }
            board.idle += 1;
            board = unpoisoned(self.asked.wait(board));
            board.idle -= 1;
        }
    }
}
