//! Threads that ask mounts how full they are, and may never come back.
//!
//! One thread serves all mounts in turn as long as they answer. Another is started when none has
//! answered for [`STALL`] while questions wait; so there is one more than mounts that hang. A thread
//! that comes back to an idle one ends.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use rustix::io::Errno;

use crate::capacity::Capacity;

/// The most threads: as many as mounts are asked. Those that wait for mounts which were taken away
/// while they hung count as well, and only they can make it too few.
pub(super) const MAX_ASKERS: usize = super::MAX_MOUNTS;

/// How long the threads at work may be without an answer before another joins them. A server on the
/// same network answers in a millisecond.
const STALL: Duration = Duration::from_millis(50);

/// Stack of a thread, which makes one system call: one that hangs for ever should not cost much.
const STACK_BYTES: usize = 64 << 10;

/// What comes of a question: `None` if the file system has no blocks to fill.
pub(super) type Answer = Result<Option<Capacity>, Errno>;

/// How a mount is asked: [`Capacity::ask`], but in tests.
pub(super) type Ask = Box<dyn Fn(&CStr) -> Answer + Send + Sync>;

/// An answer, with the number of its question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) number: u64,
    pub(super) answer: Answer,
    /// How long it took.
    pub(super) took: Duration,
}

/// The threads, as many as it takes.
pub(super) struct Askers {
    shared: Arc<Shared>,
    next: u64,
    taken: Vec<Answered>,
}

struct Shared {
    ask: Ask,
    board: Mutex<Board>,
    /// There is a question, or nobody will ask any more.
    asked: Condvar,
    answered: Condvar,
}

#[derive(Default)]
struct Board {
    questions: VecDeque<(u64, Arc<CStr>)>,
    answers: Vec<Answered>,
    /// Threads, and those of them that wait for questions.
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

    /// Puts a question, which gets a number of its own.
    pub(super) fn ask(&mut self, path: &Arc<CStr>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.shared.board().questions.push_back((number, Arc::clone(path)));
        number
    }

    /// Waits at most for `patience` until the last `count` questions are answered, and hands over
    /// these and older answers.
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

    /// How many questions no thread has taken up.
    pub(super) fn untaken(&self) -> usize {
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

    /// Starts a thread if none is idle (or about to wake) and there may be another. If there cannot,
    /// questions wait for those that there are, and are told as not taken up.
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

    /// Hands in an answer and takes the next question in one step, so that whoever sees the answer
    /// sees this thread idle too and starts no other. `None` for a thread that is not needed any more.
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
