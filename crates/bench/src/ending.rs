//! The end of a benchmark by a signal: its children and its labs end with it.
//!
//! # Invariants
//! - The handler of a signal stores its number. No lab and no process of `child` is started after that.
//! - A thread ends the children. The thread that measures then fails, and has [`GRACE`] to remove its lab as after any failure.
//!   The first thread removes what is left, and ends the program with the exit code 128 + the number of the signal.
//! - The thread that measures calls [`pass`] before it reports, so a measurement that was cut short is not reported.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use skopos_model::unpoisoned;
use skopos_net::lab::{Lab, Topology, down};
use skopos_term::{Failure, tell};

use crate::scratch;

/// Time for children to end by themselves: an agent writes its last samples, and Cassandra its commit log.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time for the kernel to remove children that were killed. One that waits for a disk may take longer.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Time for the thread that measures to notice that its children are gone, and to remove its lab. It may be asleep: the
/// longest pause of a benchmark with a lab is 6 s.
const GRACE: Duration = Duration::from_secs(10);

/// Attempts to remove a lab. The thread that measures may remove the same lab at the same time.
const ATTEMPTS: usize = 3;

/// Time between two looks, and between two attempts.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The number of the signal that ends the program; 0 before it.
static SIGNAL: AtomicUsize = AtomicUsize::new(0);

/// True once the thread that measures has removed all that it made.
static HAS_PASSED: AtomicBool = AtomicBool::new(false);

/// The names of all labs of this process, also of those that are removed.
static LABS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Catches SIGINT, SIGTERM and SIGHUP from here on. A signal that the caller of the program ignores stays ignored, as
/// `nohup` wants it.
///
/// # Errors
/// A handler cannot be installed, or a thread cannot be started.
pub(crate) fn catch() -> Result<(), Failure> {
    install().map_err(|e| Failure::new("cannot catch signals").because(&e))
}

fn install() -> io::Result<()> {
    let ignored = ignored();
    let (mut woken, wake) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if ignored & (1 << (signal - 1)) != 0 {
            continue;
        }
        // Handlers run in this order: the thread is woken after the number is stored.
        flag::register_usize(signal, &SIGNAL, signal as usize)?;
        pipe::register(signal, wake.try_clone()?)?;
    }
    let wait = move || {
        // Without a handler, the stream ends here, and there is nothing to wait for.
        if woken.read_exact(&mut [0]).is_ok() {
            end();
        }
    };
    thread::Builder::new().name("ending".to_owned()).spawn(wait).map(drop)
}

/// Returns the signals that this process ignores: bit n - 1 is that of signal n.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Does nothing, unless a signal ends the program.
///
/// # Errors
/// A signal ends the program.
pub(crate) fn check() -> io::Result<()> {
    not_ended(&SIGNAL)
}

fn not_ended(signal: &AtomicUsize) -> io::Result<()> {
    match signal.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(io::Error::other(format!("signal {signal} ends the benchmark"))),
    }
}

/// Builds the lab that `text` describes, which a signal removes.
///
/// # Errors
/// A signal ends the program; the errors of [`Topology::parse`] and [`Lab::up`].
pub(crate) fn lab(text: &str) -> io::Result<Lab> {
    let topology = Topology::parse(text).map_err(io::Error::other)?;
    note(&topology.name, &LABS, &SIGNAL)?;
    Lab::up(topology).map_err(io::Error::other)
}

/// Adds the name of a lab. The look at the signal is under the lock: a thread that ends the program has the name, or this one
/// sees the signal.
fn note(name: &str, labs: &Mutex<Vec<String>>, signal: &AtomicUsize) -> io::Result<()> {
    let mut labs = unpoisoned(labs.lock());
    not_ended(signal)?;
    labs.push(name.to_owned());
    Ok(())
}

/// Marks the end of all measuring. Does not return if a signal ends the program.
pub(crate) fn pass() {
    HAS_PASSED.store(true, Ordering::Relaxed);
    while check().is_err() {
        thread::park();
    }
}

