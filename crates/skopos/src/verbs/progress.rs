//! A line on standard error that counts, where standard error is a terminal.

use std::cell::Cell;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// The shortest time between two updates of the line.
const EVERY: Duration = Duration::from_millis(200);

/// The line of one command.
pub(super) struct Progress {
    /// The things that are counted: `reports read`.
    counted: &'static str,
    is_terminal: bool,
    /// Time of the next update; the first comes after one period, so a short command shows no line.
    due: Cell<Instant>,
    is_shown: Cell<bool>,
}

impl Progress {
    pub(super) fn new(counted: &'static str) -> Self {
        Self {
            counted,
            is_terminal: std::io::stderr().is_terminal(),
            due: Cell::new(Instant::now() + EVERY),
            is_shown: Cell::new(false),
        }
    }

    pub(super) fn show(&self, count: u64) {
        if !self.is_terminal || Instant::now() < self.due.get() {
            return;
        }
        self.due.set(Instant::now() + EVERY);
        self.is_shown.set(true);
        let _ = write!(std::io::stderr(), "\r\x1b[K{count} {}", self.counted);
    }

    pub(super) fn clear(&self) {
        if self.is_shown.get() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
