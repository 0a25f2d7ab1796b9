//! The claim of a process on a lab: a locked file that names the process.
//!
//! The file has the id of the process and its start time, field 22 of `/proc/PID/stat`. The lock says that a claim is held; a
//! process that was killed leaves the file without it. The start time tells the holder from a later process with its id, so
//! no other process gets a signal.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use skopos_net::lab::claim_file;
use skopos_term::Failure;

/// The longest claim, as text: an id and a time of at most 20 digits each, and two characters between and behind them.
const MAX_CLAIM_BYTES: u64 = 42;

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
                let by = Holder::of(lab)
                    .map_or(String::new(), |holder| format!(" by process {}", holder.pid));
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
        let pid = getpid();
        writeln!(file, "{pid} {}", started(pid).unwrap_or_default()).map_err(failed)?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The lock ends with the file.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns true if a process has claimed a lab and lives.
pub(super) fn is_claimed(lab: &str) -> bool {
    File::open(claim_file(lab)).is_ok_and(|file| is_locked(&file))
}

fn is_locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared).is_err()
}

/// The process that has claimed a lab.
pub(super) struct Holder {
    /// Its id.
    pub(super) pid: Pid,
    handle: OwnedFd,
}

impl Holder {
    /// Returns the process that has claimed a lab and lives. `None` also while a process takes or releases the claim, and
    /// on a kernel without handles of processes (before Linux 5.3).
    pub(super) fn of(lab: &str) -> Option<Self> {
        Self::in_file(&claim_file(lab))
    }

    fn in_file(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        if !is_locked(&file) {
            return None;
        }
        let mut text = String::new();
        file.take(MAX_CLAIM_BYTES).read_to_string(&mut text).ok()?;
        let (pid, claimed) = text.trim_end().split_once(' ')?;
        let pid = Pid::from_raw(pid.parse().ok()?)?;
        // The handle comes first: if the id belongs to the holder after that, the handle is of the holder.
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (started(pid) == Some(claimed.parse().ok()?)).then_some(Self { pid, handle })
    }

    /// Sends the process a signal. If the process has ended meanwhile, no process gets it.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

/// Returns the start time of a process, in clock ticks since the start of the machine.
fn started(pid: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, field 2, is in parentheses and may have spaces: count after the last parenthesis.
    let (_, after_command) = stat.rsplit_once(')')?;
    after_command.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_with_the_id_of_a_dead_holder_is_not_the_holder() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.claim");
        let mut child = Command::new("sleep").arg("600").spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        let began = started(pid).expect("it runs");
        let file = File::create(&path).expect("a file");
        let claim = |text: String| fs::write(&path, text).expect("written");
        claim(format!("{pid} {began}\n"));
        assert!(Holder::in_file(&path).is_none(), "nothing holds the lock");
        flock(&file, FlockOperation::NonBlockingLockExclusive).expect("free");
        for text in [format!("{pid} {}\n", began - 1), format!("{pid}"), "x".to_owned()] {
            claim(text.clone());
            assert!(Holder::in_file(&path).is_none(), "{text}");
        }
        claim(format!("{pid} {began}\n"));
        let holder = Holder::in_file(&path).expect("it holds the claim");
        assert_eq!(holder.pid, pid);
        holder.signal(Signal::TERM);
        assert_eq!(child.wait().expect("it ends").signal(), Some(Signal::TERM.as_raw()));
    }
}
