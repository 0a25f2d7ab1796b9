//! `fs`: local file systems, from `/proc/self/mountinfo` (proc(5)) and statvfs(3).
//!
//! Each file system (`st_dev`) is one instance, however often it is mounted. Its facts come from
//! one mount: that of its root folder with the shortest path, which df chooses, too. As in df,
//! `used_ratio = (blocks - free) / (blocks - free + available)`.
//!
//! The table of mounts is read again only when poll(2) reports a change; otherwise a tick only asks
//! each file system. If a file system refuses the question (because an ordinary user may not search
//! a folder above it), it is a skip with the reason, and is asked again at the next tick. File
//! systems that another machine or process serves belong to the family `remote_fs`.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use skopos_model::schema::Family;
use skopos_model::schema::fs::{self, *};

use crate::capacity::{Capacity, CapacityMetrics};
use crate::file::KernelFile;
use crate::instances::Instances;
use crate::local::{self, FileSystems};
use crate::mounts::{self, Mount};
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most file systems with facts. A node of a container platform mounts an overlay for each
/// container.
const MAX_FILE_SYSTEMS: usize = 128;

/// The most file systems that are asked at a tick: twice those with facts, since some have no
/// blocks to fill and some refuse. Each question takes one to two microseconds.
const MAX_ASKED: usize = 2 * MAX_FILE_SYSTEMS;

/// The most refusals that are reported by name. More names would not tell a user more about the
/// permission that is missing.
const MAX_REFUSALS_NAMED: usize = 8;

static METRICS: CapacityMetrics = CapacityMetrics {
    total_bytes: &TOTAL_BYTES,
    free_bytes: &FREE_BYTES,
    available_bytes: &AVAILABLE_BYTES,
    used_ratio: &USED_RATIO,
    inodes: &INODES,
    inodes_free: &INODES_FREE,
    readonly: &READONLY,
};

/// A file system that is asked at each tick.
struct FileSystem {
    device: Box<[u8]>,
    label: Vec<u8>,
    path: CString,
    /// The reason why the latest tick has no facts of it.
    refused: Option<Errno>,
}

pub(crate) struct Fs {
    mountinfo: KernelFile,
    sys: PathBuf,
    table: Vec<FileSystem>,
    /// Number of file systems beyond [`MAX_ASKED`].
    unasked: usize,
    known: Instances<()>,
}

impl Fs {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let path = root.proc.join("self/mountinfo");
        let mut sensor = Self {
            mountinfo: KernelFile::open_or_skip(&path, "fs")?,
            sys: root.sys.clone(),
            table: Vec::new(),
            unasked: 0,
            known: Instances::new(&fs::FAMILY, MAX_FILE_SYSTEMS),
        };
        match sensor.read_table() {
            Ok(()) => Ok(sensor),
            Err(e) => Err(Skip::new("fs", format!("{}: {e}", path.display()))),
        }
    }

    fn read_table(&mut self) -> io::Result<()> {
        let mounts = mounts::visible(self.mountinfo.read()?);
        let FileSystems { local, .. } = local::file_systems(&mounts);
        self.unasked = local.len().saturating_sub(MAX_ASKED);
        let asked = local.into_iter().take(MAX_ASKED);
        self.table = asked.filter_map(|mount| file_system(mount, &self.sys)).collect();
        Ok(())
    }

    /// Returns the file systems that the latest tick could not ask, the first few by name.
    fn refusals(&self) -> Vec<Skip> {
        let refused = || self.table.iter().filter_map(|f| Some((f, f.refused?)));
        let mut skips: Vec<_> = refused()
            .take(MAX_REFUSALS_NAMED)
            .map(|(FileSystem { label, path, .. }, errno)| {
                let mut reason = format!("statvfs {}: {errno}", path.to_string_lossy());
                if errno == Errno::ACCESS {
                    reason += "; root can ask, or a user who may search the folders above it";
                }
                Skip::new(format!("fs/{}", String::from_utf8_lossy(label)), reason)
            })
            .collect();
        let unnamed = refused().count() - skips.len();
        if unnamed > 0 {
            skips.push(Skip::new("fs/*", format!("{unnamed} more that refuse statvfs")));
        }
        skips
    }
}

impl Sensor for Fs {
    fn family(&self) -> &'static Family {
        &fs::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        if mounts::changed(&self.mountinfo)? {
            self.read_table()?;
        }
        self.known.begin();
        for FileSystem { device, label, path, refused } in &mut self.table {
            let answer = Capacity::ask(path);
            *refused = answer.as_ref().err().copied();
            // A file system without blocks to fill is left out, as in df.
            if let Ok(Some(capacity)) = answer
                && let Some(instance) = self.known.see_as(tick.sink, device, label, || ())
            {
                capacity.set(instance, tick, &METRICS);
            }
        }
        self.known.end(tick.sink);
        Ok(())
    }

    // statvfs waits for the device, for ever if the device is stuck.
    fn may_block(&self) -> bool {
        true
    }

    fn skips(&self) -> Vec<Skip> {
        let unasked = (self.unasked > 0).then(|| {
            let reason = format!("{} file systems beyond the first {MAX_ASKED}", self.unasked);
            Skip::new("fs/*", reason)
        });
        self.refusals().into_iter().chain(self.known.skips()).chain(unasked).collect()
    }
}

fn file_system(mount: &Mount<'_>, sys: &Path) -> Option<FileSystem> {
    let label = local::label(mount, sys);
    let path = CString::new(mount.point.as_slice()).ok()?;
    Some(FileSystem { device: mount.device.into(), label, path, refused: None })
}
