//! A mount that hangs costs only its own facts.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Running, eventually, run, runtime_dir, signal};

/// Mounts a FUSE file system without a server in a mount namespace of its own, and runs a command
/// there. A `statfs(2)` of the mount waits for an answer that never comes.
const SCRIPT: &str = r#"
    mount --make-rprivate / &&
    exec 3<>/dev/fuse &&
    mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 nobody "$1" &&
    shift &&
    exec "$@"
"#;

fn beside_a_hung_mount(point: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sh"]).arg(point).stdin(Stdio::null());
    command
}

/// Returns the reason why such a mount cannot be made here.
fn obstacle(point: &Path) -> Option<String> {
    match beside_a_hung_mount(point).arg("true").output() {
        Ok(Output { status, .. }) if status.success() => None,
        Ok(Output { stderr, .. }) => Some(String::from_utf8_lossy(&stderr).trim().to_owned()),
        Err(e) => Some(format!("unshare: {e}")),
    }
}

#[test]
fn a_mount_that_hangs_delays_nothing_and_is_shown() {
    let mount = tempfile::tempdir().expect("a directory");
    if let Some(reason) = obstacle(mount.path()) {
        println!("skipped: a mount that hangs takes root and /dev/fuse: {reason}");
        return;
    }
    let dir = runtime_dir();
    let child = beside_a_hung_mount(mount.path())
        .arg(env!("CARGO_BIN_EXE_skopos"))
        .args(["agent", "--node", "n01", "--interval", "100ms", "--budget", "100%"])
        .args(["--policy", "fixed"])
        .env("SKOPOS_DIR", dir.path())
        .env("SKOPOS_STATE", dir.path().join("state"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("unshare(1)");
    let mut agent = Running { dir, child, _stdout: None };
    let path = agent.path().to_owned();
    let number = |topic: &str| -> Option<f64> {
        let ran = run(&path, &["get", topic, "--plain"]);
        ran.stdout.split('\t').nth(1)?.parse().ok()
    };
    let mut instance = String::new();
    skopos_model::escape_segment(mount.path().as_os_str().as_encoded_bytes(), &mut instance);
    let of_mount = |metric: &str| number(&format!("n01/remote_fs/{instance}/{metric}"));

    eventually("the mount is reported as hung", || of_mount("responding") == Some(0.0));
    assert_eq!(of_mount("total_bytes"), None, "the size is unknown");
    let doctor = || run(&path, &["doctor", "--json"]).json();
    let what = format!("remote_fs/{instance}");
    let reason = || {
        let doctor = doctor();
        let skip = doctor["skips"].as_array()?.iter().find(|skip| skip["what"] == what)?.clone();
        Some(skip["reason"].as_str()?.to_owned())
    };
    eventually("the doctor shows it", || {
        reason().is_some_and(|reason| reason.starts_with("has not answered for "))
    });

    let polls = |sensor: &str| number(&format!("self/sensor/{sensor}/polls_total"));
    for sensor in ["mem", "fs", "remote_fs"] {
        let before = polls(sensor).expect("it is polled");
        eventually(&format!("{sensor} goes on"), || polls(sensor) > Some(before));
        let errors = number(&format!("self/sensor/{sensor}/poll_errors_total"));
        assert_eq!(errors.unwrap_or_default(), 0.0, "{sensor}");
    }
    eventually("no lane waits for the mount", || number("self/busy_lanes") == Some(0.0));
    let sensors = doctor()["sensors"].as_array().cloned().unwrap_or_default();
    assert!(sensors.iter().all(|sensor| sensor["error"].is_null()), "{sensors:?}");

    // The thread that hangs does not keep the agent from exiting.
    signal(&agent.child, "TERM");
    assert!(agent.child.wait().expect("it ends").success());
}
