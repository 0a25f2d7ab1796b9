//! The committed BPF objects belong to the sources beside them.

use std::process::Command;

#[test]
fn the_committed_objects_are_compiled_from_these_sources() {
    let checked = Command::new("sh")
        .args(["../../scripts/bpf", "--check", "crates/sense/bpf"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("a shell");
    print!("{}", String::from_utf8_lossy(&checked.stdout));
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
