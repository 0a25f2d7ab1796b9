//! Runs every mechanism, alone and all together, on tasks that are hard to measure: a value offered
//! as `all` is true, no value is infinite, and nothing is left behind.

use std::path::Path;
use std::sync::OnceLock;

use skopos_model::task::{Completeness, ExitType, Summary};
use skopos_task::{MECHANISMS, choose};

use crate::support::{RunResult, compile, order, run};

/// The known properties of a task.
#[derive(Clone, Copy)]
struct Truth {
    processes_total: f64,
    processes_max: f64,
    threads_max: f64,
    /// The end of the task.
    status: Option<i32>,
    signal: Option<i32>,
}

const ONE: Truth = Truth {
    processes_total: 1.0,
    processes_max: 1.0,
    threads_max: 1.0,
    status: Some(0),
    signal: None,
};

/// A task and its properties.
struct Case {
    name: &'static str,
    command: Vec<String>,
    truth: Truth,
}

/// Eight concurrent threads, each of which works for some milliseconds; processes that leave their
/// session, fork twice or close all descriptors.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static pthread_barrier_t together;
static void work(void) { for (volatile long i = 0; i < 5000000; i++) {} }
static void *thread(void *none) { pthread_barrier_wait(&together); work(); pthread_barrier_wait(&together); return none; }
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "threads")) {
        pthread_t threads[8];
        pthread_barrier_init(&together, 0, 9);
        for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, thread, 0);
        pthread_barrier_wait(&together);
        pthread_barrier_wait(&together);
        for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
        if (argc > 2) {
            struct timespec used;
            FILE *file = fopen(argv[2], "w");
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            fprintf(file, "%ld.%09ld", (long)used.tv_sec, used.tv_nsec);
            fclose(file);
        }
    } else if (!strcmp(what, "daemon")) {
        /* The daemon ends before the task does, as a pipe tells. */
        int ends[2]; char byte;
        if (pipe(ends)) return 1;
        if (!fork()) { if (!fork()) { setsid(); work(); _exit(0); } _exit(0); }
        wait(0); close(ends[1]); if (read(ends[0], &byte, 1) != 0) return 1;
    } else if (!strcmp(what, "setsid")) {
        int status;
        if (!fork()) { setsid(); work(); _exit(0); }
        wait(&status);
    } else if (!strcmp(what, "delay")) {
        /* Two on one processor: each waits while the other works. */
        cpu_set_t first;
        char text[64] = "";
        CPU_ZERO(&first); CPU_SET(sched_getcpu(), &first); sched_setaffinity(0, sizeof first, &first);
        int child = fork();
        for (int i = 0; i < 20; i++) work();
        FILE *from = fopen("/proc/self/schedstat", "r"), *to = fopen(argv[child ? 2 : 3], "w");
        fputs(fgets(text, sizeof text, from), to);
        fclose(to);
        if (child) wait(0);
    } else if (!strcmp(what, "signal")) {
        work(); raise(SIGSEGV);
    } else if (!strcmp(what, "close")) {
        for (int i = 0; i < 4096; i++) close(i);
        work();
    }
    return 0;
}
"#;

fn program() -> Option<&'static Path> {
    static PROGRAM_FILE: OnceLock<Option<(tempfile::TempDir, std::path::PathBuf)>> =
        OnceLock::new();
    let made = PROGRAM_FILE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = compile(folder.path(), "program", PROGRAM, &["-pthread"])?;
        Some((folder, file))
    });
    made.as_ref().map(|(_, file)| file.as_path())
}

fn cases() -> Vec<Case> {
    let case = |name, command: &[&str], truth| {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        Case { name, command, truth }
    };
    // `true; exit` keeps the shell from becoming its last child.
    let script = "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done; exit 3";
    let shell = Truth {
        processes_total: 21.0,
        processes_max: 2.0,
        threads_max: 2.0,
        status: Some(3),
        signal: None,
    };
    let mut cases = vec![case("shell", &["sh", "-c", script], shell)];
    if let Some(program) = program().and_then(Path::to_str) {
        let two = Truth { processes_total: 2.0, processes_max: 2.0, threads_max: 2.0, ..ONE };
        let three = Truth { processes_total: 3.0, processes_max: 3.0, threads_max: 3.0, ..ONE };
        let killed = Truth { status: None, signal: Some(libc::SIGSEGV), ..ONE };
        cases.extend([
            case("threads", &[program, "threads"], Truth { threads_max: 9.0, ..ONE }),
            case("daemon", &[program, "daemon"], three),
            case("setsid", &[program, "setsid"], two),
            case("signal", &[program, "signal"], killed),
            case("close", &[program, "close"], ONE),
        ]);
    }
    cases
}

