//! `statfs`: the used space and the used inodes of the file system in which the task works, at each sample.
//! One call tells them, however many files there are, but they include what other programs write there.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use skopos_model::task::Completeness;

use super::{Launch, Mechanism, Sample};
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;

/// The name in reports.
pub(crate) const NAME: &str = "statfs";

/// The reason why a folder on a file server is not looked at.
pub(crate) const REMOTE: &str = "the working folder is on a file server, which may keep the monitor waiting; \
                                 --watch names folders all the same";

/// Types of file systems that ask a server or another process: NFS, SMB, CIFS, 9P, Ceph, AFS, Lustre, GPFS,
/// BeeGFS, FUSE.
const REMOTE_TYPES: [i64; 11] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x6573_5546,
];

/// True if a folder is on a file system that may keep a caller waiting.
pub(crate) fn is_remote(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|about| REMOTE_TYPES.contains(&about.f_type))
}

const REASON: &str = "growth since the start, at the largest sample; includes what other programs write on \
                      that file system";

pub(crate) struct Statfs {
    folder: PathBuf,
    /// Used bytes and inodes at the start.
    before: Option<Used>,
    /// The greatest growth of each.
    growth: Used,
}

/// Used space and inodes of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    bytes: u64,
    inodes: u64,
}

impl Statfs {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, before: None, growth: Used::default() }
    }

    fn now(&self) -> io::Result<Used> {
        let about = statfs(&self.folder)?;
        let unit = u64::try_from(about.f_bsize).unwrap_or(0);
        Ok(Used {
            bytes: about.f_blocks.saturating_sub(about.f_bfree) * unit,
            inodes: about.f_files.saturating_sub(about.f_ffree),
        })
    }

    fn update(&mut self) {
        // A file system that is gone keeps its greatest growth.
        let (Some(before), Ok(now)) = (self.before, self.now()) else { return };
        let most = &mut self.growth;
        most.bytes = most.bytes.max(now.bytes.saturating_sub(before.bytes));
        most.inodes = most.inodes.max(now.inodes.saturating_sub(before.inodes));
    }
}

impl Mechanism for Statfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn prepare(&mut self, _launch: &mut Launch) -> io::Result<()> {
        if is_remote(&self.folder) {
            return Err(io::Error::other(REMOTE));
        }
        self.now().map(|_| ())
    }

    fn attach(&mut self, _root: Pid, _ledger: &mut Ledger) -> io::Result<()> {
        self.before = Some(self.now()?);
        Ok(())
    }

    fn sample(&mut self, _now: &mut Sample, _ledger: &mut Ledger) {
        self.update();
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.update();
        if self.before.is_none() {
            return;
        }
        for (name, value) in [
            ("filesystem_growth_bytes_max", self.growth.bytes),
            ("filesystem_growth_files_max", self.growth.inodes),
        ] {
            let (value, completeness) = (value as f64, Completeness::Sampled);
            let reason = Some(REASON.to_owned());
            let offer = Offer { method: NAME, value, completeness, error_bound: None, reason };
            ledger.offers.add(name, offer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_measured_from_the_start() {
        let mut statfs = Statfs::new(std::env::temp_dir());
        let mut ledger = Ledger::new();
        statfs.attach(1, &mut ledger).expect("it exists");
        // The file system was emptier then.
        let before = statfs.before.as_mut().expect("it was read");
        before.bytes = before.bytes.saturating_sub(4096);
        statfs.finish(&mut ledger);
        let bytes = ledger.offers.best("filesystem_growth_bytes_max", "");
        assert!(bytes.value.is_some(), "{bytes:?}");
        assert_eq!(bytes.completeness, Completeness::Sampled);
        let missing = Statfs::new(PathBuf::from("/nowhere")).prepare(&mut Launch::default());
        assert!(missing.is_err());
    }
}
