//! Which of the mounts are file systems of this machine with data of somebody in them, and what facts
//! about them are called.

use std::collections::{BTreeMap, HashMap};
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

/// The file systems to look at, and what is left out.
pub(crate) struct Local<'m, 'a> {
    /// One mount a file system (`st_dev`): that of the whole of it, with the shortest path.
    pub(crate) chosen: Vec<&'m Mount<'a>>,
    /// Types of mounts that could hang, and how many.
    pub(crate) remote: BTreeMap<String, usize>,
}

/// Chooses among `mounts`.
pub(crate) fn local<'m, 'a>(mounts: &'m [Mount<'a>]) -> Local<'m, 'a> {
    let mut remote: BTreeMap<String, usize> = BTreeMap::new();
    let mut chosen: Vec<&Mount<'_>> = Vec::new();
    let mut places = HashMap::new();
    for mount in mounts.iter().filter(|mount| !PSEUDO.contains(&mount.kind)) {
        if REMOTE.contains(&mount.kind) || mount.kind.starts_with(b"fuse") {
            let kind = String::from_utf8_lossy(mount.kind).into_owned();
            *remote.entry(kind).or_default() += 1;
            continue;
        }
        let place = *places.entry(mount.device).or_insert(chosen.len());
        match chosen.get_mut(place) {
            Some(other) if is_better(mount, other) => *other = mount,
            Some(_) => {}
            None => chosen.push(mount),
        }
    }
    Local { chosen, remote }
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
