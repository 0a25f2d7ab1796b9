//! Bytes that `splice` moves: the kernel's own counts lack them, and counts by file have them.

use skopos_model::task::{FileUse, Files};

use super::*;

/// Bytes that the program moves, and those of them that move a position.
const MOVED: u64 = 53_000;
const BY_POSITION: u64 = 50_000;

/// Runs the program by one way to count files. Returns `None` where that way cannot be used.
fn spliced(by: &str, flags: &[&str]) -> Option<(Outcome, Files)> {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("in"), vec![7; 1 << 20]).expect("written");
    let program = built("moves_by", flags);
    let mechanisms = format!("wait4,procfs,{by}");
    let options = ["--level", "3", "--mechanism", &mechanisms, "--report", &at("report"), "--"];
    let outcome =
        measure(&[&options[..], &[text(&program), "splice", &at("in"), &at("out")]].concat());
    assert_eq!(outcome.code, Some(0), "{by}");
    let files = std::fs::read(at("report/files.json")).ok();
    let files: Option<Files> = files.map(|text| serde_json::from_slice(&text).expect("JSON"));
    let Some(files) = files.filter(|files| by.contains(&files.method)) else {
        eprintln!("skipped: {by} cannot be used here");
        return None;
    };
    Some((outcome, files))
}

#[test]
fn a_remainder_is_not_negative_where_splice_moved_bytes() {
    for (by, flags, moved) in [
        ("preload", &[][..], MOVED),
        ("bpf", &["-static"], MOVED),
        ("ptrace,seccomp", &["-static"], BY_POSITION),
    ] {
        let Some((outcome, files)) = spliced(by, flags) else { continue };
        let of = |name: &str| -> FileUse {
            let mut all = files.files.iter().filter(|file| file.path.ends_with(name));
            all.next().unwrap_or_else(|| panic!("{by}: {files:#?}")).clone()
        };
        let (read, written) = (of("/in").read_bytes, of("/out").written_bytes);
        assert_eq!((read, written), (moved, moved), "{by}");
        for (name, left) in [
            ("read_bytes", files.unattributed_read_bytes),
            ("written_bytes", files.unattributed_written_bytes),
        ] {
            // A filter of system calls does not see how many bytes the kernel counts.
            assert_eq!(left.is_none(), by.contains("seccomp"), "{by}: {left:?}");
            assert!(left.is_none_or(|left| (0..10_000).contains(&left)), "{by}: {left:?}");
            let reading = &outcome.summary["resources"][name];
            if by == "bpf" {
                assert!(reading["value"].as_f64() >= Some(MOVED as f64), "{reading}");
            } else {
                assert_eq!(reading["missing"], serde_json::json!(["splice"]), "{by}: {reading}");
                assert_eq!(reading["completeness"], "at_least", "{by}: {reading}");
            }
        }
    }
}
