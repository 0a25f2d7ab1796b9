//! `fsinfo`: properties of local file systems, from `/proc/self/mountinfo` (proc(5)), statvfs(3),
//! `/sys/block`, `/sys/fs/btrfs` (Documentation/filesystems/btrfs.rst) and `/proc/mdstat`.
//!
//! The instances are those of `fs`. The spread of the data (`raid_level`, `device_count`, `copies`,
//! `failures_tolerated`) comes from the file system itself if it manages several devices (btrfs).
//! Otherwise it comes from the layer below: an md array, a device mapper volume on one device (that
//! device decides), or a disk (`none`, one copy, no failure tolerated). A volume over several
//! devices has only their number, since sysfs does not show its map. zfs and overlays have none of
//! these facts. The work of a RAID controller, or of the host of a virtual machine, below a disk is
//! not visible.
//!
//! Everything is looked up when the table of mounts changes. A tick reads only `/proc/mdstat` anew.

mod btrfs;
mod stack;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use skopos_model::Structured;
use skopos_model::schema::fsinfo::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::file::KernelFile;
use crate::instances::{Instance, Instances};
use crate::local::{self, FileSystems};
use crate::mounts::{self, Mount};
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::{disk, raid};
use stack::Spread;

/// The most file systems with facts, as in `fs`.
const MAX_FILE_SYSTEMS: usize = 128;

/// These facts change by the hand of a person, or when a disk fails.
const INTERVAL: Duration = Duration::from_secs(30);

/// Types that cannot compress their data.
static NEVER_COMPRESSED: [&[u8]; 15] = [
    b"bfs",
    b"devtmpfs",
    b"exfat",
    b"ext2",
    b"ext3",
    b"ext4",
    b"jfs",
    b"minix",
    b"msdos",
    b"nilfs2",
    b"ramfs",
    b"reiserfs",
    b"tmpfs",
    b"vfat",
    b"xfs",
];

/// Types that lie in memory.
static IN_MEMORY: [&[u8]; 3] = [b"devtmpfs", b"ramfs", b"tmpfs"];

/// A file system at the time when the table of mounts last changed.
struct FileSystem {
    id: Box<[u8]>,
    label: Vec<u8>,
    mount_point: Structured,
    kind: Option<Structured>,
    device: Option<Structured>,
    compression: Option<Structured>,
    raid_level: Option<Structured>,
    block_bytes: Option<u64>,
    spread: Spread,
}

pub(crate) struct FsInfo {
    root: Root,
    mountinfo: KernelFile,
    mdstat: Option<KernelFile>,
    table: Vec<FileSystem>,
    known: Instances<()>,
}

impl FsInfo {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let path: PathBuf = root.proc.join("self/mountinfo");
        let mut sensor = Self {
            root: root.clone(),
            mountinfo: KernelFile::open_or_skip(&path, "fsinfo")?,
            // Without this file there are no arrays, which the sensor `raid` reports.
            mdstat: KernelFile::open(&root.proc.join("mdstat")).ok(),
            table: Vec::new(),
            known: Instances::new(&fsinfo::FAMILY, MAX_FILE_SYSTEMS),
        };
        match sensor.read_table() {
            Ok(()) => Ok(sensor),
            Err(e) => Err(Skip::new("fsinfo", format!("{}: {e}", path.display()))),
        }
    }

    fn read_table(&mut self) -> io::Result<()> {
        let mdstat = match &mut self.mdstat {
            Some(file) => file.read()?,
            None => b"",
        };
        let mounts = mounts::visible(self.mountinfo.read()?);
        let FileSystems { local, .. } = local::file_systems(&mounts);
        let looked_at = local.into_iter().take(MAX_FILE_SYSTEMS);
        self.table =
            looked_at.filter_map(|mount| FileSystem::look(&self.root, mount, mdstat)).collect();
        Ok(())
    }
}

impl FileSystem {
    /// Returns `None` if the file system has no blocks to fill. `fs` leaves it out, too.
    fn look(root: &Root, mount: &Mount<'_>, mdstat: &[u8]) -> Option<Self> {
        let point = std::ffi::CString::new(mount.point.as_slice()).ok()?;
        // A file system that refuses statvfs still has its other properties.
        let stat = rustix::fs::statvfs(point.as_c_str()).ok();
        if stat.as_ref().is_some_and(|stat| stat.f_blocks == 0) {
            return None;
        }
        let name = local::device_name(mount, &root.sys);
        let name = name.as_deref().and_then(|name| std::str::from_utf8(name).ok());
        let whole = name.and_then(|name| disk::whole(root, name));
        let spread = match mount.kind {
            b"btrfs" => btrfs::spread(&root.sys.join("fs/btrfs"), name),
            kind if IN_MEMORY.contains(&kind) => Spread::single(None),
            b"zfs" | b"bcachefs" => Spread::default(),
            _ => {
                whole.as_deref().map(|whole| stack::spread(root, whole, mdstat)).unwrap_or_default()
            }
        };
        let size = |frsize: u64, bsize: u64| if frsize == 0 { bsize } else { frsize };
        Some(Self {
            id: mount.device.into(),
            label: local::label(mount, &root.sys),
            mount_point: Structured::text(&String::from_utf8_lossy(&mount.point)),
            kind: text(&String::from_utf8_lossy(mount.kind)),
            device: whole.as_deref().and_then(text),
            compression: compression(mount.kind, mount.options).as_deref().and_then(text),
            raid_level: spread.level.as_deref().and_then(text),
            block_bytes: stat.map(|stat| size(stat.f_frsize, stat.f_bsize)),
            spread,
        })
    }
}

