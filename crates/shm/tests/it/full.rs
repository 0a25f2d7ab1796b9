//! A full file system: registration returns a clear error, and registered vertices go on working.
//!
//! The test needs a file system of known size, so it runs itself again in its own mount namespace and
//! mounts a file system there; this needs root.

use std::path::Path;
use std::process::{Command, Output};

use skopos_model::ValueType;
use skopos_shm::{Error, Publisher, Segment};

use crate::support::{
    CHILD_DIR, at, child_dir, is_root, publisher, runtime_dir, skipped, spec, topic,
};

const SIZE: u64 = 1 << 20;

#[test]
fn a_full_file_system_is_an_error_and_nothing_else() {
    if !is_root() {
        return skipped("full", "mounting a small file system needs root");
    }
    if !Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|o| o.status.success()) {
        return skipped("full", "this machine permits no mount namespace");
    }
    let dir = runtime_dir();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c"]);
    command.arg(format!(
        "mount -t tmpfs -o size={SIZE},mode=755 none \"$0\" || exit 77; \
         exec \"$1\" --ignored --exact --nocapture full::in_a_small_file_system"
    ));
    command.arg(dir.path()).arg(std::env::current_exe().expect("this binary has a path"));
    let Output { status, stdout, stderr } =
        command.env(CHILD_DIR, dir.path()).output().expect("unshare worked before");
    if status.code() == Some(77) {
        return skipped("full", &String::from_utf8_lossy(&stderr));
    }
    let text = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{status:?}\n{text}\n{}", String::from_utf8_lossy(&stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "runs in a mount namespace that the test above makes"]
fn in_a_small_file_system() {
    let Some(dir) = child_dir() else { return };
    registering_until_it_is_full(&dir);
    creating_without_room(&dir);
}

/// Fills the file system to the last page.
fn fill(dir: &Path) -> std::path::PathBuf {
    use std::io::Write as _;
    let path = dir.join("ballast");
    let mut file = std::fs::File::create(&path).expect("an inode takes no room");
    while file.write_all(&[1; 4096]).is_ok() {}
    while file.write_all(&[1]).is_ok() {}
    path
}

fn registering_until_it_is_full(dir: &Path) {
    let publisher =
        Publisher::builder("big").dir(dir).max_vertices(10_000).create().expect("sparse");
    let mut writers = Vec::new();
    let refusal = loop {
        let name = format!("test/{}", writers.len());
        match publisher.register(spec(&name, ValueType::U64)) {
            Ok(writer) => writers.push(writer),
            Err(e) => break e,
        }
        assert!(writers.len() < 1000, "more vertices than fit in {SIZE} bytes");
    };
    assert!(matches!(&refusal, Error::Full { needed, .. } if *needed > 0), "{refusal}");
    assert!(refusal.to_string().contains("no room"), "{refusal}");
    assert!(writers.len() > 100, "{} vertices in {SIZE} bytes", writers.len());

    // Everything else goes on working: publishing, reading, and reuse of unregistered memory.
    let segment = Segment::open(publisher.path()).expect("sound");
    for (n, writer) in (0..).zip(&writers) {
        for time in 1..300 {
            writer.publish_at(at(time), n * 1000 + time as u64).expect("its memory is reserved");
        }
    }
    let vertices = segment.vertices();
    assert_eq!(vertices.len(), writers.len());
    for (n, vertex) in (0..).zip(&vertices) {
        let latest = vertex.latest().expect("published").as_f64();
        assert_eq!(latest, Some((n * 1000 + 299) as f64), "{}", vertex.topic());
        assert_eq!(vertex.range(at(0)..=at(999)).expect("registered").samples.len(), 128);
    }
    let again = publisher.register(spec("test/again", ValueType::U64));
    assert!(matches!(again, Err(Error::Full { .. })), "{again:?}");
    publisher.unregister(&writers[3]);
    let again = publisher
        .register(spec("test/again", ValueType::U64))
        .expect("memory of the unregistered vertex");
    again.publish(1u64).expect("registered");
    let found = segment.find(&topic("test/again")).expect("registered");
    assert_eq!(found.latest().expect("published").as_f64(), Some(1.0));
    drop(publisher);
}

fn creating_without_room(dir: &Path) {
    let ballast = fill(dir);
    let create = |name: &str| Publisher::builder(name).dir(dir).create();
    let refusal = create("late").expect_err("the file system is full");
    assert!(matches!(refusal, Error::Full { .. }), "{refusal}");
    let left: Vec<_> = std::fs::read_dir(dir)
        .expect("our own directory")
        .map(|e| e.expect("readable").file_name())
        .filter(|name| name != ".lock" && name != "ballast")
        .collect();
    assert!(left.is_empty(), "a failed start leaves files: {left:?}");
    std::fs::remove_file(ballast).expect("our own file");
    drop(publisher(dir, "late"));
}
