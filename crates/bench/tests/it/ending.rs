//! A signal ends a benchmark with all that it started.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use skopos_net::lab::{disk_folder, nodes};

use crate::bench;

/// Says loudly why a test is skipped, if this process cannot make a lab with disks.
fn cannot() -> bool {
    let why = if !geteuid().is_root() {
        "needs root"
    } else if Command::new("ip").arg("netns").output().is_err() {
        "needs `ip` (Debian: iproute2)"
    } else if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        "needs mkfs.ext4 (Debian: e2fsprogs)"
    } else if !Path::new("/dev/fuse").exists() {
        "needs /dev/fuse"
    } else {
        return false;
    };
    println!("skipped: {why}");
    true
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").expect("mounts")
}

/// Returns the command lines of running programs that have this text.
fn running(text: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(text)).collect()
}

#[test]
fn a_signal_ends_a_benchmark_with_its_children_and_its_lab() {
    if cannot() {
        return;
    }
    let mut command = Command::new(bench());
    command.args(["tiers", "--quick", "--json"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let lab = format!("tiers{}", child.id());
    // The last disk of the lab. The disks are calibrated by a child after it.
    let disk = format!(" {} ", disk_folder(&lab, "slow").display());
    while !mounts().contains(&disk) {
        assert!(child.try_wait().expect("a child").is_none(), "it has built no lab");
        thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(128 + Signal::TERM.as_raw()), "{status}");
    assert!(nodes(&lab).is_empty(), "namespaces are left");
    let left = format!("/{lab}/");
    assert!(!mounts().contains(&left), "mounts are left: {}", mounts());
    assert!(running(&left).is_empty(), "programs are left: {:?}", running(&left));
    let memory = format!("/dev/shm/skopos-bench-{}", child.id());
    assert!(!Path::new(&memory).exists(), "{memory} is left");
}
