//! `fs`: local file systems, from `/proc/self/mountinfo` (proc(5)) and statvfs(3).
//!
//! One instance a file system (`st_dev`), however often it is mounted: of its mounts the one of the
//! whole file system and with the shortest path, as df chooses. As df computes it,
//! `used_ratio = (blocks - free) / (blocks - free + available)`.
//!
//! The table of mounts is read again only when poll(2) says that it changed.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{StatVfs, StatVfsMountFlags};
use skopos_model::schema::Family;
use skopos_model::schema::fs::{self, *};

use crate::file::KernelFile;
use crate::instances::{Instance, Instances};
use crate::mounts::{self, Mount};
use crate::{Root, Sensor, Skip, Tick};

/// The most file systems with facts. A node of a container platform mounts an overlay a container.
const MAX_FILE_SYSTEMS: usize = 128;

/// Types that hold no data of anybody: windows into the kernel, and triggers (asking `autofs`
/// mounts something). What df hides, less what has blocks to fill.
static PSEUDO: [&[u8]; 23] = [
    b"autofs",
    b"binfmt_misc",
    b"bpf",
    b"cgroup",
    b"cgroup2",
    b"configfs",
    b"debugfs",
    b"devpts",
    b"efivarfs",
    b"fusectl",
    b"hugetlbfs",
    b"mqueue",
    b"none",
    b"nsfs",
    b"pipefs",
    b"proc",
    b"pstore",
    b"rpc_pipefs",
    b"securityfs",
    b"selinuxfs",
    b"sockfs",
    b"sysfs",
    b"tracefs",
];

/// Types that another machine, or a process that may not answer, stands behind: statvfs on them
/// can hang for ever, and one hung call would stop every sensor. Types that start with `fuse` too.
static REMOTE: [&[u8]; 25] = [
    b"9p",
    b"acfs",
    b"afs",
    b"beegfs",
    b"ceph",
    b"cifs",
    b"coda",
    b"davfs",
    b"gfs2",
    b"glusterfs",
    b"gpfs",
    b"lustre",
    b"mmfs",
    b"ncpfs",
    b"nfs",
    b"nfs4",
    b"ocfs2",
    b"orangefs",
    b"panfs",
    b"pvfs2",
    b"smb3",
    b"smbfs",
    b"virtiofs",
    b"wekafs",
    b"yfs",
];

/// A file system that is asked at each tick.
struct FileSystem {
    device: Box<[u8]>,
    label: Vec<u8>,
    path: CString,
}

pub(crate) struct Fs {
    mountinfo: KernelFile,
    sys: PathBuf,
    table: Vec<FileSystem>,
    /// Types of mounts that are left out because they could hang, and how many.
    remote: BTreeMap<String, usize>,
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
            known: Instances::new(&fs::FAMILY, MAX_FILE_SYSTEMS),
        };
        match sensor.read_table() {
            Ok(()) => Ok(sensor),
            Err(e) => Err(Skip::new("fs", format!("{}: {e}", path.display()))),
        }
    }

    fn table_changed(&self) -> io::Result<bool> {
        let mut file = [PollFd::new(&self.mountinfo, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut file, Some(&now))?;
        Ok(file[0].revents().intersects(PollFlags::PRI | PollFlags::ERR))
    }

    fn read_table(&mut self) -> io::Result<()> {
        let mounts = mounts::visible(self.mountinfo.read()?);
        self.remote.clear();
        let mut chosen: Vec<&Mount<'_>> = Vec::new();
        let mut places = HashMap::new();
        for mount in &mounts {
            if PSEUDO.contains(&mount.kind) {
                continue;
            }
            if REMOTE.contains(&mount.kind) || mount.kind.starts_with(b"fuse") {
                let kind = String::from_utf8_lossy(mount.kind).into_owned();
                *self.remote.entry(kind).or_default() += 1;
                continue;
            }
            let place = *places.entry(mount.device).or_insert(chosen.len());
            match chosen.get_mut(place) {
                Some(other) if is_better(mount, other) => *other = mount,
                Some(_) => {}
                None => chosen.push(mount),
            }
        }
        self.table = chosen.into_iter().filter_map(|m| file_system(m, &self.sys)).collect();
        Ok(())
    }
}

impl Sensor for Fs {
    fn family(&self) -> &'static Family {
        &fs::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        if self.table_changed()? {
            self.read_table()?;
        }
        self.known.begin();
        for FileSystem { device, label, path } in &self.table {
            // What cannot be asked, or has no blocks to fill, is not shown; df does the same.
            let Ok(stat) = rustix::fs::statvfs(path.as_c_str()) else { continue };
            if stat.f_blocks > 0
                && let Some(instance) = self.known.see_as(tick.sink, device, label, || ())
            {
                set_facts(instance, tick, &stat);
            }
        }
        self.known.end(tick.sink);
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        let remote = self.remote.iter().map(|(kind, count)| {
            let reason = format!(
                "{count} mounted: asking a file system that another machine or process serves can \
                 hang for ever"
            );
            Skip::new(format!("fs/{kind}"), reason)
        });
        remote.chain(self.known.skips()).collect()
    }
}

fn is_better(mount: &Mount<'_>, than: &Mount<'_>) -> bool {
    let rank = |m: &Mount<'_>| (m.root != b"/", m.point.len());
    rank(mount) < rank(than)
}

fn file_system(mount: &Mount<'_>, sys: &Path) -> Option<FileSystem> {
    let label = device_name(mount, sys).unwrap_or_else(|| mount.point.clone());
    let path = CString::new(mount.point.as_slice()).ok()?;
    Some(FileSystem { device: mount.device.into(), label, path })
}

/// The kernel's name of the block device, which the facts of `block` have too. Btrfs has a device
/// number of its own, so that its source has to tell.
fn device_name(mount: &Mount<'_>, sys: &Path) -> Option<Vec<u8>> {
    let number = std::str::from_utf8(mount.device).ok()?;
    let name_of = |path: &Path| Some(path.file_name()?.as_encoded_bytes().to_vec());
    if let Ok(link) = std::fs::read_link(sys.join("dev/block").join(number)) {
        return name_of(&link);
    }
    let source = Path::new(std::str::from_utf8(&mount.source).ok()?);
    source.starts_with("/dev").then(|| {
        let resolved = std::fs::canonicalize(source);
        name_of(resolved.as_deref().unwrap_or(source))
    })?
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
