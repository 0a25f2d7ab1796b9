//! Files of static programs by `seccomp`: every byte is counted once, and the task does not depend on
//! its monitor.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use skopos_model::task::{Completeness, FileUse, Files};

use super::*;
use crate::support::PATIENCE;

/// Creates a folder that any user may write to, with the program, without a loader, and its input.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/run/moves.c");
    let flags = ["-static", "-O1", "-pthread", "-o"];
    let mut compiler = Command::new("cc");
    compiler.args(flags).arg(folder.path().join("moves")).arg(source);
    assert!(compiler.status().expect("a C compiler").success());
    std::fs::write(folder.path().join("in"), vec![7; 1001 * 4096]).expect("written");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), all).expect("for everybody");
    folder
}

/// The mechanisms of these tests, without those that would report more where they may be used.
const BY_IT: &str = "wait4,procfs,ptrace,seccomp";

/// Returns whether `seccomp` can be used here; prints the reason if not.
fn is_there(folder: &Path) -> bool {
    let mut command =
        monitor(&["--explain", "--json", "--level", "3", "--mechanism", BY_IT, "--", "./moves"]);
    let outcome = command.current_dir(folder).output().expect("it starts");
    let explained: Json = serde_json::from_slice(&outcome.stdout).expect("JSON");
    let all = explained["mechanisms"].as_array().expect("a list");
    let own = all.iter().find(|m| m["name"] == "seccomp").expect("each is listed");
    if own["used"] != true {
        eprintln!("skipped: {}", own["why"]);
    }
    own["used"] == true
}

fn watched(folder: &Path, args: &[&str]) -> (Option<i32>, Files) {
    let report = folder.join(format!("report-{}", args.join("-")));
    let mut all =
        vec!["--level", "3", "--mechanism", BY_IT, "--report", text(&report), "--", "./moves"];
    all.extend(args);
    let ran = monitor(&all).current_dir(folder).output().expect("it starts");
    let files = std::fs::read(report.join("files.json"));
    let files = files.unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    let files: Files = serde_json::from_slice(&files).expect("JSON");
    assert_eq!(files.method, "seccomp", "{}", files.reason);
    (ran.status.code(), files)
}

fn file<'a>(files: &'a Files, name: &str) -> &'a FileUse {
    let name = format!("/{name}");
    let found: Vec<_> = files.files.iter().filter(|f| f.path.ends_with(&name)).collect();
    assert_eq!(found.len(), 1, "{name} in {files:#?}");
    found[0]
}

/// Returns the guardians of the monitors of this class.
fn guardians(class: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |p: &PathBuf| {
        let text = |name| std::fs::read_to_string(p.join(name)).unwrap_or_default();
        // A guardian that has exited has no command line until init reaps it.
        text("comm").trim() == "skopos-guardian" && text("cmdline").contains(class)
    };
    all.map(|e| e.path()).filter(is_one).map(|p| p.display().to_string()).collect()
}

#[test]
fn a_static_copy_is_counted_to_the_byte() {
    let folder = folder();
    if !is_there(folder.path()) {
        return;
    }
    let (code, files) = watched(folder.path(), &["copy"]);
    assert_eq!((code, files.completeness), (Some(0), Completeness::All), "{}", files.reason);
    let (from, to) = (file(&files, "in"), file(&files, "copy"));
    assert_eq!((from.read_bytes, from.written_bytes, from.opens), (4_100_096, 0, 1));
    assert_eq!((to.read_bytes, to.written_bytes, to.opens), (0, 4_100_096, 1));
    assert_eq!(files.files_total, 2);
    assert_eq!(files.unattributed_read_bytes, Some(0));
    assert!(files.not_counted.iter().any(|name| name == "reads"));
    assert_eq!(files.processes[0].written_bytes, 4_100_096);
}

#[test]
fn descriptors_of_one_open_file_count_once() {
    let folder = folder();
    if !is_there(folder.path()) {
        return;
    }
    for (what, expected) in [
        ("shares", &[("shared", 1000, 1), ("both", 1000, 500)][..]),
        ("seeks", &[("sought", 118, 1), ("in", 69, 1)]),
        ("becomes", &[("became", 30, 1)]),
        ("closes", &[("closed", 8, 1)]),
        ("killed", &[("killed", 500, 1)]),
    ] {
        let (_, files) = watched(folder.path(), &[what]);
        for (name, bytes, opens) in expected {
            let found = file(&files, name);
            let got = (found.read_bytes + found.written_bytes, found.opens);
            assert_eq!(got, (*bytes, *opens), "{what}: {name} in {files:#?}");
        }
        assert_eq!(files.unattributed_written_bytes, Some(0), "{what}");
    }
}

#[test]
fn ten_thousand_opens_are_all_counted() {
    let folder = folder();
    if !is_there(folder.path()) {
        return;
    }
    let (_, files) = watched(folder.path(), &["many"]);
    assert_eq!((files.files_total, files.written_bytes), (5000, 30_000), "{}", files.reason);
    let opens = files.files.iter().map(|f| f.opens).sum::<u64>() + files.left_out.opens;
    assert_eq!(opens, 10_000);
}

