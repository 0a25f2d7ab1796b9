//! Level 3: compares the counts of the preloaded library with the known actions of programs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use skopos_model::task::{FileUse, Files, Limits, Summary};
use skopos_task::{Order, run};

/// Variables for a process of this program that acts as a monitor: the path of its answer, and its
/// command as JSON. A monitor takes all signals and all children of its process, so it needs its
/// own.
const ANSWER: &str = "SKOPOS_TEST_ANSWER";
const COMMAND: &str = "SKOPOS_TEST_COMMAND";
const AS_MONITOR: [&str; 3] = ["preload::a_monitor", "--exact", "--test-threads=1"];

#[test]
fn a_monitor() {
    let (Some(answer), Ok(command)) = (std::env::var_os(ANSWER), std::env::var(COMMAND)) else {
        return;
    };
    let command: Vec<String> = serde_json::from_str(&command).expect("a command");
    let order = Order {
        command: command.into_iter().map(OsString::from).collect(),
        attach: None,
        class: None,
        level: Some(3),
        limits: Limits::default(),
        kill_after: Duration::ZERO,
        interval: Duration::from_secs(1),
        watch: Vec::new(),
        only: None,
        environment: Vec::new(),
    };
    let outcome = run(&order, &mut |_| {}).expect("it runs");
    let text = serde_json::to_string(&(outcome.summary, outcome.files)).expect("JSON");
    fs::write(answer, text).expect("written");
}

/// Returns the arguments of `env` that run this program as a monitor.
fn monitor(answer: &Path, command: &[&str]) -> Vec<String> {
    let own = std::env::current_exe().expect("this program");
    let mut words = vec![
        format!("{ANSWER}={}", answer.display()),
        format!("{COMMAND}={}", serde_json::to_string(command).expect("JSON")),
        own.display().to_string(),
    ];
    words.extend(AS_MONITOR.map(str::to_owned));
    words
}

fn answer(path: &Path) -> (Summary, Files) {
    let text = fs::read_to_string(path).expect("an answer");
    let (summary, files): (Summary, Option<Files>) = serde_json::from_str(&text).expect("JSON");
    (summary, files.expect("it counted"))
}

pub(crate) fn measured(folder: &Path, command: &[&str]) -> (Summary, Files) {
    let place = folder.join("answer.json");
    let ran = Command::new("env").args(monitor(&place, command)).output().expect("it starts");
    assert!(ran.status.success(), "{ran:?}");
    let (summary, files) = answer(&place);
    assert_eq!(summary.ended.status, Some(0), "{ran:?}");
    assert_eq!(summary.level, 3, "{:?}", summary.mechanisms);
    (summary, files)
}

pub(crate) fn file<'a>(files: &'a Files, path: &Path) -> &'a FileUse {
    let path = fs::canonicalize(path).expect("it is there").display().to_string();
    let found: Vec<&FileUse> = files.files.iter().filter(|f| f.path == path).collect();
    assert_eq!(found.len(), 1, "{path} in {:#?}", files.files);
    found[0]
}

fn compiled(folder: &Path, more: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&source, PROGRAM).expect("written");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-w", "-pthread"]).args(more).arg(&source).arg("-o").arg(&program);
    assert!(compiler.status().expect("a compiler").success());
    program
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn the_reads_and_writes_of_dd_are_counted() {
    let folder = folder();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, vec![7; 1000 * 4096]).expect("written");
    let (input, output) = (format!("if={}", from.display()), format!("of={}", to.display()));
    let (summary, files) =
        measured(folder.path(), &["dd", &input, &output, "bs=4k", "count=1000", "status=none"]);
    let (from, to) = (file(&files, &from), file(&files, &to));
    assert_eq!((from.reads, from.read_bytes, from.writes), (1000, 4_096_000, 0));
    assert_eq!((to.writes, to.written_bytes, to.reads), (1000, 4_096_000, 0));
    assert_eq!(from.read_sizes.last(), Some(&1000));
    assert_eq!(from.read_sizes.len(), 14, "4096 is the first of its bucket");
    assert_eq!((from.opens, to.opens, files.files_total), (1, 1, 2));
    assert_eq!(summary.resources["opened_files"].value, Some(2.0));
    assert_eq!((files.processes.len(), files.processes_not_seen), (1, 0));
    assert_eq!((files.processes[0].reads, files.processes[0].written_bytes), (1000, 4_096_000));
    let read = files.unattributed_read_bytes.expect("the kernel counts");
    assert!((0..50_000).contains(&read), "the loader and the locale: {read}");
    let written = files.unattributed_written_bytes.expect("the kernel counts");
    assert!((0..16).contains(&written), "{written}");
}

