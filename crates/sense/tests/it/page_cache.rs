//! Watched files, beside `fincore` (util-linux).

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use skopos_sense::Root;

use crate::live::{run, skipped};
use crate::support::Host;

/// Whole pages on every machine.
const BYTES: usize = 4 << 20;

/// Returns a folder on a disk: files of tmpfs are always in memory.
fn folder() -> tempfile::TempDir {
    let beside = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(beside).expect("a folder")
}

fn watching(paths: Vec<PathBuf>) -> Host {
    let mut host = Host::open(&Root { watched: paths, ..Root::default() });
    host.sensors.retain(|sensor| sensor.family().name == "page_cache");
    host
}

/// Returns the facts of the only file that is measured; `None`, and a line, where the kernel does not answer.
fn facts(host: &mut Host) -> Option<impl Fn(&str) -> f64 + use<>> {
    host.poll(1.0);
    let reason = host.skip("page_cache/*");
    if let Some(reason) = reason.filter(|r| r.contains("cachestat")) {
        skipped(reason);
        return None;
    }
    let all = host.table.snapshot();
    let instance = host.table.instances("page_cache/").first().map(|name| (*name).to_owned())?;
    Some(move |metric: &str| all[&format!("page_cache/{instance}/{metric}")])
}

#[test]
fn a_file_that_was_written_is_in_the_cache_until_it_is_dropped() {
    let folder = folder();
    let path = folder.path().join("watched");
    let mut file = File::create(&path).expect("writable");
    file.write_all(&vec![7; BYTES]).expect("room");
    let mut host = watching(vec![path.clone()]);
    let Some(of) = facts(&mut host) else { return };
    assert_eq!((of("size_bytes"), of("resident_bytes")), (BYTES as f64, BYTES as f64));
    assert_eq!(of("resident_ratio"), 1.0);
    file.sync_all().expect("a disk");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
    let of = facts(&mut host).expect("it answered");
    assert!(of("resident_bytes") < BYTES as f64 / 2.0, "{}", of("resident_bytes"));
    assert_eq!(of("dirty_bytes"), 0.0);
    // A part is read again; the kernel reads some ahead.
    let mut part = vec![0; 64 << 10];
    File::open(&path).and_then(|mut f| f.read_exact(&mut part)).expect("readable");
    let of = facts(&mut host).expect("it answered");
    assert!(of("resident_bytes") >= part.len() as f64);
    let text = path.to_str().expect("UTF-8");
    if let Some(found) = run(&["fincore", "--bytes", "--noheadings", "--output", "RES", text]) {
        let found: f64 = found.trim().parse().expect("a number");
        let again = facts(&mut host).expect("it answered")("resident_bytes");
        assert!((of("resident_bytes")..=again).contains(&found), "{found}");
    }
}

#[test]
fn another_file_of_the_same_name_is_opened_and_a_missing_one_is_a_skip() {
    let folder = folder();
    let (path, missing) = (folder.path().join("watched"), folder.path().join("missing"));
    fs::write(&path, "old").expect("writable");
    let mut host = watching(vec![path.clone(), missing.clone()]);
    let Some(of) = facts(&mut host) else { return };
    assert_eq!(of("size_bytes"), 3.0);
    let reason = host.skip("page_cache/*").expect("one is missing");
    assert!(reason.contains("missing") && reason.contains("No such file"), "{reason}");
    fs::write(folder.path().join("new"), "longer").expect("writable");
    fs::rename(folder.path().join("new"), &path).expect("ours");
    assert_eq!(facts(&mut host).expect("it answered")("size_bytes"), 6.0);
    fs::remove_file(&path).expect("ours");
    host.poll(1.0);
    assert_eq!(host.table.topics("page_cache/"), Vec::<&str>::new());
    // It is tried again after a minute.
    fs::write(&missing, "").expect("writable");
    let of = {
        host.poll(61.0);
        facts(&mut host).expect("it answered")
    };
    assert_eq!((of("size_bytes"), host.table.instances("page_cache/").len()), (0.0, 1));
    assert_eq!(host.table.topics("page_cache/").iter().filter(|t| t.ends_with("ratio")).count(), 0);
}

#[test]
fn files_beyond_the_limit_are_counted() {
    let folder = folder();
    let paths = (0..70).map(|n| folder.path().join(n.to_string()));
    let mut host = watching(paths.collect());
    host.poll(1.0);
    let skips: Vec<_> = host.sensors.iter().flat_map(|s| s.skips()).collect();
    assert!(skips.iter().any(|s| s.reason == "6 files beyond the first 64"), "{skips:?}");
    assert!(watching(Vec::new()).skip("page_cache").is_some());
}