#[test]
fn bytes_that_positions_do_not_show_are_reported() {
    let folder = folder();
    if !is_there(folder.path()) {
        return;
    }
    std::fs::write(folder.path().join("log"), [7; 1000]).expect("written");
    let (_, files) = watched(folder.path(), &["kinds"]);
    // The task read nothing, so the bytes of a file that was open for both were written.
    assert_eq!(file(&files, "both-ways").written_bytes, 40);
    assert_eq!(file(&files, "log").written_bytes, 0, "the end of the file is not a count");
    assert_eq!(files.unattributed_written_bytes, Some(35));
    assert_eq!(files.completeness, Completeness::AtLeast);
    assert!(files.reason.contains("1 descriptors appended"), "{}", files.reason);
}

#[test]
fn calls_that_a_signal_interrupts_are_made_again() {
    let folder = folder();
    if !is_there(folder.path()) {
        return;
    }
    let mut command =
        monitor(&["--level", "3", "--mechanism", BY_IT, "--", "./moves", "interrupted"]);
    let ran = command.current_dir(folder.path()).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "0\n", "{ran:?}");
}

/// The number of monitors that are killed, each at some point of its work. A few of them have taken a
/// call and not yet answered it.
const KILLED: usize = 12;

#[test]
fn a_task_whose_monitor_is_killed_works_on_and_leaves_no_guardian() {
    let folder = folder();
    if !is_there(folder.path()) {
        return;
    }
    let start = Instant::now();
    let wait = |what: &str, mut is_so: Box<dyn FnMut() -> bool>| {
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let class = format!("killed-{}", std::process::id());
    let mut tasks = Vec::new();
    for n in 0..KILLED {
        let script = format!("./moves loop; echo $? >code-{n}");
        let mut command = monitor(&["--level", "3", "--mechanism", "ptrace,seccomp"]);
        command.args(["--name", &class, "--", "sh", "-c", &script]);
        let command = command.current_dir(folder.path()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let pid: i32 = line.trim().parse().expect("its id");
        let class = class.clone();
        wait("there is no guardian", Box::new(move || guardians(&class).len() == n + 1));
        child.kill().expect("killed with SIGKILL");
        child.wait().expect("it ends");
        tasks.push((pid, output));
    }
    for (pid, _) in &tasks {
        let pid = *pid;
        let spent = move || {
            let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"));
            let text = text.expect("it lives");
            text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).expect("a number")
        };
        let before = spent();
        wait("the task waits for an answer", Box::new(move || spent() > before + 1_000_000));
    }
    std::fs::write(folder.path().join("stop"), "").expect("written");
    for (n, (_, mut output)) in tasks.into_iter().enumerate() {
        // The output ends with the task: the guardian has none of its streams open.
        let mut line = String::new();
        assert_eq!(output.read_line(&mut line).expect("read"), 0, "{line}");
        let place = folder.path().join(format!("code-{n}"));
        let code = || std::fs::read_to_string(&place).unwrap_or_default();
        assert_eq!(code(), "3\n", "the task exited as it would without a monitor");
    }
    wait("a guardian is left", Box::new(move || guardians(&class).is_empty()));
}

#[test]
fn a_monitor_in_a_monitor_says_why_it_does_without() {
    let folder = folder();
    if !is_there(folder.path()) {
        return;
    }
    let own = env!("CARGO_BIN_EXE_skopos");
    let inner = ["run", "--json", "--level", "3", "--mechanism", BY_IT, "--", "./moves", "copy"];
    let outer = ["--level", "3", "--mechanism", BY_IT, "--", own];
    let mut command = monitor(&[&outer[..], &inner[..]].concat());
    command.current_dir(folder.path());
    let outcome = measure_by(command);
    assert_eq!(outcome.code, Some(0));
    let all = outcome.summary["mechanisms"].as_array().expect("a list");
    let inside = all.iter().find(|m| m["name"] == "seccomp").expect("each is listed");
    assert_eq!(inside["used"], false, "{inside}");
    assert!(inside["why"].as_str().is_some_and(|why| why.len() > 10), "{inside}");
}

#[test]
fn an_ordinary_user_may_too() {
    let folder = folder();
    let own = folder.path().join("skopos");
    std::fs::copy(env!("CARGO_BIN_EXE_skopos"), &own).expect("copied");
    let report = folder.path().join("theirs");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(&own);
    command.args(["run", "--level", "3", "--mechanism", BY_IT]);
    command.args(["--report", text(&report), "--", "./moves", "copy"]);
    if !rustix::process::geteuid().is_root() || !is_there(folder.path()) {
        eprintln!("skipped: only root can change its user");
        return;
    }
    let ran = command.current_dir(folder.path()).output().expect("it starts");
    assert!(ran.status.success(), "{ran:?}");
    let files = std::fs::read(report.join("files.json")).expect("outcome");
    let files: Files = serde_json::from_slice(&files).expect("JSON");
    assert_eq!((files.method.as_str(), files.completeness), ("seccomp", Completeness::All));
    assert_eq!(file(&files, "copy").written_bytes, 4_100_096);
}
