//! Files and peers by BPF, against the known work of a static program.

use skopos_model::task::{FileUse, Files};

use super::*;

/// Runs `moves_by`, and returns its outcome and its files; `None` if BPF cannot be used here.
fn moved(folder: &Path, words: &[&str]) -> Option<(Outcome, Files)> {
    let moves = built("moves_by", &["-static"]);
    let report = folder.join("report");
    let mut command = monitor(&["--json", "--level", "3", "--report", text(&report), "--"]);
    command.arg(moves).args(words).current_dir(folder);
    let outcome = measure_by(command);
    let mechanisms = outcome.summary["mechanisms"].as_array().expect("a list");
    let bpf = mechanisms.iter().find(|m| m["name"] == "bpf").expect("each is listed");
    if bpf["used"] != true {
        eprintln!("skipped: {}", bpf["why"]);
        return None;
    }
    let files = std::fs::read(report.join("files.json")).expect("written");
    let files: Files = serde_json::from_slice(&files).expect("JSON");
    assert_eq!((files.method.as_str(), &outcome.summary["level"]), ("bpf", &3.into()));
    Some((outcome, files))
}

/// Creates a folder with an input file that is long enough for all tests.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("in"), vec![7; 1 << 20]).expect("written");
    folder
}

fn file<'a>(files: &'a Files, folder: &Path, name: &str) -> &'a FileUse {
    let path = std::fs::canonicalize(folder.join(name)).expect("it is there");
    let found: Vec<_> = files.files.iter().filter(|f| f.path == text(&path)).collect();
    assert_eq!(found.len(), 1, "{} in {files:#?}", path.display());
    found[0]
}

#[test]
fn each_call_that_moves_bytes_is_counted_by_its_file() {
    let folder = folder();
    let Some((outcome, files)) = moved(folder.path(), &["calls", "in", "out"]) else { return };
    assert_eq!(outcome.code, Some(0));
    let (from, to) = (file(&files, folder.path(), "in"), file(&files, folder.path(), "out"));
    let read = 100 * 4096 + 10 + 1500 + 1500 + 3000 + 5000 + 11;
    let written = 100 * 4096 + 20 + 1500 + 1500 + 3000 + 5000;
    assert_eq!((from.opens, from.reads, from.read_bytes), (1, 106, read));
    assert_eq!((to.opens, to.writes, to.written_bytes), (1, 105, written));
    assert_eq!((from.read_sizes[13], from.read_sizes[4], to.write_sizes[13]), (101, 2, 101));
    use std::os::unix::fs::MetadataExt as _;
    let about = std::fs::metadata(folder.path().join("in")).expect("it is there");
    assert_eq!((from.device, from.inode), (about.dev(), about.ino()));
    // The kernel itself reads the head of the program.
    let unattributed = files.unattributed_read_bytes.expect("the kernel counts");
    assert!((0..1000).contains(&unattributed), "{unattributed}");
    assert!((0..16).contains(&files.unattributed_written_bytes.expect("the kernel counts")));
    assert_eq!((files.processes.len(), files.processes[0].opens), (1, 2));
    assert_eq!(outcome.value("opened_files"), 2.0);
    // The kernel's own counts lack `splice`.
    assert!(
        outcome.value("read_bytes") >= files.read_bytes as f64,
        "{}",
        outcome.value("read_bytes")
    );
    assert!(outcome.value("written_bytes") >= files.written_bytes as f64);
    assert_eq!(outcome.of("opened_files", "completeness"), "all");
}

#[test]
fn mapped_files_are_named() {
    let folder = folder();
    let Some((_, files)) = moved(folder.path(), &["map", "in"]) else { return };
    let mapped = file(&files, folder.path(), "in");
    assert_eq!((mapped.maps, mapped.mapped_bytes, mapped.read_bytes), (1, 1 << 20, 0));
    assert!(files.reason.contains("mapped"), "{}", files.reason);
}

#[test]
fn bytes_of_io_uring_are_counted_by_their_file() {
    let folder = folder();
    let Some((outcome, files)) = moved(folder.path(), &["ring", "in", "out"]) else { return };
    if outcome.code == Some(77) {
        eprintln!("skipped: io_uring may not be used here");
        return;
    }
    assert_eq!(outcome.code, Some(0));
    let (from, to) = (file(&files, folder.path(), "in"), file(&files, folder.path(), "out"));
    assert_eq!((from.reads, from.read_bytes), (20, 20 * 8192));
    assert_eq!((to.writes, to.written_bytes), (20, 20 * 8192));
    assert!(files.reason.contains("40 operations of io_uring"), "{}", files.reason);
    // The counts of files include io_uring. The kernel's own counts do not.
    let unattributed = files.unattributed_read_bytes.expect("the kernel counts");
    assert!((0..1000).contains(&unattributed), "{unattributed}");
    assert!(outcome.value("read_bytes") >= f64::from(20 * 8192));
    assert!(outcome.value("written_bytes") >= f64::from(20 * 8192));
    assert_eq!(outcome.value("threads_max"), 1.0, "a kernel thread is not a thread of the task");
}

#[test]
fn bytes_sent_to_peers_are_counted_by_address() {
    let folder = folder();
    let Some((outcome, files)) = moved(folder.path(), &["peer"]) else { return };
    let port: u16 = outcome.stdout.trim().parse().expect("a port");
    let of = |port: u16| {
        let found = files.peers.iter().find(|p| p.address == "127.0.0.1" && p.port == port);
        let peer = found.unwrap_or_else(|| panic!("{port} in {:?}", files.peers));
        (peer.connections, peer.sent_bytes, peer.received_bytes, peer.sends, peer.receives)
    };
    assert_eq!(of(port), (1, 1000, 700, 1, 1), "the peer that the task connected to");
    assert_eq!(of(0), (1, 700, 1000, 1, 1), "the peer that connected to the task");
    assert_eq!((outcome.value("sent_bytes"), outcome.value("received_bytes")), (1700.0, 1700.0));
}
