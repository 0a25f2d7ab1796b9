//! `fs`: local file systems, from `/proc/self/mountinfo` (proc(5)) and statvfs(3).
//!
//! One instance a file system (`st_dev`), however often it is mounted: of its mounts the one of the
//! whole file system and with the shortest path, as df chooses. As df computes it,
//! `used_ratio = (blocks - free) / (blocks - free + available)`.
//!
//! The table of mounts is read again only when poll(2) says that it changed; a tick else asks each
//! file system and does nothing more. One that refuses (for all but root, one below a folder that
//! only root may search) is a skip with its reason, and asked again.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, StatVfsMountFlags};
use rustix::io::Errno;
use skopos_model::schema::Family;
use skopos_model::schema::fs::{self, *};

use crate::file::KernelFile;
use crate::instances::{Instance, Instances};
use crate::local::{self, Local};
use crate::mounts::{self, Mount};
use crate::{Root, Sensor, Skip, Tick};

/// The most file systems with facts. A node of a container platform mounts an overlay a container.
const MAX_FILE_SYSTEMS: usize = 128;

/// The most that are asked at a tick: twice those with facts, as some have no blocks to fill and
/// some may not be asked. Asking one takes one to two microseconds.
const MAX_ASKED: usize = 2 * MAX_FILE_SYSTEMS;

/// The most refusals that are told by name; more say nothing new about who may ask.
const MAX_REFUSALS_TOLD: usize = 8;

/// A file system that is asked at each tick.
struct FileSystem {
    device: Box<[u8]>,
    label: Vec<u8>,
    path: CString,
    /// Why the latest tick has no facts of it.
    refused: Option<Errno>,
}

pub(crate) struct Fs {
    mountinfo: KernelFile,
    sys: PathBuf,
    table: Vec<FileSystem>,
    /// Types of mounts that are left out because they could hang, and how many.
    remote: BTreeMap<String, usize>,
    /// How many there are beyond [`MAX_ASKED`].
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
            remote: BTreeMap::new(),
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
        let Local { chosen, remote } = local::local(&mounts);
        self.remote = remote;
        self.unasked = chosen.len().saturating_sub(MAX_ASKED);
        let asked = chosen.into_iter().take(MAX_ASKED);
        self.table = asked.filter_map(|mount| file_system(mount, &self.sys)).collect();
        Ok(())
    }

    /// What the latest tick could not ask, the first few by name.
    fn refusals(&self) -> Vec<Skip> {
        let refused = || self.table.iter().filter_map(|f| Some((f, f.refused?)));
        let mut skips: Vec<_> = refused()
            .take(MAX_REFUSALS_TOLD)
            .map(|(FileSystem { label, path, .. }, errno)| {
                let mut reason = format!("statvfs {}: {errno}", path.to_string_lossy());
                if errno == Errno::ACCESS {
                    reason += "; root, or who may search the folders above it, can ask";
                }
                Skip::new(format!("fs/{}", String::from_utf8_lossy(label)), reason)
            })
            .collect();
        let untold = refused().count() - skips.len();
        if untold > 0 {
            skips.push(Skip::new("fs/*", format!("{untold} more that statvfs refuses")));
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
            let answer = rustix::fs::statvfs(path.as_c_str());
            *refused = answer.as_ref().err().copied();
            // What has no blocks to fill is not shown; df does the same.
            if let Ok(stat) = answer
                && stat.f_blocks > 0
                && let Some(instance) = self.known.see_as(tick.sink, device, label, || ())
            {
                set_facts(instance, tick, &stat);
            }
        }
        self.known.end(tick.sink);
        Ok(())
    }

    // statvfs waits for the device, and a device that is stuck keeps it for ever.
    fn may_block(&self) -> bool {
        true
    }

    fn skips(&self) -> Vec<Skip> {
        let remote = self.remote.iter().map(|(kind, count)| {
            let reason = format!(
                "{count} mounted: asking a file system that another machine or process serves can \
                 hang for ever"
            );
            Skip::new(format!("fs/{kind}"), reason)
        });
        let unasked = (self.unasked > 0).then(|| {
            let reason = format!("{} beyond the first {MAX_ASKED} that are mounted", self.unasked);
            Skip::new("fs/*", reason)
        });
        remote.chain(self.refusals()).chain(self.known.skips()).chain(unasked).collect()
    }
}

fn file_system(mount: &Mount<'_>, sys: &Path) -> Option<FileSystem> {
    let label = local::label(mount, sys);
    let path = CString::new(mount.point.as_slice()).ok()?;
    Some(FileSystem { device: mount.device.into(), label, path, refused: None })
}

fn set_facts(instance: &mut Instance<()>, tick: &mut Tick<'_>, stat: &StatVfs) {
    let block = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
    let bytes = |blocks: u64| blocks.saturating_mul(block);
    instance.set(tick, &TOTAL_BYTES, bytes(stat.f_blocks));
    instance.set(tick, &FREE_BYTES, bytes(stat.f_bfree));
    instance.set(tick, &AVAILABLE_BYTES, bytes(stat.f_bavail));
    let used = stat.f_blocks.saturating_sub(stat.f_bfree);
    let fillable = used.saturating_add(stat.f_bavail);
    if fillable > 0 {
        instance.set(tick, &USED_RATIO, used as f64 / fillable as f64);
    }
    if stat.f_files > 0 {
        instance.set(tick, &INODES, stat.f_files);
        instance.set(tick, &INODES_FREE, stat.f_ffree);
    }
    let readonly = stat.f_flag.contains(StatVfsMountFlags::RDONLY);
    instance.set(tick, &READONLY, u64::from(readonly));
}
