//! A disk with seeks: an ext4 on a loop device, whose image a small FUSE server keeps. The server serves one request
//! after another, as one arm does, and waits for a seek where an access does not begin at the end of the last one.
//!
//! # Layout
//! Below the folder of the disk: `image`, the bytes; `fuse`, where the server shows them as the file `image`; `data`,
//! where the ext4 is mounted.

mod server;

use std::ffi::CString;
use std::fs::{self, DirEntry, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::command::run;
use super::topology::Disk;
use crate::Error;
use server::{Arm, Server};

/// The folder of the mounted file system, below that of the disk.
pub(super) const DATA: &str = "data";

/// The deepest folder whose files [`RunningDisk::drop_cache`] visits.
const MAX_DEPTH: usize = 64;

/// A mounted disk. It is unmounted when this value is dropped.
#[derive(Debug)]
pub(super) struct RunningDisk {
    folder: PathBuf,
    data: PathBuf,
    seeks: Arc<AtomicU64>,
    seek_ns: Arc<AtomicU64>,
}

impl RunningDisk {
    /// Makes and mounts a disk in `folder`.
    ///
    /// # Errors
    /// `mkfs.ext4` or `mount` is missing, the kernel has no FUSE, or a part is refused.
    pub(super) fn start(disk: &Disk, folder: &Path) -> Result<Self, Error> {
        let [image, fuse, data] = ["image", "fuse", DATA].map(|name| folder.join(name));
        for folder in [&fuse, &data] {
            let doing = format!("make the folder {}", folder.display());
            fs::create_dir_all(folder).map_err(Error::system(doing))?;
        }
        let making = format!("make {}", image.display());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&image);
        let file = file.map_err(Error::system(making.clone()))?;
        file.set_len(u64::from(disk.size_mb) * 1_000_000).map_err(Error::system(making))?;
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &text(&image)])?;
        let device = mount_fuse(&fuse)?;
        let seeks = Arc::new(AtomicU64::new(0));
        let seek_ns = Arc::new(AtomicU64::new(nanos(disk.seek_ms)));
        let arm = Arm::new(seek_ns.clone(), disk.rate_mb, seeks.clone());
        let server = Server::new(device, file, arm)?;
        let thread = thread::Builder::new().name("disk".to_owned()).spawn(move || server.serve());
        thread.map_err(Error::system("start a thread"))?;
        let running = Self { folder: folder.to_owned(), data: data.clone(), seeks, seek_ns };
        run("mount", &["-o", "loop", &text(&fuse.join("image")), &text(&data)])?;
        Ok(running)
    }

    /// The folder in which the disk is mounted.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// Number of seeks so far.
    pub(super) fn seeks(&self) -> u64 {
        self.seeks.load(Ordering::Relaxed)
    }

    /// Changes the time of a seek, which is not negative.
    pub(super) fn set_seek(&self, seek_ms: f64) {
        self.seek_ns.store(nanos(seek_ms), Ordering::Relaxed);
    }

    /// Writes dirty pages and discards all pages of the files of the disk.
    pub(super) fn drop_cache(&self) -> Result<(), Error> {
        drop_pages(&self.data, 0)
            .map_err(Error::system(format!("discard pages of {}", self.data.display())))
    }
}

impl Drop for RunningDisk {
    fn drop(&mut self) {
        // The server must run while the file system above it writes its last pages. Its thread ends when the kernel
        // closes the connection, which may be later: a process with a mount namespace of its own keeps mounts.
        // A failure cannot be returned here; the next `down` tries again.
        let _ = remove(&self.folder);
    }
}

fn nanos(millis: f64) -> u64 {
    // A topology has at most a second.
    (millis * 1e6) as u64
}

fn drop_pages(folder: &Path, depth: usize) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        match drop_pages_of(&entry?, depth) {
            // A program removed the file meanwhile, and its pages with it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            dropped => dropped?,
        }
    }
    Ok(())
}

fn drop_pages_of(entry: &DirEntry, depth: usize) -> io::Result<()> {
    let kind = entry.file_type()?;
    if kind.is_dir() && depth < MAX_DEPTH {
        drop_pages(&entry.path(), depth + 1)?;
    } else if kind.is_file() {
        let file = File::open(entry.path())?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// Removes all disks below the folder of a lab.
pub(super) fn remove_all(lab: &Path) -> Result<(), Error> {
    let Ok(disks) = fs::read_dir(lab) else { return Ok(()) };
    let mut outcome = Ok(());
    for disk in disks.flatten() {
        outcome = outcome.and(remove(&disk.path()));
    }
    outcome?;
    fs::remove_dir(lab).map_err(Error::system(format!("remove {}", lab.display())))
}

/// Unmounts a disk and removes its folder. A second call does nothing.
fn remove(folder: &Path) -> Result<(), Error> {
    if !folder.exists() {
        return Ok(());
    }
    for part in [DATA, "fuse"].map(|name| folder.join(name)) {
        if is_mounted(&part) && run("umount", &[&text(&part)]).is_err() {
            // A program has a file open there: the mount leaves the tree now, and ends with that program.
            run("umount", &["-l", &text(&part)])?;
        }
    }
    let doing = format!("remove {}", folder.display());
    fs::remove_dir_all(folder).map_err(Error::system(doing))
}

fn is_mounted(folder: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let folder = text(folder);
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(&folder))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Mounts a FUSE file system, and returns the device by which it is served.
fn mount_fuse(folder: &Path) -> Result<File, Error> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(Error::system("open /dev/fuse"))?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let doing = format!("mount {}", folder.display());
    let text = |text: &str| CString::new(text).map_err(|e| Error::system(doing.clone())(e.into()));
    let (source, kind, options) = (text("skopos-lab")?, text("fuse")?, text(&options)?);
    let target = text(&folder.to_string_lossy())?;
    // SAFETY: all four texts outlive the call, which only reads them.
    let answer = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            options.as_ptr().cast(),
        )
    };
    if answer < 0 {
        return Err(Error::system(doing)(io::Error::last_os_error()));
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Number of visits of a folder in which files come and go. Nearly each one meets a file that is gone.
    const VISITS: usize = 20;

    #[test]
    fn pages_are_dropped_while_a_program_removes_files() {
        let folder = tempfile::tempdir().expect("a directory");
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let paths = (0..16).map(|at| folder.path().join(format!("file-{at}")));
                    let paths: Vec<PathBuf> = paths.collect();
                    paths.iter().for_each(|path| fs::write(path, "a").expect("a file"));
                    paths.iter().for_each(|path| fs::remove_file(path).expect("the file"));
                }
            });
            let dropped = (0..VISITS).try_for_each(|_| drop_pages(folder.path(), 0));
            ends.store(true, Ordering::Relaxed);
            dropped.expect("a file that is gone has no pages");
        });
    }
}
