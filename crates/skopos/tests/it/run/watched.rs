//! Files in watched folders by `fanotify`: those of the task, and no others.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Returns the opened files, the modified files and the reason why these may not be all; `None` where
/// they cannot be counted. The mechanism `teller` reports births and exits.
fn counted(folder: &Path, teller: &str, command: &[&str]) -> Option<(f64, f64, String)> {
    let mechanisms = format!("{teller},fanotify");
    // At level 3 `bpf` would count files itself.
    let mut args = vec!["--level", "2", "--mechanism", &mechanisms];
    args.extend(["--watch", text(folder), "--"]);
    args.extend(command);
    let outcome = measure(&args);
    let all = outcome.summary["mechanisms"].as_array().expect("a list");
    let own = all.iter().find(|m| m["name"] == "fanotify").expect("each is listed");
    if own["used"] != true {
        eprintln!("skipped: {}", own["why"]);
        return None;
    }
    assert_eq!(outcome.of("opened_files", "method"), "fanotify");
    let reason = outcome.of("opened_files", "reason").as_str().unwrap_or_default().to_owned();
    Some((outcome.value("opened_files"), outcome.value("modified_files"), reason))
}

#[test]
fn opens_of_the_task_count_once_in_new_folders_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let outside = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a"), "a").expect("written");
    fs::hard_link(at("a"), at("linked")).expect("linked");
    fs::write(outside.path().join("b"), "b").expect("written");
    let script = format!(
        "cd {}; cat a a linked; for i in 1 2 3; do mkdir -p new$i/deep; echo x > new$i/deep/f; \
         done; cat {}/b; cat new1/deep/f; true",
        folder.path().display(),
        outside.path().display()
    );
    // Another process is at work there, too.
    let (stop, path) = (std::sync::Arc::new(AtomicBool::new(false)), at("others"));
    let is_over = std::sync::Arc::clone(&stop);
    let other = std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            fs::write(&path, "x").expect("written");
            std::thread::yield_now();
        }
    });
    let found = counted(folder.path(), "ptrace", &["sh", "-c", &script]);
    stop.store(true, Ordering::Relaxed);
    other.join().expect("it ended");
    let Some((opened, modified, reason)) = found else { return };
    assert_eq!((opened, modified), (4.0, 3.0), "{reason}");
    assert!(reason.contains("not known to belong to the task"), "{reason}");
}

#[test]
fn files_that_io_uring_opens_are_seen() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("written");
    let program = program("uring");
    let bare = Command::new(&program).arg(&file).status().expect("it starts");
    if bare.code() == Some(77) {
        eprintln!("skipped: io_uring may not be used here");
        return;
    }
    assert!(bare.success());
    let command = [text(&program), text(&file)];
    let Some((opened, ..)) = counted(folder.path(), "ptrace", &command) else { return };
    assert_eq!(opened, 1.0);
}

#[test]
fn a_thousand_short_processes_are_all_known() {
    // `ptrace` reports a birth at once, since it stops the process; the others report when they are
    // polled.
    for teller in ["ptrace", "connector", "bpf"] {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "i=0; while [ $i -lt 1000 ]; do cp /dev/null $0/f$i; i=$((i+1)); done";
        let command = ["sh", "-c", script, text(folder.path())];
        let Some((opened, modified, reason)) = counted(folder.path(), teller, &command) else {
            continue;
        };
        assert_eq!((opened, modified), (1000.0, 1000.0), "{teller}: {reason}");
    }
}

#[test]
fn the_working_folder_is_counted_without_being_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "for i in 1 2 3 4 5; do head -c 1000000 /dev/zero > f$i; done; sleep 0.2; rm f1";
    for level in ["1", "2"] {
        let mut command = monitor(&["--json", "--level", level, "--", "sh", "-c", script]);
        let outcome = measure_by({
            command.current_dir(folder.path());
            command
        });
        let what = format!("level {level}: {}", outcome.summary["resources"]["files"]);
        assert!((4.0..=5.0).contains(&outcome.value("files")), "{what}");
        assert_eq!(outcome.of("files", "method"), "tree", "{what}");
        let footprint = outcome.value("footprint_bytes");
        assert!((4e6..5.1e6).contains(&footprint), "level {level}: {footprint}");
        // Other programs use the file system, too.
        assert_eq!(outcome.of("filesystem_growth_bytes_max", "method"), "statfs");
        assert_eq!(outcome.of("filesystem_growth_bytes_max", "completeness"), "sampled");
    }
}
