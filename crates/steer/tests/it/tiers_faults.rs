//! Bad input and tiers that fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use skopos_steer::Error;
use skopos_steer::place::{Informed, RoundRobin};
use skopos_steer::tiers::{Declared, Engine, Settings, TierSpec};

use crate::tiers::{content, informed, open, round_robin};

#[test]
fn names_that_leave_a_tier_are_refused_with_a_hint() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = informed(dir.path(), [1000, 1000, 1000]);
    for bad in ["../x", "a/../../x", "/etc/x", "", "."] {
        let error = engine.write(bad, b"x").expect_err(bad);
        assert!(
            matches!(error, Error::FileName { .. }) && error.hint().is_some(),
            "{bad}: {error}"
        );
        assert!(engine.read(bad).is_err() && engine.remove(bad).is_err());
    }
    assert!(engine.files().is_empty());
}

#[test]
fn a_file_that_is_too_large_or_exists_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = informed(dir.path(), [1000, 1000, 2000]);
    let error = engine.write("large", &content("large", 2001)).expect_err("too large");
    assert!(error.to_string().contains("the largest tier holds 2000"), "{error}");
    engine.write("a", b"first").expect("written");
    assert!(matches!(engine.write("a", b"second"), Err(Error::FileExists(_))));
    assert_eq!(engine.read("a").expect("readable"), b"first");
    // A file that fits the hierarchy, but not the free room.
    engine.write("b", &content("b", 1900)).expect("written");
    let error = engine.write("c", &content("c", 1900)).expect_err("no room");
    assert!(matches!(error, Error::NoRoom { .. }) && error.hint().is_some(), "{error}");
    engine.remove("b").expect("removed");
    engine.write("c", &content("c", 1900)).expect("written");
    assert_eq!(engine.used_bytes().iter().sum::<u64>(), 1905);
}

#[test]
fn hierarchies_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let check = |tiers: Vec<TierSpec>, expected: &str| {
        let opened = Engine::open(
            Settings { tiers },
            Box::new(RoundRobin::new()),
            Box::<Declared>::default(),
        );
        let error = opened.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    let tier = |name: &str, folder: &str| TierSpec::new(name, dir.path().join(folder), 1000);
    check(vec![], "0 tiers");
    check(vec![tier("a", "a"), tier("a", "b")], "two tiers are named `a`");
    check(vec![tier("a", "a"), tier("b", "a")], "two tiers are in the folder");
    check((0..17).map(|n| tier(&n.to_string(), &n.to_string())).collect(), "17 tiers");
    // A tier that is not mounted is not made below its mount point.
    check(vec![tier("a", "missing/a")], "cannot make the folder");
}

#[test]
fn a_tier_that_vanishes_costs_no_file_and_comes_back() {
    for (name, policy) in crate::place::policies() {
        let dir = tempfile::tempdir().expect("a folder");
        let engine = open(dir.path(), [10_000, 10_000, 100_000], policy).expect("an engine");
        for file in ["a", "b", "c", "d"] {
            engine.write(file, &content(file, 900)).expect("written");
        }
        let on_memory: Vec<&str> =
            ["a", "b", "c", "d"].into_iter().filter(|f| engine.holders(f) == ["memory"]).collect();
        assert!(!on_memory.is_empty(), "{name}");
        let (here, away) = (dir.path().join("memory"), dir.path().join("away"));
        std::fs::rename(&here, &away).expect("moved");
        for n in 0..6 {
            let file = format!("later/{n}");
            engine.write(&file, &content(&file, 900)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_ne!(engine.holders(&file), ["memory"], "{name}");
        }
        let error = engine.read(on_memory[0]).expect_err("it is away");
        assert!(
            error.to_string().contains("`memory`") && error.hint().is_some(),
            "{name}: {error}"
        );
        assert!(engine.remove(on_memory[0]).is_err(), "{name}: a file that is away is not removed");
        assert!(engine.stats().failures > 0, "{name}");
        std::fs::rename(&away, &here).expect("moved");
        for file in on_memory {
            assert_eq!(engine.read(file).expect("it is back"), content(file, 900), "{name}");
        }
    }
}

#[test]
fn a_file_that_was_cut_from_outside_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = round_robin(dir.path(), [1000, 1000, 10_000]);
    engine.write("a", &content("a", 900)).expect("written");
    std::fs::write(dir.path().join("memory/home/a"), b"short").expect("cut");
    let error = engine.read("a").expect_err("cut");
    let source = std::error::Error::source(&error).expect("a source").to_string();
    assert!(source.contains("another length"), "{source}");
}

/// A tmpfs of a megabyte, which is unmounted when this is dropped.
struct Small(PathBuf);

impl Small {
    /// `None` without the permission to mount.
    fn mount(folder: &Path) -> Option<Self> {
        std::fs::create_dir(folder).expect("a folder");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=1m", "skopos-test"]).arg(folder);
        let output = command.output().ok()?;
        output.status.success().then(|| Self(folder.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_file_system_that_others_filled_is_counted_and_left() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(small) = Small::mount(&dir.path().join("small")) else {
        eprintln!("skipped: mounting a tmpfs needs root");
        return;
    };
    for (name, policy) in crate::place::policies() {
        let tiers = vec![
            TierSpec::new("small", small.0.join(name.replace(' ', "-")), 8_000_000),
            TierSpec::new("slow", dir.path().join(name), 8_000_000),
        ];
        let speeds = Declared { bytes_per_second: vec![Some(1e9), Some(1e8)] };
        let engine = Engine::open(Settings { tiers }, policy, Box::new(speeds)).expect("an engine");
        for n in 0..8 {
            let file = format!("f{n}");
            engine.write(&file, &content(&file, 300_000)).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let stats = engine.stats();
        assert!(stats.full > 0 && stats.failures >= stats.full, "{name}: {stats:?}");
        for n in 0..8 {
            let file = format!("f{n}");
            assert!(
                engine.read(&file).expect("readable") == content(&file, 300_000),
                "{name}: {file}"
            );
        }
        for file in engine.files() {
            engine.remove(&file).expect("removed");
        }
    }
}

#[test]
fn a_replica_whose_tier_fails_goes_to_another_set() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = open(dir.path(), [10_000; 3], Box::new(Informed::new())).expect("an engine");
    std::fs::rename(dir.path().join("fast"), dir.path().join("away")).expect("moved");
    engine.replicate("r", &content("r", 100), 2).expect("written");
    assert_eq!(engine.holders("r"), ["memory", "slow"]);
    let error = engine.replicate("all", &content("all", 100), 3).expect_err("a tier is away");
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    assert!(engine.holders("all").is_empty());
    assert_eq!(engine.used_bytes(), [100, 0, 100]);
}
