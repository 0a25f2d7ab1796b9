//! Typing errors: each is refused before anything runs. The message names the error and a remedy, and
//! the exit code is the one that shells return.

use super::*;

/// Returns the exit code and the message of a run.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let ran = monitor(args).output().expect("it starts");
    assert_eq!(ran.stdout, b"", "{args:?}");
    (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[track_caller]
fn check(args: &[&str], code: i32, said: &str) {
    let (returned, text) = refused(args);
    assert_eq!(returned, Some(code), "{args:?}: {text}");
    assert!(text.contains(said), "{args:?}: {text}");
    assert!(!text.contains("panicked"), "{args:?}: {text}");
}

#[test]
fn values_that_make_no_sense() {
    let ran = "touch /nonexistent/ran";
    for (option, value, said) in [
        ("--limit", "memory=-1", "a size looks like"),
        ("--limit", "memory=1e400", "a size looks like"),
        ("--limit", "memory=NaN", "a size looks like"),
        ("--limit", "memory=", "a size looks like"),
        ("--limit", "memory=4gbit", "a size looks like"),
        ("--limit", "memory=4", "did you mean `memory=4GiB`?"),
        ("--limit", "memory=500", "did you mean `memory=500MiB`?"),
        ("--limit", "processes=0.5", "the least is `processes=1`"),
        ("--limit", "wall=1m30", "a time looks like `30s`, `1h30m`"),
        ("--limit", "=4", "possible limits: wall, cpu"),
        ("--limit", "wall=0", "a time looks like"),
        ("--limit", "memory=1GiB,memory=2GiB", "`memory` is limited twice"),
        ("--limit", "MEMORY=1GiB", "possible limits:"),
        ("--limit", "memory=1GiB,", "a limit looks like `memory=4GiB`"),
        ("--series", "0", "an interval of 0"),
        ("--series", "-1s", "`-1s` is not a duration; try `30s`"),
        ("--series", "-5", "`-5` is not a duration; try `30s`"),
        ("--series", "5x", "`x` is not a unit of time; use ms, s, m, h or d"),
        ("--kill-after", "-1s", "invalid value '-1s'"),
        ("--level", "7", "a level is 1, 2, 3 or auto"),
        ("--mechanism", "ptrac", "did you mean `ptrace`?"),
        ("--mechanism", "nosuch", "there are bpf, "),
        ("--mechanism", "", "there is no ``"),
        ("--name", " ", "a class is a word"),
        ("--name", "a\nb", "a class is a word"),
        ("--report", "", "a value is required"),
        ("--report", "/etc/passwd", "name a folder"),
        ("--report", "/etc/passwd/x", "name a folder"),
        ("--report", "/proc/x", "name a folder that you may write to"),
    ] {
        check(&[option, value, "--", "sh", "-c", ran], 2, said);
    }
}

#[test]
fn a_command_without_its_dashes_is_shown_with_them() {
    check(&["make", "-j2"], 2, "hint: the command comes after `--`: skopos run -- make -j2");
    check(&["-q", "make"], 2, "skopos run -q -- make");
    check(&[], 2, "<COMMAND>...");
    check(&["--"], 2, "<COMMAND>...");
}

#[test]
fn a_command_that_cannot_be_started_says_why() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let make = |name: &str, mode: u32, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("set");
        path
    };
    let plain = make("plain", 0o644, "true\n");
    let lost = make("lost", 0o755, "#!/nonexistent/sh -e\n");
    let missing = folder.path().join("missing");
    for (command, code, said) in [
        ("skopos-has-no-such-program", 127, "it is in no folder of PATH"),
        (text(&missing), 127, "No such file or directory"),
        ("", 127, "No such file or directory"),
        (text(&lost), 127, "`/nonexistent/sh` of its first line does not"),
        ("make -j2", 127, "sh -c 'make -j2'"),
        (text(folder.path()), 126, "it is a folder"),
        (text(&plain), 126, "it is not executable: `chmod +x "),
    ] {
        for level in ["1", "2"] {
            check(&["--level", level, "--", command], code, said);
        }
    }
    let mut here = monitor(&["--", "plain"]);
    let ran = here.current_dir(folder.path()).output().expect("it starts");
    assert_eq!(ran.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("this folder has one: `./plain`"));
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell_as_shells_do() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    std::fs::write(&script, "echo \"it got $1\"; exit 3\n").expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("set");
    let outcome = measure(&["--", text(&script), "this"]);
    assert_eq!((outcome.code, &*outcome.stdout), (Some(3), "it got this\n"));
}

#[test]
fn a_watched_folder_that_was_never_there_is_unknown_and_not_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let later = folder.path().join("later");
    let watched = |command: &str| {
        let args = ["--watch", text(&later), "--", "sh", "-c", command];
        measure(&args).summary["resources"]["files"].clone()
    };
    let never = watched("true");
    assert_eq!(never["value"], Json::Null);
    let reason = never["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("never found: ") && reason.contains("later"), "{reason}");
    let made = watched(&format!("mkdir {0} && : > {0}/a", later.display()));
    assert_eq!(made["value"], 1.0);
}
