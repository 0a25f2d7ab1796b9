//! Runs a program for an event, without a shell.
//!
//! The program is in a process group of its own, which is ended as a whole: at the timeout, when the hub ends, and when the
//! program has ended and left processes behind. A process that leaves the group by itself (`setsid`) is not followed.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::payload::Payload;
use crate::config::Command;

/// Folders in which programs are found. The environment of the hub may have secrets, so a program does not get it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Time between two checks of whether the hub ends.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Runs the program and waits for its end, at most for its timeout. Returns `None` if the hub ends before, so that nothing is known
/// about the outcome.
///
/// # Errors
/// The reason why it did not succeed.
pub(super) fn run(
    command: &Command,
    payload: &Payload<'_>,
    stop: &AtomicBool,
) -> Option<Result<(), String>> {
    let mut child = match start(command, payload) {
        Ok(child) => child,
        Err(why) => return Some(Err(why)),
    };
    let ended = wait(&child, command.timeout, stop);
    // The group is ended before its leader is waited for: until then no other process can have its number.
    if let Some(group) = pid(&child) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait();
    let program = command.argv.first().map_or("", String::as_str);
    Some(match (ended?, status) {
        (Err(why), _) => Err(format!("{program} {why}")),
        (Ok(()), Err(e)) => Err(format!("{program} cannot be waited for: {e}")),
        (Ok(()), Ok(status)) if status.success() => Ok(()),
        (Ok(()), Ok(status)) => Err(format!("{program}: {status}")),
    })
}

fn start(command: &Command, payload: &Payload<'_>) -> Result<Child, String> {
    let [program, arguments @ ..] = command.argv.as_slice() else {
        return Err("the command is empty".to_owned());
    };
    let child = std::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .envs(payload.variables())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|e| format!("{program} cannot be started: {e}"))?;
    if let Some(mut input) = child.stdin.take() {
        // A pipe has room for the whole document, so this does not wait. A program need not read it.
        let _ = input.write_all(&payload.json());
    }
    Ok(child)
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id().cast_signed())
}

/// Waits until the program has ended, and does not take its status. Returns `None` if the hub ends before.
fn wait(child: &Child, timeout: Duration, stop: &AtomicBool) -> Option<Result<(), String>> {
    let watched = pid(child).ok_or_else(|| "has no process".to_owned());
    let watched = watched.and_then(|pid| {
        pidfd_open(pid, PidfdFlags::empty()).map_err(|e| format!("cannot be watched: {e}"))
    });
    let watched = match watched {
        Ok(watched) => watched,
        Err(why) => return Some(Err(why)),
    };
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(&watched, PollFlags::IN)];
        let pause = Timespec::try_from(left.min(CHECK_EVERY)).ok();
        match poll(&mut fds, pause.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Some(Ok(())),
            Err(e) => return Some(Err(format!("cannot be watched: {e}"))),
        }
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        if left.is_zero() {
            return Some(Err(format!("did not end within {timeout:?}")));
        }
    }
}
