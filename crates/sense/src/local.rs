//! Which of the mounts are file systems with data of somebody in them, which of those are of this
//! machine, and what facts about them are called.

use std::collections::HashMap;
use std::path::Path;

use crate::mounts::Mount;

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
/// can hang for ever, so that they are asked apart from the others (`remote_fs`). Types that start with
/// `fuse` too.
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

/// The file systems to look at: of each (`st_dev`) one mount, that of the whole of it, with the
/// shortest path.
pub(crate) struct FileSystems<'m, 'a> {
    /// Those of this machine.
    pub(crate) local: Vec<&'m Mount<'a>>,
    /// Those that could hang.
    pub(crate) remote: Vec<&'m Mount<'a>>,
}

/// Chooses among `mounts`.
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

/// What topics call it: the block device that holds it, else the mount point.
pub(crate) fn label(mount: &Mount<'_>, sys: &Path) -> Vec<u8> {
    device_name(mount, sys).unwrap_or_else(|| mount.point.clone())
}

/// The kernel's name of the block device, which the facts of `block` have too. Btrfs has a device
/// number of its own, so that its source has to tell.
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
