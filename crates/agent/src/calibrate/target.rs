//! Resolves the typed name of a device or folder.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use skopos_sense::Root;
use skopos_sense::disk::{self, Disk};
use skopos_sense::mounted::{self, Mounted};

use skopos_term::Failure;

/// The device and folder to measure.
#[derive(Debug)]
pub struct Target {
    /// The device; `None` for a file system without a device, such as tmpfs.
    pub disk: Option<Disk>,
    /// The folder for the temporary file; `None` if no file system of the device is mounted.
    pub folder: Option<PathBuf>,
    /// Type of the file system of the folder.
    pub file_system: Option<String>,
    /// Number of concurrent requests that the device supports, if known.
    pub concurrency: Option<u64>,
}

impl Target {
    /// Finds the target that `text` names: a device (`vda`, `/dev/vda1`), a mount point, or any folder.
    ///
    /// # Errors
    /// The text is neither a device nor a path.
    pub fn find(root: &Root, text: &str) -> Result<Self, Failure> {
        let mounts = mounted::all(root)
            .map_err(|e| Failure::new("the table of mounts cannot be read").because(&e))?;
        let name = Path::new(text).strip_prefix(&root.dev).ok().and_then(Path::to_str);
        // `/dev/mapper/vg-root` is a link to `/dev/dm-0`.
        let resolved = fs::canonicalize(text).ok();
        let linked = resolved.as_deref().and_then(|p| p.strip_prefix(&root.dev).ok()?.to_str());
        let names = [linked, name, Some(text)].into_iter().flatten();
        if let Some(disk) = names.filter_map(|name| disk::whole(root, name)).next() {
            return Self::of_disk(root, &disk, &mounts);
        }
        match resolved {
            Some(path) => Self::of_path(root, &path, &mounts),
            None => Err(Failure::new(format!("`{text}` is neither a block device nor a folder"))
                .hint(format!("the devices are {}", devices(root).join(", ")))),
        }
    }

    fn of_disk(root: &Root, name: &str, mounts: &[Mounted]) -> Result<Self, Failure> {
        let disk = look(root, name)?;
        let on_it = mounts.iter().filter(|mount| mount.disk.as_deref() == Some(name));
        // A file can be a mount point too.
        let on_it = on_it.filter(|mount| mount.point.is_dir());
        // The file system with the most space, and its first mount.
        let roomiest = on_it.rev().max_by_key(|mount| available(&mount.point));
        Ok(Self {
            concurrency: disk::hardware_tags(root, name),
            folder: roomiest.map(|mount| mount.point.clone()),
            file_system: roomiest.map(|mount| mount.kind.clone()),
            disk: Some(disk),
        })
    }

    fn of_path(root: &Root, path: &Path, mounts: &[Mounted]) -> Result<Self, Failure> {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        let Some(mount) = mounted::of_path(mounts, folder) else {
            return Err(Failure::new(format!("nothing is mounted at {}", folder.display())));
        };
        let name = mount.disk.as_deref();
        Ok(Self {
            disk: name.map(|name| look(root, name)).transpose()?,
            concurrency: name.and_then(|name| disk::hardware_tags(root, name)),
            folder: Some(folder.to_owned()),
            file_system: Some(mount.kind.clone()),
        })
    }

    /// Describes the temporary file: "a temporary file in /home (ext4)".
    pub fn file_in_words(&self) -> String {
        let folder = self.folder.as_deref().unwrap_or(Path::new("."));
        let kind = self.file_system.as_deref().unwrap_or("an unknown file system");
        format!("a temporary file in {} ({kind})", folder.display())
    }
}

fn look(root: &Root, name: &str) -> Result<Disk, Failure> {
    Disk::look(root, name)
        .map_err(|e| Failure::new(format!("the device {name} cannot be examined")).because(&e))
}

fn devices(root: &Root) -> Vec<String> {
    let entries = fs::read_dir(root.sys.join("block")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> =
        names.filter(|name| Disk::look(root, name).is_ok_and(|disk| disk.size_bytes > 0)).collect();
    names.sort();
    names
}

/// Returns the number of bytes that can be written below `point`; 0 if it is unknown.
fn available(point: &Path) -> u64 {
    match rustix::fs::statvfs(point) {
        Ok(stat) if !stat.f_flag.contains(StatVfsMountFlags::RDONLY) => {
            stat.f_bavail.saturating_mul(stat.f_frsize)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_is_a_folder() {
        let target = Target::find(&Root::default(), ".").expect("this folder");
        assert_eq!(target.folder, fs::canonicalize(".").ok());
        let parent = Target::find(&Root::default(), "..").expect("the one above");
        assert_eq!(parent.folder, fs::canonicalize("..").ok());
        assert!(Target::find(&Root::default(), "").is_err());
    }
}
