//! Work at the end of the process.

use std::sync::{Mutex, Once};

use skopos_model::unpoisoned;

use crate::sys;

/// Functions to call, in the order in which they were given.
static WORK: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Calls `work` when the process ends by returning from `main` or by `exit`. It does not run after a signal or `_exit`.
/// The same function is called once.
pub fn at_exit(work: fn()) {
    static REGISTERED: Once = Once::new();
    let mut all = unpoisoned(WORK.lock());
    if !all.iter().any(|known| std::ptr::fn_addr_eq(*known, work)) {
        all.push(work);
    }
    drop(all);
    REGISTERED.call_once(|| sys::at_exit(run));
}

extern "C" fn run() {
    let all: Vec<_> = unpoisoned(WORK.lock()).clone();
    for work in all {
        // A panic must not leave a function that C calls.
        let _ = std::panic::catch_unwind(work);
    }
}