fn text(words: &str) -> Option<Structured> {
    Structured::new(words.into()).ok()
}

/// Returns the compression of a file system of the type `kind`; `None` if its options do not show
/// it.
fn compression(kind: &[u8], options: &[u8]) -> Option<String> {
    let option = |name: &[u8]| {
        let mut options = options.split(|&b| b == b',');
        options.find_map(|option| match option.strip_prefix(name)? {
            [] => Some(&b""[..]),
            [b'=', value @ ..] => Some(value),
            _ => None,
        })
    };
    let algorithm = match kind {
        // Without a value it is zlib (btrfs(5)).
        b"btrfs" => match option(b"compress-force").or(option(b"compress")) {
            Some(b"" | b"yes") => &b"zlib"[..],
            Some(b"no") | None => b"none",
            Some(algorithm) => algorithm,
        },
        b"f2fs" => option(b"compress_algorithm").unwrap_or(b"none"),
        b"bcachefs" => option(b"compression").unwrap_or(b"none"),
        b"ubifs" => option(b"compr")?,
        kind if NEVER_COMPRESSED.contains(&kind) => b"none",
        _ => return None,
    };
    Some(String::from_utf8_lossy(algorithm).into_owned())
}

impl Sensor for FsInfo {
    fn family(&self) -> &'static Family {
        &fsinfo::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        if mounts::changed(&self.mountinfo)? {
            self.read_table()?;
        }
        if let Some(mdstat) = &mut self.mdstat {
            let mdstat = mdstat.read()?;
            for spread in self.table.iter_mut().map(|f| &mut f.spread) {
                if let Some(array) = spread.array.take() {
                    raid::each(mdstat, |a| {
                        if *a.name == *array {
                            spread.failures_tolerated = a.failures_tolerated();
                        }
                    });
                    spread.array = Some(array);
                }
            }
        }
        self.known.begin();
        for file_system in &self.table {
            let FileSystem { id, label, .. } = file_system;
            if let Some(instance) = self.known.see_as(tick.sink, id, label, || ()) {
                set_facts(instance, tick, file_system);
            }
        }
        self.known.end(tick.sink);
        Ok(())
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    // statvfs waits for the device, for ever if the device is stuck.
    fn may_block(&self) -> bool {
        true
    }

    fn skips(&self) -> Vec<Skip> {
        self.known.skips()
    }
}

fn set_facts(instance: &mut Instance<()>, tick: &mut Tick<'_>, found: &FileSystem) {
    instance.set_structured(tick, &MOUNT_POINT, &found.mount_point);
    let texts: [(&'static Metric, _); 4] = [
        (&TYPE, &found.kind),
        (&DEVICE, &found.device),
        (&COMPRESSION, &found.compression),
        (&RAID_LEVEL, &found.raid_level),
    ];
    for (metric, value) in texts {
        match value {
            Some(value) => instance.set_structured(tick, metric, value),
            None => instance.unset(tick, metric),
        }
    }
    let numbers: [(&'static Metric, _); 4] = [
        (&BLOCK_BYTES, found.block_bytes),
        (&DEVICE_COUNT, found.spread.devices),
        (&COPIES, found.spread.copies),
        (&FAILURES_TOLERATED, found.spread.failures_tolerated),
    ];
    for (metric, value) in numbers {
        instance.set_or_unset(tick, metric, value);
    }
}

#[cfg(test)]
mod tests {
    use super::compression;

    #[test]
    fn compression_from_mount_options() {
        for (kind, options, expected) in [
            ("ext4", "rw", Some("none")),
            ("xfs", "rw,attr2,inode64", Some("none")),
            ("btrfs", "rw,ssd,space_cache=v2,subvolid=5,subvol=/", Some("none")),
            ("btrfs", "rw,compress=zstd:3,ssd", Some("zstd:3")),
            ("btrfs", "rw,compress-force=lzo,ssd", Some("lzo")),
            ("btrfs", "rw,compress,ssd", Some("zlib")),
            ("btrfs", "rw,compress=no", Some("none")),
            ("f2fs", "rw,compress_algorithm=lz4,compress_log_size=2", Some("lz4")),
            ("f2fs", "rw,background_gc=on", Some("none")),
            ("bcachefs", "rw,compression=zstd", Some("zstd")),
            ("ubifs", "rw,compr=lzo", Some("lzo")),
            ("ubifs", "rw", None),
            ("zfs", "rw,xattr,noacl", None),
            ("overlay", "rw,lowerdir=/a", None),
            ("squashfs", "ro", None),
        ] {
            let found = compression(kind.as_bytes(), options.as_bytes());
            assert_eq!(found.as_deref(), expected, "{kind} {options}");
        }
    }
}
