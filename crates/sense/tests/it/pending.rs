//! The table of events under way, which programs in the kernel share among processors.

use std::process::Command;

use crate::loop_device::skipped;

#[test]
fn an_event_ends_with_its_own_time_or_is_counted() {
    if Command::new("cc").arg("--version").output().is_err() {
        return skipped("no `cc` (Debian: gcc)");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("pending");
    let own = env!("CARGO_MANIFEST_DIR");
    let compiled = Command::new("cc")
        .args(["-O1", "-w", "-pthread", "-I"])
        .arg(format!("{own}/bpf"))
        .arg("-o")
        .arg(&program)
        .arg(format!("{own}/tests/it/pending.c"))
        .output()
        .expect("it starts");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
