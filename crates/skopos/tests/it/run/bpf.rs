//! Processes by BPF: the data match what happened, and no process is stopped for them.

use super::*;

const MIB: f64 = 1024.0 * 1024.0;

/// Returns whether BPF can be used here; prints the reason if not.
fn is_usable() -> bool {
    let Output { stdout, .. } = monitor(&["--explain", "--json"]).output().expect("it starts");
    let outcome: Json = serde_json::from_slice(&stdout).expect("JSON");
    let bpf = mechanism(&outcome, "bpf");
    if bpf["used"] != true {
        println!("skipped: {}", bpf["why"]);
    }
    bpf["used"] == true
}

fn mechanism(outcome: &Json, name: &str) -> Json {
    let list = outcome["mechanisms"].as_array().expect("a list");
    list.iter().find(|m| m["name"] == name).expect("each is listed").clone()
}

#[test]
fn two_thousand_short_processes_are_all_seen() {
    if !is_usable() {
        return;
    }
    let births = program("births");
    let outcome = measure(&["--", text(&births), "short", "2000"]);
    assert_eq!(outcome.code, Some(0));
    for (name, expected) in
        [("processes_total", 2001.0), ("processes_max", 2.0), ("threads_max", 2.0)]
    {
        assert_eq!(outcome.value(name), expected, "{name}");
        assert_eq!(
            (outcome.of(name, "method"), outcome.of(name, "completeness")),
            (&"bpf".into(), &"all".into())
        );
    }
    assert_eq!(
        outcome.of("resident_bytes_max", "completeness"),
        "all",
        "each process was measured"
    );
    assert_eq!(outcome.summary["overhead"]["stops"], 0);
    let processes = outcome.summary["processes"].as_array().expect("a list");
    assert_eq!(
        processes.len() as u64 + outcome.summary["processes_left_out"].as_u64().expect("known"),
        2001
    );
    let short = processes.iter().filter(|p| p["command"] == "/bin/true");
    assert_eq!(short.clone().count(), processes.len() - 1);
    for process in short {
        assert_eq!(process["status"], 0, "{process}");
        assert!(process["resident_bytes_max"].as_f64() > Some(0.1 * MIB), "{process}");
        let seconds = |name: &str| process[name].as_f64().expect("known");
        assert!(seconds("start_seconds") <= seconds("end_seconds"), "{process}");
    }
    // No CPU time is lost: the times of the children and of the shell add up to the kernel's total.
    let sum: f64 = processes.iter().map(|p| p["cpu_seconds"].as_f64().expect("known")).sum();
    let listed = processes.len() as f64 / 2001.0;
    let all = outcome.value("cpu_seconds");
    assert!(sum > 0.5 * listed * all && sum < 1.1 * all, "{sum} of {all}");
}

#[test]
fn memory_that_a_static_program_held_for_a_moment_is_exact() {
    if !is_usable() {
        return;
    }
    let births = built("births", &["-static"]);
    let idle = measure(&["--", text(&births), "spike", "0"]);
    // The size is not a multiple of the batches in which processors count.
    let outcome = measure(&["--", text(&births), "spike", "300060"]);
    let held = outcome.value("resident_bytes_max") - idle.value("resident_bytes_max");
    // The kernel maps up to 64 KiB of the program's file around each fault, as far as they are cached.
    assert!((held / 1024.0 - 300_060.0).abs() <= 64.0, "{held}");
    assert_eq!(outcome.of("resident_bytes_max", "error_bound"), 0.0, "the peak was at the exit");
    assert_eq!(outcome.of("resident_bytes_max", "method"), "bpf");
}

#[test]
fn a_task_may_trace_its_own_children() {
    if !is_usable() {
        return;
    }
    let kinds = program("kinds");
    let outcome = measure(&["--", text(&kinds), "trace"]);
    assert_eq!(outcome.code, Some(6), "tracing was refused");
    assert_eq!(outcome.value("processes_total"), 2.0);
}

#[test]
fn bytes_of_threads_count_once_and_a_process_ends_with_its_last() {
    if !is_usable() {
        return;
    }
    let births = program("births");
    let [idle, outcome] =
        ["none", "threads"].map(|what| measure(&["--mechanism", "bpf", "--", text(&births), what]));
    let read = outcome.value("read_bytes") - idle.value("read_bytes");
    // Four threads start more than one does, but they read nothing to start.
    assert_eq!(read, 300_000.0);
    assert_eq!(outcome.of("read_bytes", "completeness"), "all");
    assert_eq!((outcome.value("threads_max"), outcome.value("processes_total")), (4.0, 1.0));
    let process = &outcome.summary["processes"][0];
    assert_eq!(process["read_bytes"].as_f64(), Some(outcome.value("read_bytes")), "{process}");
}

#[test]
fn an_ordinary_user_gets_the_reason_and_another_mechanism() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become an ordinary user");
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    // The other user needs a folder that it may enter.
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let own = folder.path().join("skopos");
    std::fs::copy(env!("CARGO_BIN_EXE_skopos"), &own).expect("copied");
    use std::os::unix::fs::PermissionsExt as _;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open.clone()).expect("opened");
    std::fs::set_permissions(&own, open).expect("opened");
    command.arg(&own).args(["run", "--json", "--", "/bin/true"]).current_dir("/");
    let outcome = measure_by(command);
    assert_eq!(outcome.code, Some(0));
    let bpf = mechanism(&outcome.summary, "bpf");
    assert_eq!(bpf["used"], false);
    let why = bpf["why"].as_str().expect("a reason");
    assert!(why.contains("CAP_BPF"), "{why}");
    let ptrace = mechanism(&outcome.summary, "ptrace");
    assert_eq!(ptrace["used"], false, "{ptrace}");
    assert!(ptrace["why"].as_str().is_some_and(|why| why.contains("--level 2")), "{ptrace}");
    assert_eq!(outcome.value("processes_total"), 1.0);
}

#[test]
fn usage_without_a_waiting_parent_is_counted_by_the_kernel_and_incomplete_elsewhere() {
    if !is_usable() {
        return;
    }
    let kinds = program("kinds");
    let args =
        ["--mechanism", "bpf,wait4,procfs", "--", text(&kinds), "ignore-children", "1000000"];
    let outcome = measure(&args);
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.of("written_bytes", "method"), "bpf");
    assert!(outcome.value("written_bytes") >= 20e6);
    assert_eq!(outcome.of("minor_faults", "method"), "bpf");
    assert_eq!(outcome.of("user_seconds", "completeness"), "at_least");
}
