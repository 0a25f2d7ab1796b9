//! Processes that a benchmark starts and ends, each by its own id.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::ending;

/// A process that still runs this time after SIGTERM is killed.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time between two checks whether a program has ended: rare enough to leave the program undisturbed.
const LOOK: Duration = Duration::from_millis(20);

/// A process that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts a process.
    ///
    /// # Errors
    /// The program cannot be started, or a signal ends this one.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        ending::check()?;
        command.spawn().map(Self)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn inner(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Kills it, like a failing machine, and waits for its end.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }

    /// True unless it has ended.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.runs() {
            return;
        }
        // It is not reaped yet, so the id still belongs to this child.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let signalled = Instant::now();
        while signalled.elapsed() < PATIENCE {
            if !self.runs() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command` to its end and returns its output, which passes through files in `dir`.
///
/// # Errors
/// The program cannot be started, fails, or takes longer than `limit`, after which it is ended.
pub(crate) fn finish(command: &mut Command, dir: &Path, limit: Duration) -> Result<String, String> {
    let out = watched(command, dir, limit, |_| ())?;
    fs::read_to_string(&out).map_err(|e| format!("{}: {e}", out.display()))
}

/// Runs `command` to its end and returns the most resident memory of its first process in bytes, as it was found every
/// [`LOOK`]. The kernel keeps the maximum, so only what is reached after the last look is missed.
///
/// # Errors
/// The errors of [`finish`]; the program ends before the first look.
pub(crate) fn peak_bytes(mut command: Command, dir: &Path, limit: Duration) -> Result<u64, String> {
    let mut peak = 0;
    watched(&mut command, dir, limit, |pid| peak = peak.max(peak_of(pid).unwrap_or(0)))?;
    if peak > 0 { Ok(peak) } else { Err("it ended before it was looked at".to_owned()) }
}

/// Returns the most resident memory of a process so far.
fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Runs `command` to its end with a look at its process now and then, and returns the file of its output in `dir`.
fn watched(
    command: &mut Command,
    dir: &Path,
    limit: Duration,
    mut look: impl FnMut(u32),
) -> Result<PathBuf, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let broken = |e: io::Error| format!("{}: {e}", dir.display());
    let (out, err) = (dir.join("stdout"), dir.join("stderr"));
    command.stdin(Stdio::null());
    command.stdout(File::create(&out).map_err(broken)?);
    command.stderr(File::create(&err).map_err(broken)?);
    let mut process = Process::start(command).map_err(|e| not_started(&name, &e))?;
    let started = Instant::now();
    let status = loop {
        look(process.pid());
        match process.inner().try_wait().map_err(|e| format!("{name}: {e}"))? {
            Some(status) => break status,
            None if started.elapsed() > limit => {
                return Err(format!("{name} did not end within {} s", limit.as_secs()));
            }
            None => std::thread::sleep(LOOK),
        }
    };
    if status.success() {
        return Ok(out);
    }
    let said = fs::read_to_string(&err).unwrap_or_default();
    // The first line with words: the lines behind it are most often consequences.
    let said = said.lines().map(str::trim).find(|line| line.contains(char::is_alphabetic));
    Err(format!("{name} ended with {status}: {}", said.unwrap_or("no message")))
}

/// The reason why `program` does not run.
pub(crate) fn not_started(program: &str, e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program} cannot be started: {e}"),
    }
}

/// Waits until `ready` returns a value, `process` ends, or `patience` is over.
pub(crate) fn wait_for<T>(
    process: &mut Process,
    patience: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T, String> {
    let started = Instant::now();
    loop {
        if let Some(found) = ready() {
            return Ok(found);
        }
        if let Ok(Some(status)) = process.inner().try_wait() {
            return Err(format!("it ended at once, with {status}"));
        }
        if started.elapsed() > patience {
            return Err(format!("it was not ready after {} s", patience.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns an address of the loopback that is free now. If another process takes it before its use, the start fails.
pub(crate) fn free_address() -> io::Result<String> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_returns_its_output_or_the_reason_of_its_failure() {
        let dir = tempfile::tempdir().expect("a directory");
        let shell = |script: &str, limit| {
            finish(Command::new("sh").args(["-c", script]), dir.path(), limit)
        };
        let long = Duration::from_secs(60);
        assert_eq!(shell("echo 17", long).as_deref(), Ok("17\n"));
        let failed = shell("echo ---- >&2; echo no such disk >&2; echo sorry >&2; exit 3", long);
        let failed = failed.expect_err("it exits with 3");
        assert!(failed.contains("3") && failed.ends_with("no such disk"), "{failed}");
        let late = shell("exec sleep 600", Duration::ZERO).expect_err("it takes ten minutes");
        assert_eq!(late, "sh did not end within 0 s");
        let missing = finish(&mut Command::new("no-such-program"), dir.path(), long);
        assert_eq!(missing.expect_err("it is not there"), "no-such-program is not installed");
    }
}
