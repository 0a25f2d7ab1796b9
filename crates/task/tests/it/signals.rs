//! Signals to the monitor, and to its process group.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{RunResult, compile, order, run_after};

/// Writes the number and the value of each signal that arrives to the file `log`, and ends at SIGHUP.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int log_file;
static volatile sig_atomic_t ends;
static void arrived(int number, siginfo_t *info, void *none) {
    char text[64];
    int n = snprintf(text, sizeof text, "%d %d\n", number, info->si_code == SI_QUEUE ? info->si_value.sival_int : 0);
    write(log_file, text, n);
    ends |= number == SIGHUP;
}
int main(int argc, char **argv) {
    sigset_t all, none;
    struct sigaction how = {.sa_sigaction = arrived, .sa_flags = SA_SIGINFO};
    char text[32];
    if (chdir(argv[1])) return 1;
    log_file = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    sigfillset(&all), sigemptyset(&none);
    how.sa_mask = all;
    for (int number = 1; number < 65; number++) sigaction(number, &how, NULL);
    sigprocmask(SIG_BLOCK, &all, NULL);
    int begun = open("begun", O_WRONLY | O_CREAT, 0600);
    write(begun, text, sprintf(text, "%d %d\n", getppid(), getpid()));
    rename("begun", "ready");
    while (!ends) sigsuspend(&none);
    return 0;
}
"#;

/// A signal, and the wait after it, in which it would arrive a second time.
type Sent = (bool, i32);

const PAUSE: Duration = Duration::from_millis(100);

/// Sends signals, each to the monitor or to its whole group. Returns those that arrived.
fn arrived(level: u8, sent: &[Sent]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile(folder.path(), "signals", PROGRAM, &["-w"]).expect("a compiler");
    let words = [program.display().to_string(), folder.path().display().to_string()];
    let mut order = order(&[&words[0], &words[1]]);
    order.level = Some(level);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| send_all(folder.path(), sent));
        // SAFETY: changes the group of the calling process.
        run_after(&order, || assert_eq!(unsafe { libc::setpgid(0, 0) }, 0))
    });
    assert_eq!(result.summary.ended.status, Some(0), "{:?}", result.summary.ended);
    is_left_alone(&result);
    let log = fs::read_to_string(folder.path().join("log")).expect("a log");
    log.lines().map(str::to_owned).collect()
}

fn is_left_alone(result: &RunResult) {
    assert_eq!(
        result.summary.resources["processes_total"].value,
        Some(1.0),
        "the witness is not of the task"
    );
    assert!(result.children.is_empty(), "{:?}", result.children);
}

fn send_all(folder: &Path, sent: &[Sent]) {
    let patience = Instant::now() + Duration::from_secs(60);
    let ids = loop {
        if let Ok(text) = fs::read_to_string(folder.join("ready")) {
            break text;
        }
        assert!(Instant::now() < patience, "the task does not start");
        std::thread::sleep(Duration::from_millis(5));
    };
    let monitor: i32 = ids.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    for (to_group, signal) in sent.iter().copied().chain([(false, libc::SIGHUP)]) {
        // SAFETY: the monitor lives, and is the first process of a group of its own.
        assert_eq!(unsafe { libc::kill(if to_group { -monitor } else { monitor }, signal) }, 0);
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn a_signal_to_the_whole_group_arrives_once() {
    for level in [1, 2] {
        let sent = [
            (true, libc::SIGUSR1),
            (true, libc::SIGTERM),
            (false, libc::SIGUSR1),
            (true, libc::SIGUSR1),
        ];
        let expected = ["10 0", "15 0", "10 0", "10 0", "1 0"];
        assert_eq!(arrived(level, &sent), expected, "level {level}");
    }
}

#[test]
fn signals_that_would_end_the_monitor_reach_the_task() {
    let signals = [
        libc::SIGRTMIN() + 1,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGXCPU,
        libc::SIGSTKFLT,
        libc::SIGABRT,
    ];
    let mut expected: Vec<String> = signals.iter().map(|n| format!("{n} 0")).collect();
    expected.push("1 0".to_owned());
    assert_eq!(arrived(1, &signals.map(|signal| (false, signal))), expected);
}

#[test]
fn an_alarm_that_was_set_before_the_monitor_started_reaches_the_task() {
    // SAFETY: sets a timer of the calling process.
    let result = run_after(&order(&["sleep", "61"]), || assert_eq!(unsafe { libc::alarm(1) }, 0));
    assert_eq!(result.summary.ended.signal, Some(libc::SIGALRM), "{:?}", result.summary.ended);
}