/// Runs each task with these mechanisms and compares the results with its properties.
fn check(mechanisms: &[&str]) {
    // Some mechanisms need a folder, in which none of these tasks does anything.
    let watched = tempfile::tempdir().expect("a folder");
    for case in cases() {
        let command: Vec<&str> = case.command.iter().map(String::as_str).collect();
        let mut order = order(&command);
        order.only = Some(mechanisms.iter().map(|name| (*name).to_owned()).collect());
        order.watch = vec![watched.path().to_owned()];
        let ran = run(&order);
        let what = format!("{mechanisms:?} on `{}`", case.name);
        agrees(&what, &ran.summary, &case.truth);
        leaves_nothing(&what, &ran);
    }
}

fn agrees(what: &str, summary: &Summary, truth: &Truth) {
    let ended = &summary.ended;
    assert_eq!((ended.status, ended.signal), (truth.status, truth.signal), "{what}");
    let by_signal = ended.exit_type == ExitType::Signal;
    assert_eq!(by_signal, truth.signal.is_some(), "{what}");
    for (name, reading) in &summary.resources {
        let is_known = reading.completeness != Completeness::None;
        assert_eq!(reading.value.is_some(), is_known, "{what}: {name} {reading:?}");
        assert!(is_known || reading.reason.is_some(), "{what}: {name} has no reason");
        assert!(
            reading.value.is_none_or(|v| v.is_finite() && v >= 0.0),
            "{what}: {name} {reading:?}"
        );
        assert!(reading.error_bound.is_none_or(f64::is_finite), "{what}: {name} {reading:?}");
    }
    for (name, expected) in [
        ("processes_total", truth.processes_total),
        ("processes_max", truth.processes_max),
        ("threads_max", truth.threads_max),
    ] {
        let reading = &summary.resources[name];
        let Some(value) = reading.value else { continue };
        match reading.completeness {
            // The daemon's parents may exit before it starts: the number of concurrent processes
            // depends on chance, and only its maximum is known.
            Completeness::All if expected == 3.0 && name != "processes_total" => {
                assert!((2.0..=3.0).contains(&value), "{what}: {name} {reading:?}");
            }
            Completeness::All => assert_eq!(value, expected, "{what}: {name} {reading:?}"),
            _ => assert!(value <= expected, "{what}: {name} {reading:?}"),
        }
    }
}

fn leaves_nothing(what: &str, ran: &RunResult) {
    assert_eq!(ran.descriptors.0, ran.descriptors.1, "{what} leaves descriptors");
    assert!(ran.children.is_empty(), "{what} leaves {:?}", ran.children);
    assert!(ran.groups.is_empty(), "{what} leaves {:?}", ran.groups);
}

/// The mechanisms that can be used here; the others give a reason.
fn usable() -> Vec<String> {
    let watched = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = choose(&order(&["true"])).uses.into_iter().map(|u| u.name).collect();
    let is_usable = |name: &String| {
        let mut order = order(&["true"]);
        order.only = Some(vec![name.clone()]);
        order.watch = vec![watched.path().to_owned()];
        let uses = choose(&order).uses;
        let found = uses.iter().find(|u| u.name == *name).expect("every mechanism is listed");
        assert!(!found.why.is_empty(), "{name}");
        found.used
    };
    names.into_iter().filter(is_usable).collect()
}

#[test]
fn each_mechanism_alone_is_correct() {
    let usable = usable();
    assert!(usable.iter().any(|name| name == "wait4"), "it is always available: {usable:?}");
    for name in &usable {
        check(&[name]);
    }
}

