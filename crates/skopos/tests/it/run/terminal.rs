//! A task at a terminal: it gets job control, resizing and Ctrl-C as it would without a monitor, and
//! the summary is for the person at the terminal.

use super::*;

#[test]
fn job_control_is_that_of_the_task() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/run/terminal.py");
    for (tool, arg) in [("python3", "--version"), ("bash", "--version")] {
        if Command::new(tool).arg(arg).output().is_err() {
            eprintln!("skipped: there is no {tool}");
            return;
        }
    }
    for by in ["--level=1", "--level=2", "--mechanism=wait4,procfs,ptrace"] {
        let mut command = Command::new("python3");
        command.arg(&script).args([env!("CARGO_BIN_EXE_skopos"), "run", "-q", by]);
        let Output { status, stdout, stderr } = command.arg("--").output().expect("it starts");
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{by}: {stderr}");
        let stdout = String::from_utf8_lossy(&stdout);
        assert_eq!(stdout, "stopped\nresized\nstopped by itself\ncode 4\n", "{by}");
    }
}

#[test]
fn a_person_at_a_terminal_gets_a_short_summary_with_findings_first() {
    let run = |options: &str, task: &str| {
        let line = format!("{} run {options} -- {task}", env!("CARGO_BIN_EXE_skopos"));
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).stdin(std::process::Stdio::null());
        command.output().ok().map(|out| String::from_utf8_lossy(&out.stdout).replace('\r', ""))
    };
    let Some(quiet) = run("-q", "echo out") else {
        eprintln!("skipped: there is no script(1)");
        return;
    };
    assert_eq!(quiet, "out\n");
    let text = run("", "sh -c 'echo out; kill -SEGV $$'").expect("as before");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() < 20, "{text}");
    assert_eq!((lines[0], lines[1]), ("out", "! the task died of signal 11 (SIGSEGV)"), "{text}");
    assert!(lines[2].starts_with("  "), "a hint follows: {text}");
    assert!(
        text.contains("\n  wall_seconds ") && text.contains("\n  resident_bytes_max "),
        "{text}"
    );
}
