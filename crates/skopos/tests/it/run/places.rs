//! Places for reports that fill up, vanish or cannot be written to: the task is unaffected, the monitor
//! says what happened, and nothing is left that looks like a report.

use super::*;

/// Runs a shell script with a small file system of its own, mounted at `$D`; `$SKOPOS` is the binary.
/// Returns `None` where nothing may be mounted.
fn in_small_space(script: &str) -> Option<(tempfile::TempDir, Output)> {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = "mount -t tmpfs -o size=256k none \"$D\"";
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]);
        command.env("D", folder.path()).env("SKOPOS", env!("CARGO_BIN_EXE_skopos"));
        command.output()
    };
    if !unshare(mount).is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: nothing may be mounted here");
        return None;
    }
    let ran = unshare(&format!("{mount} && {script}")).expect("it starts");
    Some((folder, ran))
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A task that fills the file system, and returns 6.
const FILLS: &str = "sh -c 'echo out; head -c 1M /dev/zero > $D/fill 2>/dev/null; exit 6'";

#[test]
fn a_full_disk_costs_the_report_and_nothing_else() {
    let script =
        format!("$SKOPOS run --level 3 --report $D/out -- {FILLS}; echo code $?; ls -A $D/out");
    let Some((_folder, ran)) = in_small_space(&script) else { return };
    assert_eq!(words(&ran.stdout), "out\ncode 6\n", "no part of the report is left");
    let said = words(&ran.stderr);
    assert!(said.starts_with("skopos: the report could not be written to "), "{said}");
    assert!(said.contains("/out: No space left on device"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_report_that_had_no_room_is_written_there_once_there_is() {
    let script = format!(
        "$SKOPOS run --report $D/out -- {FILLS}; rm $D/fill; \
         $SKOPOS run --report $D/out -- true; echo code $?; cat $D/out/summary.json"
    );
    let Some((_folder, ran)) = in_small_space(&script) else { return };
    let (_, summary) = {
        let text = words(&ran.stdout);
        let (before, after) = text.split_once("code 0\n").expect("the second one returns 0");
        (before.to_owned(), after.to_owned())
    };
    let summary: Json = serde_json::from_str(&summary).expect("whole");
    assert_eq!(summary["ended"]["status"], 0);
}

#[test]
fn an_archive_on_a_full_disk_costs_the_record_and_nothing_else() {
    let script = format!(
        "$SKOPOS run --archive $D/a -- {FILLS}; echo code $?; rm $D/fill; \
         $SKOPOS run --archive $D/a -- true; $SKOPOS archive ls --archive $D/a --plain"
    );
    let Some((_folder, ran)) = in_small_space(&script) else { return };
    let (out, said) = (words(&ran.stdout), words(&ran.stderr));
    assert!(out.starts_with("out\ncode 6\n"), "{out}");
    assert!(said.contains("/a: database or disk is full"), "{said}");
    assert!(out.contains("true"), "the archive is whole: {out} {said}");
}

#[test]
fn a_folder_that_cannot_be_written_is_reported_before_the_task_runs() {
    let script = "mount -o remount,ro $D; $SKOPOS run --report $D/out -- echo ran; echo code $?; \
                  $SKOPOS run --archive $D/a -- echo ran; echo code $?";
    let Some((_folder, ran)) = in_small_space(script) else { return };
    assert_eq!(words(&ran.stdout), "code 2\ncode 2\n");
    let said = words(&ran.stderr);
    assert!(said.contains("cannot be written\n  because: Read-only file system"), "{said}");
    assert!(said.contains("hint: name a folder that you may write to"), "{said}");
}

#[test]
fn a_place_that_becomes_read_only_or_goes_costs_the_report_and_nothing_else() {
    let script = "$SKOPOS run --report $D/out -- \
                  sh -c 'mount -o remount,ro $D; exit 6'; echo code $?; mount -o remount,rw $D; \
                  ls -A $D/out; $SKOPOS run --archive $D/a -- sh -c 'rm $D/a*; exit 7'; echo code $?";
    let Some((_folder, ran)) = in_small_space(script) else { return };
    assert_eq!(words(&ran.stdout), "code 6\ncode 7\n");
    let said = words(&ran.stderr);
    assert!(said.contains("/out: Read-only file system"), "{said}");
    assert!(said.contains("/a: it does not exist any more"), "{said}");
}
