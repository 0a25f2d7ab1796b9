//! Runs a program for its output, with limits on its time and its output.
//!
//! A program may hang, print for ever, or leave children that hold its output open. So it gets a
//! process group of its own, which is killed when the time is up, and every wait has a timeout.
//! This module reads a clock for the timeouts.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// The time in which a killed program should be gone. A program that is stuck in the kernel takes
/// longer, and is reaped later.
const PATIENCE_AFTER_KILL: Duration = Duration::from_secs(1);

/// The interval at which a program that has closed its output is checked for its end.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The result of a program that ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) output: Vec<u8>,
    pub(crate) status: ExitStatus,
}

/// The reason why there is no output.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It could not be started.
    Start(io::Error),
    /// Reading its output or waiting for it failed.
    Io(io::Error),
    /// It took longer than this time.
    Slow(Duration),
    /// It printed more than this many bytes.
    Long(usize),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(e) => write!(f, "cannot be started: {e}"),
            Self::Io(e) => write!(f, "its output cannot be read: {e}"),
            Self::Slow(limit) => {
                write!(f, "took longer than {} s and was killed", limit.as_secs_f64())
            }
            Self::Long(limit) => write!(f, "printed more than {limit} bytes and was killed"),
        }
    }
}

/// Programs that were killed and are not gone yet. They are reaped whenever another program runs.
#[derive(Debug, Default)]
pub(crate) struct Lingering(Vec<Child>);

impl Lingering {
    /// Reaps the programs that are gone, and returns the number of those that are left.
    pub(crate) fn reap(&mut self) -> usize {
        self.0.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.0.len()
    }
}

/// The longest time that [`run`] takes with this `time`, including killing.
pub(crate) fn longest(time: Duration) -> Duration {
    time + PATIENCE_AFTER_KILL
}

/// Runs `command` without input, for at most `time` and `max_bytes` of output.
pub(crate) fn run(
    command: &mut Command,
    time: Duration,
    max_bytes: usize,
    lingering: &mut Lingering,
) -> Result<Outcome, Failed> {
    let end = Instant::now() + time;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(Failed::Start)?;
    let outcome = match child.stdout.take() {
        Some(stdout) => read(stdout, end, time, max_bytes),
        None => Ok(Vec::new()),
    };
    let outcome = outcome.and_then(|output| match exited(&mut child, end).map_err(Failed::Io)? {
        Some(status) => Ok(Outcome { output, status }),
        None => Err(Failed::Slow(time)),
    });
    if outcome.is_err() {
        kill(child, lingering);
    }
    outcome
}

fn read(
    mut stdout: ChildStdout,
    end: Instant,
    time: Duration,
    max_bytes: usize,
) -> Result<Vec<u8>, Failed> {
    let mut output = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failed::Slow(time));
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut readable = [PollFd::new(&stdout, PollFlags::IN)];
        match poll(&mut readable, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(Failed::Io(e.into())),
        }
        match stdout.read(&mut chunk) {
            Ok(0) => return Ok(output),
            Ok(n) if output.len() + n > max_bytes => return Err(Failed::Long(max_bytes)),
            Ok(n) => output.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Failed::Io(e)),
        }
    }
}

/// Returns the exit status once the program is gone; `None` if it is still there at `end`.
fn exited(child: &mut Child, end: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn kill(mut child: Child, lingering: &mut Lingering) {
    // The child is not reaped yet, so its id does not belong to another process.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if !matches!(exited(&mut child, Instant::now() + PATIENCE_AFTER_KILL), Ok(Some(_))) {
        lingering.0.push(child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, time: Duration, max_bytes: usize) -> (Result<Outcome, Failed>, usize) {
        let mut lingering = Lingering::default();
        let ran = run(Command::new("sh").args(["-c", script]), time, max_bytes, &mut lingering);
        (ran, lingering.reap())
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(200);

    #[test]
    fn output_and_status_are_returned() {
        let (ran, _) = sh("printf hello; exit 68", LONG, 100);
        let ran = ran.expect("it ends");
        assert_eq!((ran.output.as_slice(), ran.status.code()), (&b"hello"[..], Some(68)));
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        for script in ["sleep 1000", "sleep 1000 & sleep 1000", "exec >&-; sleep 1000"] {
            let (ran, left) = sh(script, SHORT, 100);
            assert!(matches!(ran, Err(Failed::Slow(_))), "{script}: {ran:?}");
            assert_eq!(left, 0, "{script}");
        }
    }

    #[test]
    fn a_program_that_prints_too_much_is_killed() {
        let (ran, left) = sh("yes", LONG, 100_000);
        assert!(matches!(ran, Err(Failed::Long(100_000))), "{ran:?}");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_missing_program_cannot_be_started() {
        let mut lingering = Lingering::default();
        let ran = run(&mut Command::new("/nonexistent/program"), LONG, 1, &mut lingering);
        assert!(matches!(ran, Err(Failed::Start(_))), "{ran:?}");
    }
}