/// Ends the program after a signal.
fn end() -> ! {
    let signal = SIGNAL.load(Ordering::Relaxed);
    tell(format!("signal {signal}: the benchmark ends its children and removes its lab …"));
    let had_children = end_children(getpid());
    let labs = unpoisoned(LABS.lock()).clone();
    if had_children || !labs.is_empty() {
        let since = Instant::now();
        while !HAS_PASSED.load(Ordering::Relaxed) && since.elapsed() < GRACE {
            thread::sleep(LOOK_EVERY);
        }
    }
    for lab in labs {
        remove(&lab);
    }
    // The thread that measures may have started a short command meanwhile.
    end_children(getpid());
    scratch::remove_own();
    // The numbers of signals are below 65.
    std::process::exit(128 + signal as i32)
}

/// Removes a lab, and says so if it cannot be removed. A lab that is gone already is not an error.
fn remove(lab: &str) {
    let mut outcome = down(lab);
    for _ in 1..ATTEMPTS {
        if outcome.is_err() {
            thread::sleep(LOOK_EVERY);
            outcome = down(lab);
        }
    }
    if let Err(e) = outcome {
        tell(format!("warning: the lab is left: {e}; `skopos lab down {lab}` removes it"));
    }
}

/// Ends the children that a process has now: first by SIGTERM, then by SIGKILL. Returns true if there were any.
fn end_children(parent: Pid) -> bool {
    let children = children(parent);
    for (signal, patience) in [(Signal::TERM, PATIENCE), (Signal::KILL, KILL_PATIENCE)] {
        for (_, handle) in &children {
            // It may have ended by itself.
            let _ = pidfd_send_signal(handle, signal);
        }
        let since = Instant::now();
        while children.iter().any(|(pid, _)| parent_of(*pid) == Some(parent)) {
            if since.elapsed() >= patience {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
    !children.is_empty()
}

/// Returns the children of a process that run, with handles.
fn children(parent: Pid) -> Vec<(Pid, OwnedFd)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children = pids.filter_map(Pid::from_raw).filter_map(|pid| {
        // The handle comes first: if the process with this id is a child after that, the handle is not of a later process.
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (parent_of(pid) == Some(parent)).then_some((pid, handle))
    });
    children.collect()
}

/// Returns the parent of a process that runs; `None` for one that has ended, also if it is not reaped yet.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, field 2, is in parentheses and may have spaces. State and parent follow it.
    let (_, after_command) = stat.rsplit_once(')')?;
    let mut words = after_command.split_whitespace();
    let state = words.next()?;
    let parent = Pid::from_raw(words.next()?.parse().ok()?)?;
    (state != "Z").then_some(parent)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// Time that only ends a hang.
    const START_PATIENCE: Duration = Duration::from_secs(180);

    #[test]
    fn a_lab_is_noted_before_a_signal_or_not_at_all() {
        let (labs, signal) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let noted = thread::scope(|scope| {
            let held = unpoisoned(labs.lock());
            let noted = scope.spawn(|| note("late", &labs, &signal));
            // The thread waits for the lock by then; if it is slow, it sees the signal all the same.
            thread::sleep(LOOK_EVERY);
            signal.store(15, Ordering::Relaxed);
            drop(held);
            noted.join().expect("no panic")
        });
        assert!(noted.is_err() && unpoisoned(labs.lock()).is_empty());
    }

    /// Starts a shell, and waits until it has so many children.
    fn shell(script: &str, count: usize) -> (Child, Pid) {
        let child = Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        let pid = Pid::from_child(&child);
        let begun = Instant::now();
        while children(pid).len() < count {
            assert!(begun.elapsed() < START_PATIENCE, "the shell starts no children");
            thread::sleep(LOOK_EVERY);
        }
        (child, pid)
    }

    #[test]
    fn the_children_of_a_process_end_and_those_of_others_run_on() {
        let (mut shell_of_two, two) = shell("sleep 600 & sleep 600 & wait", 2);
        let (mut other, one) = shell("sleep 600 & wait", 1);
        assert!(end_children(two));
        assert!(children(two).is_empty());
        shell_of_two.wait().expect("it has nothing to wait for");
        assert_eq!(children(one).len(), 1);
        assert!(end_children(one));
        other.wait().expect("it has nothing to wait for");
        assert!(!end_children(one), "it is gone");
    }
}