#[test]
fn all_mechanisms_together_are_correct() {
    let usable = usable();
    check(&usable.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn mechanisms_that_need_another_are_correct_beside_it() {
    for name in ["seccomp", "fanotify"] {
        check(&["wait4", "ptrace", name]);
    }
}

/// The most processor time of a process before its first instruction and after its last: exec and
/// exit.
const AROUND_SECONDS: f64 = 0.01;

#[test]
fn processor_time_equals_what_the_task_itself_measured() {
    let Some(program) = program().and_then(Path::to_str) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("used");
    let file = file.to_str().expect("a name");
    let mut exact = 0;
    for name in usable() {
        let mut order = order(&[program, "threads", file]);
        order.only = Some(vec![name.clone()]);
        let reading = run(&order).summary.resources["cpu_seconds"].clone();
        let text = std::fs::read_to_string(file).expect("the task wrote it");
        let truth: f64 = text.parse().expect("a number");
        let Some(value) = reading.value else { continue };
        let what = format!("{name}: {value} for {truth}");
        assert!(value < truth + AROUND_SECONDS, "{what}");
        if reading.completeness == Completeness::All {
            exact += 1;
            assert!(value > 0.99 * truth, "{what}");
        }
    }
    assert!(exact > 0, "no mechanism measured it completely");
}

#[test]
fn delay_equals_what_the_task_itself_measured() {
    let Some(program) = program().and_then(Path::to_str) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let files = ["a", "b"].map(|name| folder.path().join(name));
    let [first, second] = files.each_ref().map(|file| file.to_str().expect("a name"));
    for name in usable() {
        let mut order = order(&[program, "delay", first, second]);
        order.only = Some(vec![name.clone()]);
        let reading = run(&order).summary.resources["cpu_delay_seconds"].clone();
        let delay = |file| {
            let text = std::fs::read_to_string(file).expect("the task wrote it");
            let nanos = text.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
            nanos.expect("a number") / 1e9
        };
        let truth: f64 = files.each_ref().map(delay).iter().sum();
        let Some(value) = reading.value else { continue };
        let what = format!("{name}: {value} for {truth}");
        if reading.completeness == Completeness::All {
            // It may wait once more while it exits.
            assert!(truth > 0.01 && value >= 0.99 * truth && value < truth + 1.0, "{what}");
        }
    }
}

#[test]
fn each_mechanism_is_listed_whether_it_is_used_or_not() {
    let mut order = order(&["true"]);
    // With no mechanism allowed, nothing is created that another test would find.
    order.only = Some(Vec::new());
    let uses = choose(&order).uses;
    let file: Vec<&str> = uses.iter().map(|u| u.name.as_str()).collect();
    assert_eq!(file, MECHANISMS);
}

#[test]
fn a_program_that_starts_thousands_of_threads_is_not_stopped_for_each() {
    const THREADS: &str = r#"
        #include <pthread.h>
        static void *nothing(void *unused) { return unused; }
        int main(void) {
            for (int left = 3000; left > 0; left -= 10) {
                pthread_t ten[10];
                for (int i = 0; i < 10; i++) pthread_create(&ten[i], 0, nothing, 0);
                for (int i = 0; i < 10; i++) pthread_join(ten[i], 0);
            }
            return 0;
        }"#;
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compile(folder.path(), "threads", THREADS, &["-pthread"]) else { return };
    for tracker in ["ptrace", "connector"] {
        let mut order = order(&[&program.display().to_string()]);
        order.only = Some(["wait4", "procfs", tracker].map(str::to_owned).to_vec());
        let ran = run(&order);
        if ran.summary.level < 2 {
            eprintln!("SKIPPED: {tracker} cannot be used here: {:?}", ran.summary.mechanisms);
            continue;
        }
        assert_eq!(ran.summary.ended.status, Some(0));
        assert_eq!(ran.summary.resources["processes_total"].value, Some(1.0));
        let threads = &ran.summary.resources["threads_max"];
        assert_eq!(threads.completeness, Completeness::AtLeast, "{tracker}: {threads:?}");
        let why = threads.reason.as_deref().unwrap_or_default();
        assert!(why.contains("256 threads"), "{tracker}: {threads:?}");
        let most = threads.value.expect("a number");
        assert!((2.0..=11.0).contains(&most), "{tracker}: {threads:?}");
        leaves_nothing(tracker, &ran);
    }
}
