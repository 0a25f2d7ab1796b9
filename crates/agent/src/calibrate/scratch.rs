//! The temporary file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::measure::{self, Area};
use super::{BLOCK_BYTES, IN_FLIGHT};
use skopos_term::Failure;
use skopos_term::format;

/// Of the space that is available, what the file may take. The rest is for those who write meanwhile.
const MAX_SHARE_OF_SPACE: f64 = 0.5;

/// A file that has no name, and whose blocks were all written.
pub struct Scratch {
    pub file: File,
    /// It is read and written around the page cache.
    pub direct: bool,
}

impl Scratch {
    /// Makes a file of `bytes` in `folder`.
    ///
    /// # Errors
    /// The folder cannot be written, or has no space left.
    pub fn make(folder: &Path, bytes: u64) -> Result<Self, Failure> {
        let failed = |e: io::Error| {
            Failure::new(format!("no temporary file can be made in {}", folder.display()))
                .because(&e)
                .hint("name a folder of yours on the same device: `skopos calibrate FOLDER`")
        };
        let file = nameless(folder).map_err(failed)?;
        let direct = try_direct(&file).map_err(failed)?;
        // Where it can be had, so that a full file system is an error now.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(e) => return Err(failed(e.into())),
        }
        let area = Area { file: &file, bytes, block_bytes: BLOCK_BYTES, is_cached: !direct };
        measure::fill(&area, IN_FLIGHT).map_err(failed)?;
        Ok(Self { file, direct })
    }
}

/// A file without a name: made so, or its name taken away at once.
fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(file.into()),
        // File systems and kernels that cannot do that answer in three ways.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    let path = folder.join(format!(".skopos-calibrate-{}", std::process::id()));
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Turns the page cache off if the file system can do without. Some accept the flag and refuse the
/// request, so one is made.
fn try_direct(file: &File) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    if rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return Ok(false);
    }
    let area = Area { file, bytes: BLOCK_BYTES, block_bytes: BLOCK_BYTES, is_cached: false };
    match measure::fill(&area, 1) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            rustix::fs::fcntl_setfl(file, flags)?;
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Refuses if a file of `bytes` in `folder` would leave too little space.
///
/// # Errors
/// It would; the file system cannot be asked, or can only be read.
pub fn check_space(folder: &Path, bytes: u64) -> Result<(), Failure> {
    let stat = rustix::fs::statvfs(folder).map_err(|e| {
        Failure::new(format!("{} cannot be looked at", folder.display())).because(&e)
    })?;
    if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Err(Failure::new(format!("nothing can be written to {}", folder.display())).hint(
            "name a device to measure its reads alone, as root: `skopos calibrate DEVICE --raw`",
        ));
    }
    let unit = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
    let available = stat.f_bavail.saturating_mul(unit);
    if bytes as f64 <= available as f64 * MAX_SHARE_OF_SPACE {
        return Ok(());
    }
    if available < 4 * BLOCK_BYTES * IN_FLIGHT {
        let there = format::bytes(available as f64);
        return Err(Failure::new(format!(
            "{} has {there} of free space, too little to measure anything",
            folder.display()
        ))
        .hint("name a folder with more space on the same device, or free some"));
    }
    let (wanted, there) = (format::bytes(bytes as f64), format::bytes(available as f64));
    Err(Failure::new(format!(
        "a file of {wanted} would take more than half of the {there} that are free in {}",
        folder.display()
    ))
    .hint(format!("choose a smaller one: --size {}MiB", (available / 4) >> 20)))
}
