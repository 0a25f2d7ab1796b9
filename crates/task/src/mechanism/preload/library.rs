//! Puts the library where the loader finds it: a file that only this user can write, named after its
//! content, the same for all monitors.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, StatVfsMountFlags, statvfs};

/// Empty if there was no compiler for it.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// The reason why it is empty.
const MISSING: &str = env!("SKOPOS_PRELOAD_MISSING");

/// What the library looks for its tables in.
pub(super) const VARIABLE: &str = env!("SKOPOS_PRELOAD_VARIABLE");

/// A process that changes its user still finds the library, or the loader would complain to the
/// task's standard error; nobody but the owner writes.
const FOLDER_MODE: u32 = 0o711;
const LIBRARY_MODE: u32 = 0o555;

/// Whether it can be used at all.
pub(super) fn is_there() -> Result<(), String> {
    if LIBRARY.is_empty() { Err(MISSING.to_owned()) } else { Ok(()) }
}

/// The library as a file, written if it is not there yet.
///
/// # Errors
/// No folder is fit for it.
pub(super) fn place() -> io::Result<PathBuf> {
    is_there().map_err(io::Error::other)?;
    let mut last = io::Error::other("there is no folder for its library");
    for folder in folders() {
        match place_in(&folder) {
            Ok(path) => return Ok(path),
            Err(e) => last = io::Error::new(e.kind(), format!("{}: {e}", folder.display())),
        }
    }
    Err(last)
}

/// Folders for what a run needs: in memory first.
pub(super) fn folders() -> Vec<PathBuf> {
    let own = format!("skopos-task-{}", rustix::process::geteuid().as_raw());
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some(PathBuf::from("/dev/shm")), runtime, Some(std::env::temp_dir())]
        .into_iter()
        .flatten()
        .map(|folder| folder.join(&own))
        .collect()
}

/// Makes a folder that only this user writes to.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let about = fs::symlink_metadata(folder)?;
    let is_own = about.uid() == rustix::process::geteuid().as_raw() && about.mode() & 0o022 == 0;
    if !about.is_dir() || !is_own {
        return Err(io::Error::other("it is somebody else's"));
    }
    // The loader takes spaces and colons for the ends of names.
    if folder.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b':' | b'\n' | b'\t' | b'$'))
    {
        return Err(io::Error::other("the loader would not understand its name"));
    }
    Ok(())
}

fn place_in(folder: &Path) -> io::Result<PathBuf> {
    make(folder)?;
    if statvfs(folder)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("nothing there may be executed"));
    }
    let path = folder.join(format!("counters-{:016x}.so", hash(LIBRARY)));
    if is_ours(&path) {
        return Ok(path);
    }
    let partial = folder.join(format!(".counters-{}.partial", std::process::id()));
    // What a monitor of this process id left half written.
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
    if is_ours(&path) { Ok(path) } else { Err(io::Error::other("what was written is not there")) }
}

/// True if the file is the library, byte for byte, and nobody else can change it.
fn is_ours(path: &Path) -> bool {
    let read = || -> io::Result<bool> {
        let nofollow = OFlags::NOFOLLOW.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(nofollow).open(path)?;
        let about = file.metadata()?;
        let is_own = about.uid() == rustix::process::geteuid().as_raw();
        if !is_own || about.mode() & 0o022 != 0 || about.len() != LIBRARY.len() as u64 {
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

/// `LD_PRELOAD` with the library in front of what is there, once.
pub(super) fn in_front(library: &Path, before: Option<OsString>) -> OsString {
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
    fn a_library_that_was_changed_is_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("own");
        let path = place_in(&own).expect("placed");
        assert_eq!(fs::read(&path).expect("there"), LIBRARY);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, LIBRARY_MODE);
        fs::remove_file(&path).expect("gone");
        fs::write(&path, vec![0; LIBRARY.len()]).expect("another one");
        assert_eq!(place_in(&own).expect("placed"), path);
        assert_eq!(fs::read(&path).expect("there"), LIBRARY);
        assert_eq!(fs::read_dir(&own).expect("a folder").count(), 1, "nothing half written stays");
    }

    #[test]
    fn a_folder_that_others_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let open = folder.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("opened");
        assert!(place_in(&open).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).expect("linked");
        assert!(place_in(&link).is_err());
        assert!(place_in(&folder.path().join("with space")).is_err());
    }

    #[test]
    fn it_comes_before_what_is_there_and_once() {
        let library = Path::new("/a/b.so");
        for (before, expected) in [
            (None, "/a/b.so"),
            (Some(""), "/a/b.so"),
            (Some("/c.so /d.so"), "/a/b.so:/c.so /d.so"),
            (Some("/c.so:/a/b.so"), "/c.so:/a/b.so"),
        ] {
            assert_eq!(in_front(library, before.map(OsString::from)), OsString::from(expected));
        }
    }
}
