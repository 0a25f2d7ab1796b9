//! The meeting place of one user's sessions on one machine: a folder that only this user can enter, with a UNIX socket
//! for each session.
//!
//! A follower needs a connection with each publisher, and two publishers need none with each other. So a session that
//! begins connects to the followers that it finds, and a follower to all sessions. Sessions begin one after the other,
//! so of two that begin together the second one finds the first. No message leaves the machine, and no other user can
//! connect.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// Ends of the names of sockets: those of followers, and those of sessions that only publish.
const FOLLOWER: &str = "follower.sock";
const PUBLISHER: &str = "publisher.sock";

/// The longest path of a socket: the kernel's structure has 108 bytes, with a zero at the end.
const MAX_PATH_BYTES: usize = 107;

/// Transport of the endpoints.
const TRANSPORT: &str = "unixsock-stream";

/// A session that begins. No other one of this folder begins until it is dropped.
#[derive(Debug)]
pub(crate) struct Meeting {
    _lock: File,
    /// The endpoint to listen on.
    pub(crate) listen: String,
    /// The endpoints of other sessions.
    pub(crate) connect: Vec<String>,
}

impl Meeting {
    /// Begins a session in `folder`, which is made if it does not exist. Removes sockets of sessions that have ended.
    ///
    /// # Errors
    /// The folder cannot be used, other users can enter it, or its path is too long for a socket.
    pub(crate) fn begin(folder: &Path, follows: bool) -> Result<Self, Error> {
        let failed = |source| Error::Folder { path: folder.to_path_buf(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let lock = folder.join("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(lock).map_err(failed)?;
        // The file is new or was this user's before, so it has this user's id.
        check_private(folder, lock.metadata().map_err(failed)?.uid()).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut connect = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_follower = name.ends_with(FOLLOWER);
            if !is_follower && !name.ends_with(PUBLISHER) {
                continue;
            }
            match UnixStream::connect(&path) {
                Ok(_) if is_follower || follows => connect.push(endpoint(&path)),
                Ok(_) => {}
                // Its session has ended without removing it.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(&path);
                    let _ = fs::remove_file(lock_of(&path));
                }
                // It has just been removed, or has too many connections that wait.
                Err(_) => {}
            }
        }
        let listen = folder.join(own_name(follows));
        if listen.as_os_str().len() > MAX_PATH_BYTES {
            let source = io::Error::from(io::ErrorKind::InvalidFilename);
            return Err(failed(source));
        }
        Ok(Self { _lock: lock, listen: endpoint(&listen), connect })
    }
}

/// Checks that only the user `own` can enter a folder, and that nobody else can put another one in its place.
fn check_private(folder: &Path, own: u32) -> io::Result<()> {
    let here = fs::symlink_metadata(folder)?;
    if !here.is_dir() || here.uid() != own || here.mode() & 0o077 != 0 {
        return Err(io::Error::other("other users can enter it; make it private with chmod 700"));
    }
    let above = fs::metadata(folder.parent().unwrap_or(Path::new("/")))?;
    let is_ours = above.uid() == own || above.uid() == 0;
    // In a sticky folder, others can add files and cannot move this one.
    let is_fixed = above.mode() & 0o022 == 0 || above.mode() & 0o1000 != 0;
    if is_ours && is_fixed {
        return Ok(());
    }
    Err(io::Error::other("other users can replace it; make the folder above it private"))
}

/// Returns a name that no other session of this machine has.
fn own_name(follows: bool) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let end = if follows { FOLLOWER } else { PUBLISHER };
    format!("{}-{number}-{end}", std::process::id())
}

/// Returns the file by which the transport locks a socket.
fn lock_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn endpoint(path: &Path) -> String {
    format!("{TRANSPORT}/{}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_session_finds_those_that_it_needs_and_removes_those_that_ended() {
        let dir = std::env::temp_dir().join(format!("skopos-meeting-{}", std::process::id()));
        let folder = dir.join("plane");
        let names = |connect: &[String]| {
            let name = |text: &String| text.rsplit('/').next().unwrap_or_default().to_owned();
            let mut names: Vec<String> = connect.iter().map(name).collect();
            names.sort();
            names
        };
        let first = Meeting::begin(&folder, false).expect("a folder");
        let mode = fs::metadata(&folder).expect("a folder").permissions().mode();
        assert_eq!((mode & 0o777, first.connect.len()), (0o700, 0));
        drop(first);
        let bind = |name: &str| UnixListener::bind(folder.join(name)).expect("bound");
        let _alive = (bind("1-0-follower.sock"), bind("2-0-publisher.sock"));
        drop(bind("3-0-follower.sock"));
        let publisher = Meeting::begin(&folder, false).expect("a folder");
        assert_eq!(names(&publisher.connect), ["1-0-follower.sock"]);
        drop(publisher);
        assert!(!folder.join("3-0-follower.sock").exists(), "its session has ended");
        let follower = Meeting::begin(&folder, true).expect("a folder");
        assert_eq!(names(&follower.connect), ["1-0-follower.sock", "2-0-publisher.sock"]);
        drop(follower);
        let deep = dir.join("x".repeat(100));
        assert!(matches!(Meeting::begin(&deep, true), Err(Error::Folder { .. })));
        fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn a_folder_that_others_can_enter_or_replace_is_refused() {
        let dir = std::env::temp_dir().join(format!("skopos-open-{}", std::process::id()));
        let folder = dir.join("plane");
        fs::create_dir_all(&folder).expect("a folder");
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        };
        for (above, here, is_private) in [
            (0o755, 0o700, true),
            (0o1777, 0o700, true),
            (0o755, 0o710, false),
            (0o755, 0o701, false),
            (0o777, 0o700, false),
        ] {
            open(&dir, above);
            open(&folder, here);
            let begun = Meeting::begin(&folder, true);
            assert_eq!(begun.is_ok(), is_private, "{above:o} {here:o}");
        }
        fs::remove_dir_all(dir).expect("removed");
    }
}
