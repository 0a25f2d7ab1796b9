//! The plugin for Margo: against a fake of Margo's monitoring interface, and against Mochi where it is there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use skopos_rpc::{Interval, Kind, Status};
use tempfile::TempDir;

use super::grpc::trace::{Side, read_folder};
use super::{is_there, libraries, root};

fn sources() -> PathBuf {
    root().join("clients/c/margo")
}

fn cc(words: &[&str], inputs: &[&Path], output: &Path) {
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-Wno-address", "-O1"])
        .arg("-I")
        .arg(sources().join("fake"));
    cc.arg("-I").arg(root().join("clients/c")).args(inputs).args(words).arg("-o").arg(output);
    let ran = cc.output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Builds the fake library, a program that knows the fake only, and the plugin.
fn build() -> Option<TempDir> {
    if !is_there("cc") {
        println!("skipped: there is no `cc`");
        return None;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let fake = sources().join("fake");
    let at = |name: &str| dir.path().join(name);
    let shared = ["-shared", "-fPIC"];
    let library = at("libmargo.so.0.18.3");
    cc(
        &[&shared[..], &["-Wl,-soname,libmargo.so.0"]].concat(),
        &[&fake.join("libmargo.c")],
        &library,
    );
    for link in ["libmargo.so.0", "libmargo.so"] {
        std::os::unix::fs::symlink("libmargo.so.0.18.3", at(link)).expect("a link");
    }
    let folder = format!("-L{}", dir.path().display());
    cc(&[&folder, "-lmargo"], &[&fake.join("program.c")], &at("program"));
    let ours = format!("-L{}", libraries().display());
    let plugin = [&shared[..], &[&ours, "-lskopos_ffi"]].concat();
    cc(&plugin, &[&sources().join("skopos_margo.c")], &at("libskopos_margo.so"));
    std::fs::create_dir(at("traces")).expect("a folder");
    Some(dir)
}

fn run(dir: &TempDir, program: &Path, version: Option<&str>) -> Output {
    let mut command = Command::new(program);
    let paths = format!("{}:{}", dir.path().display(), libraries().display());
    command.env("LD_LIBRARY_PATH", paths).env("LD_PRELOAD", dir.path().join("libskopos_margo.so"));
    command.env("SKOPOS_DIR", dir.path().join("run"));
    command.env("SKOPOS_MARGO_FOLDER", dir.path().join("traces"));
    command.envs(version.map(|version| ("SKOPOS_MARGO_VERSION", version)));
    command.output().expect("it starts")
}

#[test]
fn a_program_with_margo_is_recorded_without_a_change() {
    let Some(dir) = build() else { return };
    let ran = run(&dir, &dir.path().join("program"), None);
    assert!(ran.status.success(), "{:?} {}", ran.status, String::from_utf8_lossy(&ran.stderr));
    let sides = read_folder(&dir.path().join("traces"));
    let of = |kind, name: &str| -> Vec<Side> {
        let found = sides.iter().filter(|s| s.record.kind == kind && s.name == name);
        found.cloned().collect()
    };
    let (relay, calls) = (of(Kind::Target, "relay"), of(Kind::Origin, "put"));
    let statuses: Vec<_> = calls.iter().map(|side| side.record.status).collect();
    assert_eq!(statuses, [Status::Ok, Status::TimedOut, Status::Cancelled]);
    assert!(calls[..2].iter().all(|call| call.record.parent == relay[0].record.span));
    assert_eq!(calls[2].record.parent, 0);
    for interval in [
        Interval::TargetHandler,
        Interval::InputDeserialization,
        Interval::TargetExecutionExclusive,
        Interval::OutputSerialization,
        Interval::TargetCompletionCallback,
        Interval::Children,
    ] {
        assert!(relay[0].interval(interval) >= 1_000_000, "{interval:?} of {relay:?}");
    }
    assert!(calls[0].interval(Interval::InputSerialization) >= 1_000_000);
    assert!(calls[0].interval(Interval::OriginCompletionCallback) >= 1_000_000);
    // The target knows the RPC that its caller served, so both sides have one callpath.
    assert_eq!(of(Kind::Target, "put")[0].hash, calls[0].hash);
    assert_eq!(sides.len(), 5);
}

#[test]
fn the_plugin_leaves_another_version_and_other_programs_alone() {
    let Some(dir) = build() else { return };
    let ran = run(&dir, &dir.path().join("program"), Some("0.17.1"));
    // The program says so if Margo's monitor is not replaced.
    assert_eq!(ran.status.code(), Some(3));
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(text.contains("made for Margo 0.18, and the loaded one is 0.17"), "{text}");
    let ran = run(&dir, Path::new("/bin/true"), None);
    assert!(ran.status.success() && ran.stderr.is_empty());
    assert_eq!(std::fs::read_dir(dir.path().join("traces")).expect("made").count(), 0);
}

#[test]
fn the_plugin_compiles_with_mochi() {
    let asked = Command::new("pkg-config").args(["--cflags", "margo"]).output();
    let Some(asked) = asked.ok().filter(|asked| asked.status.success()) else {
        println!("skipped: pkg-config does not find Mochi's Margo, which no package registry has");
        return;
    };
    let dir = tempfile::tempdir().expect("a folder");
    let flags = String::from_utf8_lossy(&asked.stdout);
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC"]).args(flags.split_whitespace());
    cc.arg("-I").arg(root().join("clients/c")).arg(sources().join("skopos_margo.c"));
    cc.arg("-L").arg(libraries()).arg("-lskopos_ffi").arg("-o").arg(dir.path().join("plugin.so"));
    let ran = cc.output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
