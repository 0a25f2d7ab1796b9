//! A loop device of a test, and programs that tests run.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;

pub(crate) const MIB: u64 = 1 << 20;

/// Says loudly that a test was skipped.
pub(crate) fn skipped(reason: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

/// Runs a program and returns its output, or the reason why it failed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!("{program} {}: {said}", arguments.join(" ")))
        }
    }
}

/// A loop device over a file in memory or on a disk.
pub(crate) struct Loop {
    pub(crate) device: String,
    _folder: tempfile::TempDir,
}

impl Loop {
    pub(crate) fn new(bytes: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("disk");
        File::create(&path).and_then(|f| f.set_len(bytes)).expect("writable");
        let device = run("losetup", &["--find", "--show", &path.display().to_string()])?;
        Ok(Self { device, _folder: folder })
    }

    pub(crate) fn name(&self) -> &str {
        self.device.strip_prefix("/dev/").expect("a device file")
    }

    /// Reads or writes blocks of 4 KiB from the start of a mebibyte on, past the page cache.
    pub(crate) fn access(&self, is_write: bool, mebibyte: u64, blocks: u64) {
        let (blocks, start) = (format!("count={blocks}"), mebibyte * MIB / 4096);
        let arguments = match is_write {
            true => [
                "if=/dev/zero".to_owned(),
                format!("of={}", self.device),
                "oflag=direct".to_owned(),
                format!("seek={start}"),
            ],
            false => [
                format!("if={}", self.device),
                "of=/dev/null".to_owned(),
                "iflag=direct".to_owned(),
                format!("skip={start}"),
            ],
        };
        let mut all: Vec<&str> = arguments.iter().map(String::as_str).collect();
        all.extend(["bs=4096", blocks.as_str(), "conv=notrunc"]);
        run("dd", &all).expect("the device is ours");
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(e) = run("losetup", &["--detach", &self.device]) {
            eprintln!("{e}");
        }
    }
}
