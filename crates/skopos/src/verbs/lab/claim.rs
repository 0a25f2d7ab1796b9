//! The claim of a process on a lab: a locked file with the number of the process.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Pid;
use skopos_net::lab::claim_file;
use skopos_term::Failure;

/// The longest number of a process, as text.
const MAX_PID_BYTES: u64 = 20;

/// A claim. The kernel ends it with the process, however that ends.
pub(super) struct Claim {
    path: PathBuf,
    _file: File,
}

impl Claim {
    /// Claims a lab.
    ///
    /// # Errors
    /// Another process has claimed it; the file cannot be written.
    pub(super) fn take(lab: &str) -> Result<Self, Failure> {
        let path = claim_file(lab);
        let failed = |e: std::io::Error| {
            Failure::new(format!("cannot write {}", path.display())).because(&e)
        };
        let folder = path.parent().map_or(Ok(()), |folder| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
        });
        folder.map_err(failed)?;
        let mut file = loop {
            let mut options = OpenOptions::new();
            let file =
                options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
            let file = file.map_err(failed)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let by = holder(lab).map_or(String::new(), |pid| format!(" by process {pid}"));
                return Err(Failure::new(format!("the lab `{lab}` is up already{by}")).hint(
                    format!("remove it with `skopos lab down {lab}`, or choose another name"),
                ));
            }
            // Another process may have removed the file after it was opened here.
            let own = file.metadata().map_err(failed)?.ino();
            if fs::metadata(&path).is_ok_and(|about| about.ino() == own) {
                break file;
            }
        };
        file.set_len(0).map_err(failed)?;
        write!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The lock ends with the file.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the process that has claimed a lab and lives.
pub(super) fn holder(lab: &str) -> Option<Pid> {
    let file = File::open(claim_file(lab)).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_PID_BYTES).read_to_string(&mut text).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}
