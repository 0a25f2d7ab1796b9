//! Runtime directories: each holds the segments of one user.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::layout::MAX_NAME_BYTES;
use crate::sys;

/// Environment variable with the path of the only runtime directory to use.
pub const DIR_VARIABLE: &str = "SKOPOS_DIR";

/// Folder of the runtime directories, unless [`DIR_VARIABLE`] is set: memory, on every Linux.
const SHARED_MEMORY: &str = "/dev/shm";

/// Permission bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns the directory of this user's publishers: `$SKOPOS_DIR`, else `/dev/shm/skopos-<uid>`.
pub fn runtime_dir() -> PathBuf {
    match std::env::var_os(DIR_VARIABLE) {
        Some(dir) if !dir.is_empty() => dir.into(),
        _ => default_dir(),
    }
}

/// Returns the directory of this user's publishers without a setting in the environment.
pub fn default_dir() -> PathBuf {
    dir_of(sys::effective_uid())
}

/// Returns the directories that readers search: this user's own, and the system agent's (root's).
pub fn search_path() -> Vec<PathBuf> {
    let mut path = vec![runtime_dir()];
    let pinned = std::env::var_os(DIR_VARIABLE).is_some_and(|dir| !dir.is_empty());
    if !pinned && sys::effective_uid() != 0 {
        path.push(dir_of(0));
    }
    path
}

fn dir_of(uid: u32) -> PathBuf {
    Path::new(SHARED_MEMORY).join(format!("skopos-{uid}"))
}

/// Checks that `name` can be the file name of a segment.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len());
    if fits && name.bytes().all(allowed) && !name.starts_with('.') {
        Ok(())
    } else {
        Err(Error::Name(name.to_owned()))
    }
}

/// Returns the path of segment `name` in `dir`.
pub(crate) fn segment_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.seg"))
}

/// Makes `dir` unless it exists, and checks that only this user owns and writes it. Other users may read
/// it only if this user is root: the facts of the machine are for all its users.
pub(crate) fn ensure(dir: &Path) -> Result<(), Error> {
    let mode = if sys::effective_uid() == 0 { 0o755 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(dir) {
        // Set the mode again: a umask must not hide root's facts from the users of the machine.
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(mode))
            .map_err(Error::io(dir, "cannot set its permissions"))?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Error::io(dir, "cannot create the runtime directory")(e)),
    }
    let found = check_owner(dir)?;
    if found != sys::effective_uid() {
        return Err(Error::Owner { path: dir.into(), found, wanted: sys::effective_uid() });
    }
    Ok(())
}

/// Returns the owner of the runtime directory `dir`. It is an error if other users may write to it, or if
/// it belongs to a user other than this one and root.
pub(crate) fn check_owner(dir: &Path) -> Result<u32, Error> {
    let meta = fs::symlink_metadata(dir).map_err(Error::io(dir, "cannot read its metadata"))?;
    if !meta.is_dir() {
        let source = io::Error::from(io::ErrorKind::NotADirectory);
        return Err(Error::io(dir, "cannot be the runtime directory")(source));
    }
    let wanted = sys::effective_uid();
    if meta.uid() != wanted && meta.uid() != 0 {
        return Err(Error::Owner { path: dir.into(), found: meta.uid(), wanted });
    }
    let mode = meta.mode() & 0o777;
    if mode & OTHERS_WRITE != 0 {
        return Err(Error::Permissions { path: dir.into(), mode });
    }
    Ok(meta.uid())
}

/// Returns the segment files in `dir`, by name; an empty list if the directory does not exist.
pub(crate) fn segment_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    files_of(dir, "seg")
}

/// Returns the files in `dir` whose names have this ending, by name; an empty list if the directory does not exist.
pub(crate) fn files_of(dir: &Path, ending: &str) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io(dir, "cannot list it")(e)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::io(dir, "cannot list it"))?.path();
        let named =
            path.file_stem().and_then(|s| s.to_str()).is_some_and(|s| check_name(s).is_ok());
        if named && path.extension().is_some_and(|e| e == ending) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The state of a directory: as long as it is the same, no file came or went, and owner and permissions are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirStamp {
    inode: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Seconds after which a change of a directory counts as over. Kernels note times in steps of some milliseconds, so a file
/// that came in the same step would not be noticed.
const SETTLED_SECONDS: i64 = 1;

impl DirStamp {
    /// Returns the state of a directory; `None` if it does not exist.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let meta = fs::metadata(dir).ok()?;
        Some(Self {
            inode: (meta.dev(), meta.ino()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    /// Returns true if the last change is over.
    pub(crate) fn is_old(&self) -> bool {
        let now =
            std::time::UNIX_EPOCH.elapsed().ok().and_then(|d| i64::try_from(d.as_secs()).ok());
        let last = self.modified.0.max(self.changed.0);
        now.is_some_and(|now| now > last.saturating_add(SETTLED_SECONDS))
    }
}

/// The lock under which one process at a time changes a directory; released when dropped.
pub(crate) struct DirLock(#[allow(dead_code, reason = "closing the file releases the lock")] File);

impl DirLock {
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(".lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
            .open(&path)
            .map_err(Error::io(&path, "cannot open"))?;
        sys::lock(&file).map_err(Error::io(&path, "cannot lock"))?;
        Ok(Self(file))
    }
}

/// Makes the file at `path` anew, with this mode and length.
pub(crate) fn create_file(path: &Path, mode: u32, len: u64) -> Result<File, Error> {
    let _ = fs::remove_file(path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(path)
        .map_err(Error::io(path, "cannot create"))?;
    // Set the mode again: a umask must not hide root's facts from the users of the machine.
    file.set_permissions(Permissions::from_mode(mode))
        .map_err(Error::io(path, "cannot set its permissions"))?;
    file.set_len(len).map_err(Error::io(path, "cannot set its length"))?;
    Ok(file)
}

/// Removes the file at `path` if it is still `own`. If `own` was removed by hand, a new publisher may have
/// taken its name.
pub(crate) fn remove_own(path: &Path, own: &File) {
    if is_own(path, own) {
        let _ = fs::remove_file(path);
    }
}

/// Returns true if the file at `path` is `own`.
pub(crate) fn is_own(path: &Path, own: &File) -> bool {
    match (fs::symlink_metadata(path), own.metadata()) {
        (Ok(found), Ok(own)) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
        _ => false,
    }
}
