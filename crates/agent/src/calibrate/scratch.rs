//! The temporary file of a calibration.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::calibrate::measure::{Area, BLOCK_BYTES, IN_FLIGHT, fill};
use skopos_term::Failure;
use skopos_term::format;

/// Largest share of the available space that the file may take. The rest is for other writers.
const MAX_SHARE_OF_SPACE: f64 = 0.5;

/// A file without a name, all of whose blocks were written.
pub(super) struct Scratch {
    /// The open file.
    pub file: File,
    /// True if it is read and written around the page cache.
    pub direct: bool,
}

impl Scratch {
    /// Makes a file of `bytes` in `folder`.
    ///
    /// # Errors
    /// The folder cannot be written, or has no space left.
    pub(super) fn make(folder: &Path, bytes: u64) -> Result<Self, Failure> {
        let failed = |e: io::Error| {
            Failure::new(format!("a temporary file cannot be made in {}", folder.display()))
                .because(&e)
                .hint("name your own folder on the same device: `skopos calibrate FOLDER`")
        };
        let file = nameless(folder).map_err(failed)?;
        let direct = try_direct(&file).map_err(failed)?;
        // Reserves the space if the file system supports it, so that a full one is an error now.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(e) => return Err(failed(e.into())),
        }
        let area = Area { file: &file, bytes, block_bytes: BLOCK_BYTES, is_cached: !direct };
        fill(&area, IN_FLIGHT).map_err(failed)?;
        Ok(Self { file, direct })
    }
}

/// Makes a file without a name, or removes its name at once.
fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(file.into()),
        // File systems and kernels without support return one of three errors.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    let path = folder.join(format!(".skopos-calibrate-{}", std::process::id()));
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Turns the page cache off if the file system supports that. Some file systems accept the flag and refuse the
/// requests, so this function makes a request.
fn try_direct(file: &File) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    if rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return Ok(false);
    }
    let area = Area { file, bytes: BLOCK_BYTES, block_bytes: BLOCK_BYTES, is_cached: false };
    match fill(&area, 1) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            rustix::fs::fcntl_setfl(file, flags)?;
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Checks that a file of `bytes` in `folder` leaves enough space.
///
/// # Errors
/// It does not; the file system cannot be examined, or is read-only.
pub fn check_space(folder: &Path, bytes: u64) -> Result<(), Failure> {
    let stat = rustix::fs::statvfs(folder).map_err(|e| {
        Failure::new(format!("{} cannot be examined", folder.display())).because(&e)
    })?;
    if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return Err(Failure::new(format!("{} is on a read-only file system", folder.display()))
            .hint(
                "to measure only reads, name a device as root: `skopos calibrate DEVICE --raw`",
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
            "{} has {there} of free space, which is too little for a measurement",
            folder.display()
        ))
        .hint("name a folder with more space on the same device, or free some"));
    }
    let (wanted, there) = (format::bytes(bytes as f64), format::bytes(available as f64));
    Err(Failure::new(format!(
        "a file of {wanted} would take more than half of the {there} that are free in {}",
        folder.display()
    ))
    .hint(format!("choose a smaller file: --size {}MiB", (available / 4) >> 20)))
}
