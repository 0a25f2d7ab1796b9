//! Runs a program for an event, without a shell.
//!
//! The program is in a process group of its own, which is ended as a whole: at the timeout, when the hub ends, and when the
//! program has ended and left processes behind. A process that leaves the group by itself (`setsid`) is not followed. A program
//! in a system call that cannot be interrupted, such as one that waits for a server of files, outlives the signal: the queue stops
//! waiting for it and reports it.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use skopos_model::unpoisoned;

use super::payload::Payload;
use crate::config::Command;

/// Folders in which programs are found. The environment of the hub may have secrets, so a program does not get it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Time between two checks of whether the hub ends.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Maximum time between the signal that kills a program and its end. A program that holds much memory takes about a second.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two checks of whether a program that was killed has ended.
const CHECK_KILLED_EVERY: Duration = Duration::from_millis(10);

/// Most programs of one rule that were killed and have not ended. Each holds its memory, and a further one would hang as well.
const MAX_UNENDED: usize = 4;

/// The programs that were killed and have not ended, with the names of their rules.
#[derive(Debug, Default)]
pub(super) struct Unended(Mutex<Vec<(String, Child)>>);

impl Unended {
    /// Takes the status of the programs that have ended, and returns the number of the others of a rule.
    fn reap(&self, rule: &str) -> usize {
        let mut all = unpoisoned(self.0.lock());
        all.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        all.iter().filter(|(of, _)| of == rule).count()
    }

    /// Waits at most `timeout` for the end of a program, and takes its status. Returns `None` if it has not ended.
    fn wait(
        &self,
        rule: &str,
        mut child: Child,
        timeout: Duration,
    ) -> Option<io::Result<ExitStatus>> {
        let until = Instant::now() + timeout;
        loop {
            match child.try_wait().transpose() {
                Some(ended) => return Some(ended),
                None if Instant::now() >= until => break,
                None => std::thread::sleep(CHECK_KILLED_EVERY),
            }
        }
        unpoisoned(self.0.lock()).push((rule.to_owned(), child));
        None
    }
}

/// Runs the program and waits for its end, at most for its timeout. Returns `None` if the hub ends before, so that nothing is known
/// about the outcome.
///
/// # Errors
/// The reason why it did not succeed.
pub(super) fn run(
    command: &Command,
    payload: &Payload<'_>,
    (stop, unended): (&AtomicBool, &Unended),
) -> Option<Result<(), String>> {
    if unended.reap(payload.rule) >= MAX_UNENDED {
        let why = format!("{MAX_UNENDED} programs of this rule were killed and have not ended");
        return Some(Err(why));
    }
    let child = match start(command, payload) {
        Ok(child) => child,
        Err(why) => return Some(Err(why)),
    };
    let ended = wait(&child, command.timeout, stop);
    // The group is ended before its leader is waited for: until then no other process can have its number.
    if let Some(group) = pid(&child) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = unended.wait(payload.rule, child, KILL_TIMEOUT);
    let program = command.argv.first().map_or("", String::as_str);
    let ended = ended?;
    let Some(status) = status else {
        return Some(Err(format!("{program} was killed, and has not ended for {KILL_TIMEOUT:?}")));
    };
    Some(match (ended, status) {
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
    let document = file_of(&payload.json());
    let document = document.map_err(|e| format!("the event cannot be written to memory: {e}"))?;
    let child = std::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .envs(payload.variables())
        .current_dir("/")
        .stdin(document)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    child.map_err(|e| format!("{program} cannot be started: {e}"))
}

/// Returns a file in memory. A pipe would have room for a page only if the user has many of them, and a program that does not read
/// would hold the hub.
fn file_of(bytes: &[u8]) -> io::Result<File> {
    let make = |flags| memfd_create("rule-event", MemfdFlags::CLOEXEC | flags);
    // Some systems demand that the file is never executed. Kernels before 6.3 do not know the flag for that.
    let made = make(MemfdFlags::NOEXEC_SEAL).or_else(|_| make(MemfdFlags::empty()));
    let mut file = File::from(made?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use serde_json::{Map, Value};
    use skopos_model::Timestamp;
    use skopos_steer::rule::{Due, Event, Kind};

    use super::*;

    /// Patience of a test: it only ends a hang.
    const PATIENCE: Duration = Duration::from_secs(180);

    /// Returns an event whose document is longer than a pipe has room for.
    fn event() -> Event {
        let value = |name: &str| (name.to_owned(), Value::String("x".repeat(100_000)));
        Event {
            at: Timestamp::default(),
            kind: Kind::Firing,
            subject: "a".to_owned(),
            since: Timestamp::default(),
            is_firing: true,
            due: Due::Now,
            values: ["a", "b"].into_iter().map(value).collect::<Map<String, Value>>(),
            reason: String::new(),
        }
    }

    fn run_once(argv: &[&str], timeout: Duration, stop: bool) -> Option<Result<(), String>> {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let (sender, outcome) = channel();
        std::thread::spawn(move || {
            let (command, event) = (Command { argv, timeout }, event());
            let stop = AtomicBool::new(stop);
            let payload = Payload::new("site", "rule", &event);
            let _ = sender.send(run(&command, &payload, (&stop, &Unended::default())));
        });
        outcome.recv_timeout(PATIENCE).expect("an outcome")
    }

    #[test]
    fn a_program_that_does_not_read_is_ended_at_its_timeout_and_with_the_hub() {
        let sleep = ["/bin/sleep", "1000"];
        let late = run_once(&sleep, Duration::from_millis(10), false);
        assert!(late.is_some_and(|late| late.is_err_and(|why| why.contains("did not end"))));
        assert_eq!(run_once(&sleep, PATIENCE, true), None);
    }

    #[test]
    fn a_program_that_outlives_its_kill_is_not_waited_for_and_stops_its_own_rule_alone() {
        let (unended, stop, event) = (Unended::default(), AtomicBool::new(false), event());
        for _ in 0..MAX_UNENDED {
            // No signal reaches it.
            let sleeps = std::process::Command::new("/bin/sleep").arg("1000").spawn();
            let status = unended.wait("hangs", sleeps.expect("a program"), Duration::ZERO);
            assert!(status.is_none(), "{status:?}");
        }
        let command = Command { argv: vec!["/bin/true".to_owned()], timeout: PATIENCE };
        let run_for =
            |rule: &str| run(&command, &Payload::new("site", rule, &event), (&stop, &unended));
        let refused = run_for("hangs").expect("an outcome").expect_err("refused");
        assert!(refused.contains("have not ended"), "{refused}");
        assert_eq!(run_for("works"), Some(Ok(())));
        unpoisoned(unended.0.lock()).iter_mut().for_each(|(_, child)| {
            child.kill().expect("killed");
        });
        let begun = Instant::now();
        while unended.reap("hangs") > 0 {
            assert!(begun.elapsed() < PATIENCE, "the programs do not end");
            std::thread::sleep(CHECK_KILLED_EVERY);
        }
        assert_eq!(run_for("hangs"), Some(Ok(())));
    }

    #[test]
    fn a_program_reads_the_whole_document() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("document");
        let script = format!("cat > {}", file.display());
        let outcome = run_once(&["/bin/sh", "-c", &script], PATIENCE, false);
        assert_eq!(outcome, Some(Ok(())));
        let expected = Payload::new("site", "rule", &event()).json();
        assert!(std::fs::read(&file).expect("written") == expected);
    }
}