#[test]
fn streams_threads_forks_links_and_mappings_are_counted() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("in"), vec![b'x'; 100_000]).expect("written");
    fs::hard_link(at("in"), at("linked")).expect("linked");
    let program = compiled(folder.path(), &[]).display().to_string();
    let (_, files) = measured(folder.path(), &[&program, &folder.path().display().to_string()]);
    let all = file(&files, &at("in"));
    assert_eq!((all.stream_read_bytes, all.read_bytes), (100_000, 200_010));
    assert_eq!((all.opens, all.reads), (3, 3), "read, sendfile, sendfile at the end");
    assert!(!files.files.iter().any(|f| f.path.ends_with("linked")), "one file has one row");
    let of = |name: &str| file(&files, &at(name));
    assert_eq!((of("out").stream_written_bytes, of("out").writes), (54_321, 0));
    assert_eq!(of("left").written_bytes, 5000, "flushed at the exit of the process");
    assert_eq!(of("moved").written_bytes, 3000, "a part was written twice");
    let threads = of("threads");
    assert_eq!((threads.writes, threads.written_bytes), (4000, 400_000));
    assert_eq!((threads.reads, threads.read_bytes), (4000, 200_000));
    assert_eq!((threads.write_sizes[7], threads.read_sizes[6]), (4000, 4000));
    assert_eq!((of("child").writes, of("child").written_bytes), (10, 70));
    assert_eq!(of("flushed").written_bytes, 3000, "by a child that exits without a flush");
    assert_eq!(of("copy").written_bytes, 100_000, "by sendfile");
    let mapped = of("mapped");
    assert_eq!((mapped.maps, mapped.mapped_bytes, mapped.read_bytes), (1, 8192, 0));
    assert_eq!(of("late").written_bytes, 8, "after all descriptors were closed");
    let written = files.unattributed_written_bytes.expect("the kernel counts");
    assert!((0..16).contains(&written), "{written}");
    assert_eq!(files.processes_not_seen, 0);
}

#[test]
fn the_bytes_of_peers_are_counted() {
    let folder = folder();
    let program = compiled(folder.path(), &[]).display().to_string();
    let (summary, files) = measured(folder.path(), &[&program, "sockets"]);
    let here: Vec<_> = files.peers.iter().filter(|p| p.address == "127.0.0.1").collect();
    let sender = here.iter().find(|p| p.port != 0).expect("the peer of the client");
    let receiver = here.iter().find(|p| p.port == 0).expect("the peer of the server");
    assert_eq!((sender.connections, sender.sent_bytes, sender.sends), (1, 1500, 2));
    assert_eq!((receiver.connections, receiver.received_bytes), (1, 1500));
    assert_eq!(summary.resources["sent_bytes"].value, Some(1500.0));
    assert_eq!(summary.resources["received_bytes"].value, Some(1500.0));
}

#[test]
fn a_static_program_is_listed_as_not_seen() {
    let folder = folder();
    let program = compiled(folder.path(), &["-static"]).display().to_string();
    // One shell forks itself, the other one starts programs without forking.
    for shell in ["bash", "dash"] {
        let line = format!("{program} sockets; cat /dev/null; true");
        let (_, files) = measured(folder.path(), &[shell, "-c", &line]);
        assert_eq!(files.processes_not_seen, 1, "{shell}: {files:#?}");
        assert_eq!(files.not_seen[0].command, format!("{program} sockets"));
        assert!(files.reason.contains("1 processes did not load the library"), "{}", files.reason);
        assert!(files.processes.iter().any(|p| p.command == "cat /dev/null"), "{shell}");
    }
}

#[test]
fn nested_monitors_both_count() {
    let folder = folder();
    let (inner, data) = (folder.path().join("inner.json"), folder.path().join("data"));
    let output = format!("of={}", data.display());
    let dd = ["dd", "if=/dev/zero", &output, "bs=4k", "count=50", "status=none"];
    let words = monitor(&inner, &dd);
    let mut command = vec!["env"];
    command.extend(words.iter().map(String::as_str));
    let (_, outer) = measured(folder.path(), &command);
    let (_, inner) = answer(&inner);
    for files in [&outer, &inner] {
        let data = file(files, &data);
        assert_eq!((data.writes, data.written_bytes, data.opens), (50, 204_800, 1));
    }
    assert_eq!(inner.processes.len(), 1);
    assert_eq!(
        outer.processes.len(),
        4,
        "the inner monitor, its witness of signals by way of a child, and dd"
    );
}

