//! Runs monitors in processes of their own: a monitor takes all signals and all children of its
//! process.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};
use skopos_model::task::{Limits, Summary};
use skopos_task::Order;

/// The results of a run, and what it left behind.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) summary: Summary,
    /// Number of open descriptors before and after the run.
    pub(crate) descriptors: (usize, usize),
    /// Processes that still descend from the monitor.
    pub(crate) children: Vec<String>,
    /// Control groups that it created and that still exist.
    pub(crate) groups: Vec<PathBuf>,
}

/// Returns an order with the usual options.
pub(crate) fn order(command: &[&str]) -> Order {
    Order {
        command: command.iter().map(OsString::from).collect(),
        attach: None,
        class: None,
        level: None,
        limits: Limits::default(),
        kill_after: Duration::ZERO,
        interval: Duration::from_millis(100),
        watch: Vec::new(),
        only: None,
        environment: Vec::new(),
    }
}

/// Runs it in a child of this process.
pub(crate) fn run(order: &Order) -> RunResult {
    run_after(order, || {})
}

/// Does the same after `prepare`, which the child calls. It may only make system calls.
pub(crate) fn run_after(order: &Order, prepare: impl FnOnce()) -> RunResult {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    // SAFETY: the child uses only what the parent made before, and never returns from here. It
    // takes no locks that other threads held at the fork: it prints nothing.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no more processes");
    if child == 0 {
        drop(reader);
        prepare();
        let code = i32::from(inside(order, writer).is_err());
        // SAFETY: ends the child without running destructors of the parent.
        unsafe { libc::_exit(code) };
    }
    drop(writer);
    let started = started(child);
    let mut text = String::new();
    fs::File::from(reader).read_to_string(&mut text).expect("an answer");
    let mut status = 0;
    // SAFETY: `status` is as the call expects, and the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let summary = serde_json::from_value(value["summary"].clone());
    let strings = |name: &str| {
        let list = value[name].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    RunResult {
        summary: summary.unwrap_or_else(|e| panic!("{e}: {text}")),
        descriptors: (
            value["before"].as_u64().expect("a number") as usize,
            value["after"].as_u64().expect("a number") as usize,
        ),
        children: strings("children"),
        groups: groups(child, &started),
    }
}

fn inside(order: &Order, writer: OwnedFd) -> std::io::Result<()> {
    let count = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = count();
    let summary = match skopos_task::run(order, &mut |_| {}) {
        Ok(outcome) => serde_json::to_value(&outcome.summary)?,
        Err(failed) => json!(format!("{failed:?}")),
    };
    // A process of the task may be about to exit; one that stays is left behind.
    let gone = Instant::now() + Duration::from_secs(10);
    // SAFETY: no status is requested.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } >= 0
        && Instant::now() < gone
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let own = std::process::id();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
    let children: Vec<_> = children.split_whitespace().collect();
    let answer =
        json!({"summary": summary, "before": before, "after": count(), "children": children});
    std::io::Write::write_all(&mut fs::File::from(writer), answer.to_string().as_bytes())
}

/// Returns the start time of a process in ticks, since its id may be reused.
fn started(pid: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let (_, after) = stat.rsplit_once(')').expect("a command");
    after.split_whitespace().nth(19).expect("a time").to_owned()
}

fn is_of(group: &str, monitor: i32, started: &str) -> bool {
    let kinds = ["skopos-", "skopos-monitor-"];
    kinds.iter().any(|kind| group == format!("{kind}{monitor}-{started}"))
}

/// Returns the groups of a monitor, in any hierarchy.
fn groups(monitor: i32, started: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                if entry.file_name().to_str().is_some_and(|name| is_of(name, monitor, started)) {
                    found.push(entry.path());
                }
                waiting.push(entry.path());
            }
        }
    }
    found
}

/// Compiles a C program; `None` if there is no compiler.
pub(crate) fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (from, to) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&from, source).expect("written");
    let done = Command::new("cc").args(["-O1", "-o"]).arg(&to).arg(&from).args(flags).status();
    match done {
        Ok(status) => {
            assert!(status.success(), "{name} does not compile");
            Some(to)
        }
        Err(_) => None,
    }
}
