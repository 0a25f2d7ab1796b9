//! Chooses the mounts that are file systems with users' data, separates local file systems from
//! remote ones, and names them in topics.

use std::collections::HashMap;
use std::path::Path;

use crate::mounts::Mount;

/// Types without users' data: interfaces of the kernel, and triggers (asking `autofs` mounts
/// something). The list is that of df, without the types that have blocks to fill.
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

/// Types that depend on another machine, or on a process that may not answer. A statvfs call on
/// them can hang for ever, so a sensor of its own asks them (`remote_fs`). Types that start with
/// `fuse` belong to them, too.
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

/// The file systems to look at. Each file system (`st_dev`) is there once: by the mount of its root
/// folder that has the shortest path.
pub(crate) struct FileSystems<'m, 'a> {
    /// File systems of this machine.
    pub(crate) local: Vec<&'m Mount<'a>>,
    /// File systems that could hang.
    pub(crate) remote: Vec<&'m Mount<'a>>,
}

/// Chooses the file systems among `mounts`.
pub(crate) fn file_systems<'m, 'a>(mounts: &'m [Mount<'a>]) -> FileSystems<'m, 'a> {
    let mut chosen: Vec<&Mount<'_>> = Vec::new();
    let mut places = HashMap::new();
    for mount in mounts.iter().filter(|mount| !PSEUDO.contains(&mount.kind)) {
        let place = *places.entry(mount.device).or_insert(chosen.len());
        match chosen.get_mut(place) {
            Some(other) if is_better(mount, other) => *other = mount,
            Some(_) => {}
            None => chosen.push(mount),
        }
    }
    let (remote, local) = chosen.into_iter().partition(|mount| is_remote(mount.kind));
    FileSystems { local, remote }
}

fn is_remote(kind: &[u8]) -> bool {
    REMOTE.contains(&kind) || kind.starts_with(b"fuse")
}

fn is_better(mount: &Mount<'_>, than: &Mount<'_>) -> bool {
    let rank = |m: &Mount<'_>| (m.root != b"/", m.point.len());
    rank(mount) < rank(than)
}

/// Returns the name in topics: that of the block device below, or else the mount point.
pub(crate) fn label(mount: &Mount<'_>, sys: &Path) -> Vec<u8> {
    device_name(mount, sys).unwrap_or_else(|| mount.point.clone())
}

/// Returns the kernel's name of the block device, which the facts of `block` use too. Btrfs has a
/// device number of its own, so for it the name comes from the mount's source.
pub(crate) fn device_name(mount: &Mount<'_>, sys: &Path) -> Option<Vec<u8>> {
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
