//! The mounts of this machine, for programs that look for the file system of a path or of a disk.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::root::Root;
use crate::{disk, local, mounts};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The folder at which it is mounted.
    pub point: PathBuf,
    /// The type, such as `ext4`.
    pub kind: String,
    /// The whole block device that holds it, if one does.
    pub disk: Option<String>,
}

/// Returns every mount that can be reached by its path, in the order of `/proc/self/mountinfo`.
///
/// # Errors
/// The table cannot be read.
pub fn all(root: &Root) -> io::Result<Vec<Mounted>> {
    let text = fs::read(root.proc.join("self/mountinfo"))?;
    let mounts = mounts::visible(&text).into_iter().map(|mount| {
        let name = local::device_name(&mount, &root.sys);
        let name = name.as_deref().and_then(|name| std::str::from_utf8(name).ok());
        Mounted {
            point: Path::new(OsStr::from_bytes(&mount.point)).into(),
            kind: String::from_utf8_lossy(mount.kind).into_owned(),
            disk: name.and_then(|name| disk::whole(root, name)),
        }
    });
    Ok(mounts.collect())
}

/// Returns the mount that `path` lies on. `path` must be absolute and without symbolic links.
pub fn of_path<'m>(all: &'m [Mounted], path: &Path) -> Option<&'m Mounted> {
    let above = all.iter().filter(|mount| path.starts_with(&mount.point));
    // Of two mounts on one point, the later one hides the other.
    above.max_by_key(|mount| mount.point.as_os_str().len())
}