#[test]
fn a_sandbox_with_four_system_calls_is_not_broken() {
    let folder = folder();
    let program = compiled(folder.path(), &[]).display().to_string();
    let (_, files) = measured(folder.path(), &["sh", "-c", &format!("{program} sandbox")]);
    assert!(files.written_bytes >= 10, "writes in the sandbox count: {files:#?}");
}

#[test]
fn without_its_table_the_task_runs_on_silently() {
    let folder = folder();
    let script = "for v in $(env | grep -o '^SKOPOS_COUNTERS_[0-9a-f]*'); do export $v=/nowhere; \
                  done; dd if=/dev/zero of=/dev/null bs=1k count=3 status=none 2>&1 | wc -c >said";
    let said = folder.path().join("said");
    let script = script.replace("said", &said.display().to_string());
    let (_, files) = measured(folder.path(), &["sh", "-c", &script]);
    assert_eq!(fs::read_to_string(said).expect("said").trim(), "0");
    assert!(files.not_seen.iter().any(|n| n.command.starts_with("dd ")), "{:?}", files.not_seen);
}

/// With a folder as its argument it uses files in many ways, with `sockets` it connects to itself.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int shared;

static void *thread(void *none) {
    char block[100] = {0};
    for (int i = 0; i < 1000; i++) {
        pwrite(shared, block, 100, 0);
        pread(shared, block, 50, 0);
    }
    return none;
}

static int sockets(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    char block[1500] = {0};
    bind(listener, (struct sockaddr *)&address, size);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&address, &size);
    connect(client, (struct sockaddr *)&address, size);
    int server = accept(listener, 0, 0);
    send(client, block, 1000, 0);
    write(client, block, 500);
    size_t left = sizeof block;
    while (left > 0) {
        ssize_t n = left > 700 ? recv(server, block, left - 200, 0) : read(server, block, left);
        if (n <= 0) return 1;
        left -= n;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "sockets")) return sockets();
    if (!strcmp(argv[1], "sandbox")) {
        /* From here on any system call but read, write, exit and sigreturn ends the process. */
        if (prctl(PR_SET_SECCOMP, 1, 0, 0, 0)) return 1;
        ssize_t n = write(1, "ten bytes\n", 10);
        syscall(SYS_exit, n == 10 ? 0 : 1);
    }
    char block[5000] = {0};
    if (chdir(argv[1])) return 1;

    FILE *in = fopen("in", "r"), *out = fopen("out", "w");
    while (fgetc(in) != EOF) {}
    fclose(in);
    for (int i = 0; i < 54321; i++) fputc('y', out);
    fclose(out);
    int linked = open("linked", O_RDONLY);
    read(linked, block, 10);
    close(linked);

    FILE *moved = fopen("moved", "w+");
    fwrite(block, 1, 2000, moved);
    fseek(moved, 1000, SEEK_SET);
    fwrite(block, 1, 1000, moved);
    fclose(moved);

    shared = open("threads", O_RDWR | O_CREAT, 0600);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, thread, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);

    int mapped = open("mapped", O_RDWR | O_CREAT, 0600);
    ftruncate(mapped, 8192);
    memset(mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0), 1, 8192);

    int from = open("in", O_RDONLY), copy = creat("copy", 0600);
    while (sendfile(copy, from, 0, 1 << 20) > 0) {}
    close(from);

    if (fork() == 0) {
        int child = open("child", O_WRONLY | O_CREAT, 0600);
        for (int i = 0; i < 10; i++) write(child, "seven b", 7);
        FILE *flushed = fopen("flushed", "w");
        fwrite(block, 1, 3000, flushed);
        fflush(flushed);
        _exit(0);
    }
    wait(0);

    FILE *left = fopen("left", "w");
    fwrite(block, 1, 5000, left);
    close_range(fileno(left) + 1, ~0u, 0);
    for (int fd = 0; fd < fileno(left); fd++) close(fd);
    int late = open("late", O_WRONLY | O_CREAT, 0600);
    write(late, "the end\n", 8);
    return 0;
}
"#;
