//! Installs the library as a file that only this user can write. Its name depends on its content,
//! so all monitors share it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, StatVfsMountFlags, statvfs};

/// The compiled library; empty if there was no compiler.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// The reason why it is empty.
const MISSING: &str = env!("SKOPOS_PRELOAD_MISSING");

/// The variable that names the tables for the library.
pub(super) const VARIABLE: &str = env!("SKOPOS_PRELOAD_VARIABLE");

/// A process that changes its user must still find the library, or the loader would print a warning
/// to the task's standard error. Only the owner may write.
const FOLDER_MODE: u32 = 0o711;
const LIBRARY_MODE: u32 = 0o555;

/// Checks whether the library was compiled.
pub(super) fn check_built() -> Result<(), String> {
    if LIBRARY.is_empty() { Err(MISSING.to_owned()) } else { Ok(()) }
}

/// Returns the path of the library, after writing it if necessary.
///
/// # Errors
/// No folder is suitable.
pub(super) fn install() -> io::Result<PathBuf> {
    check_built().map_err(io::Error::other)?;
    let mut last = io::Error::other("there is no folder for the library");
    for folder in folders() {
        match install_in(&folder) {
            Ok(path) => return Ok(path),
            Err(e) => last = io::Error::new(e.kind(), format!("{}: {e}", folder.display())),
        }
    }
    Err(last)
}

/// Returns the candidate folders for the files of a run: in memory first.
pub(super) fn folders() -> Vec<PathBuf> {
    let own = format!("skopos-task-{}", rustix::process::geteuid().as_raw());
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some(PathBuf::from("/dev/shm")), runtime, Some(std::env::temp_dir())]
        .into_iter()
        .flatten()
        .map(|folder| folder.join(&own))
        .collect()
}

/// Creates a folder that only this user can write to.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let metadata = fs::symlink_metadata(folder)?;
    let is_own =
        metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    if !metadata.is_dir() || !is_own {
        return Err(io::Error::other("it belongs to another user or others may write to it"));
    }
    // The loader takes spaces and colons as separators.
    if folder.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b':' | b'\n' | b'\t' | b'$'))
    {
        return Err(io::Error::other(
            "its name contains a character that the loader cannot handle",
        ));
    }
    Ok(())
}

fn install_in(folder: &Path) -> io::Result<PathBuf> {
    make_folder(folder)?;
    if statvfs(folder)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("it is mounted without the right to execute files"));
    }
    let path = folder.join(format!("counters-{:016x}.so", hash(LIBRARY)));
    if is_intact(&path) {
        return Ok(path);
    }
    let partial = folder.join(format!(".counters-{}.partial", std::process::id()));
    // A monitor with the same process id may have left it unfinished.
    let _ = fs::remove_file(&partial);
    let mut options = OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .mode(LIBRARY_MODE)
        .open(&partial)
        .and_then(|mut file| file.write_all(LIBRARY))
        .and_then(|()| fs::rename(&partial, &path));
    if let Err(e) = written {
        let _ = fs::remove_file(&partial);
        return Err(e);
    }
    if is_intact(&path) { Ok(path) } else { Err(io::Error::other("the written file has changed")) }
}

/// True if the file equals the library and only this user can change it.
fn is_intact(path: &Path) -> bool {
    let read = || -> io::Result<bool> {
        let nofollow = OFlags::NOFOLLOW.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(nofollow).open(path)?;
        let metadata = file.metadata()?;
        let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
        if !is_own || metadata.mode() & 0o022 != 0 || metadata.len() != LIBRARY.len() as u64 {
            return Ok(false);
        }
        same(&mut file, LIBRARY)
    };
    read().unwrap_or(false)
}

fn same(file: &mut File, expected: &[u8]) -> io::Result<bool> {
    let mut content = Vec::with_capacity(expected.len());
    file.take(expected.len() as u64 + 1).read_to_end(&mut content)?;
    Ok(content == expected)
}

/// Puts the library in front of the present value of `LD_PRELOAD`, unless it is already in there.
pub(super) fn prepend(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|b| !b.is_empty()) {
        let bytes = before.as_bytes();
        let mut names = bytes.split(|b| matches!(b, b' ' | b':'));
        if names.any(|name| name == library.as_os_str().as_bytes()) {
            return before;
        }
        list.push(":");
        list.push(before);
    }
    list
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_library_is_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("own");
        let path = install_in(&own).expect("placed");
        assert_eq!(fs::read(&path).expect("there"), LIBRARY);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, LIBRARY_MODE);
        fs::remove_file(&path).expect("gone");
        fs::write(&path, vec![0; LIBRARY.len()]).expect("another one");
        assert_eq!(install_in(&own).expect("placed"), path);
        assert_eq!(fs::read(&path).expect("there"), LIBRARY);
        assert_eq!(fs::read_dir(&own).expect("a folder").count(), 1, "no partial file stays");
    }

    #[test]
    fn a_folder_that_others_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let open = folder.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("opened");
        assert!(install_in(&open).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).expect("linked");
        assert!(install_in(&link).is_err());
        assert!(install_in(&folder.path().join("with space")).is_err());
    }

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/a/b.so");
        for (before, expected) in [
            (None, "/a/b.so"),
            (Some(""), "/a/b.so"),
            (Some("/c.so /d.so"), "/a/b.so:/c.so /d.so"),
            (Some("/c.so:/a/b.so"), "/c.so:/a/b.so"),
        ] {
            assert_eq!(prepend(library, before.map(OsString::from)), OsString::from(expected));
        }
    }
}
