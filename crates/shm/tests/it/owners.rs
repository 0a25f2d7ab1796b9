//! Owners and permissions of files and directories: untrusted ones are refused with a reason.

use std::fs::{self, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use skopos_model::ValueType;
use skopos_shm::{Error, Host, Publisher, Segment};

use crate::hostile::specimen;
use crate::support::{
    at, child_dir, child_of, is_root, publisher, runtime_dir, skipped, spec, topic,
};

/// The user id of `nobody` on every Linux: a user without any rights.
const NOBODY: u32 = 65534;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own file");
}

fn create(dir: &Path) -> Error {
    Publisher::builder("refused").dir(dir).create().expect_err("it must not be trusted")
}

/// Runs this binary's ignored test `name` as another user; `None` if this is not possible here.
fn as_nobody(name: &str, dir: &Path) -> Option<Output> {
    if !is_root() {
        skipped(name, "becoming another user needs root");
        return None;
    }
    // A copy that every user may run: the original is often in root's home.
    let public = tempfile::tempdir().expect("a temporary directory");
    chmod(public.path(), 0o755);
    let binary = public.path().join("it");
    fs::copy(std::env::current_exe().expect("this binary has a path"), &binary).expect("room");
    chmod(&binary, 0o755);
    let mut command = child_of(&binary, name, dir);
    command.stdin(std::process::Stdio::null()).uid(NOBODY).gid(NOBODY);
    match command.stdout(std::process::Stdio::piped()).output() {
        Ok(output) => Some(output),
        Err(e) => {
            skipped(name, &format!("other users cannot run this binary: {e}"));
            None
        }
    }
}

fn passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let dir = runtime_dir();
    for mode in [0o777, 0o1777, 0o770, 0o722, 0o702] {
        chmod(dir.path(), mode);
        let refusal = create(dir.path());
        match &refusal {
            Error::Permissions { path, mode: found } => {
                assert_eq!((path.as_path(), *found), (dir.path(), mode & 0o777));
            }
            other => panic!("{mode:o}: {other}"),
        }
        let host = Host::open_dirs(vec![dir.path().to_owned()]);
        assert!(matches!(host, Err(Error::Permissions { .. })), "{host:?}");
    }
    for mode in [0o755, 0o700, 0o750] {
        chmod(dir.path(), mode);
        drop(publisher(dir.path(), "trusted"));
    }
}

#[test]
fn a_path_that_is_not_a_directory_is_refused() {
    let dir = runtime_dir();
    let file = dir.path().join("file");
    fs::write(&file, b"").expect("our own directory");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).expect("our own directory");
    for path in [&file, &link] {
        let refusal = create(path);
        assert!(matches!(refusal, Error::Io { .. }), "{refusal}");
        assert!(Host::open_dirs(vec![path.clone()]).is_err(), "{path:?}");
    }
    let refusal = create(&dir.path().join("missing/below"));
    assert!(matches!(refusal, Error::Io { .. }), "{refusal}");
    let host = Host::open_dirs(vec![dir.path().join("missing")]).expect("nothing is there");
    assert!(host.segments().is_empty());
}

#[test]
fn directories_and_files_of_another_user_are_refused() {
    if !is_root() {
        return skipped("owners", "changing the owner of files needs root");
    }
    let specimen = specimen();
    chown(&specimen.path, Some(NOBODY), None).expect("root");
    match Segment::open(&specimen.path) {
        Err(Error::Owner { path, found: NOBODY, wanted: 0 }) => assert_eq!(path, specimen.path),
        other => panic!("{other:?}"),
    }
    let host = Host::open_dirs(vec![specimen.dir.path().to_owned()]).expect("a valid directory");
    assert!(matches!(host.refused(), [Error::Owner { .. }]), "{:?}", host.refused());

    chown(specimen.dir.path(), Some(NOBODY), None).expect("root");
    let refusal = create(specimen.dir.path());
    assert!(matches!(refusal, Error::Owner { found: NOBODY, wanted: 0, .. }), "{refusal}");
    let host = Host::open_dirs(vec![specimen.dir.path().to_owned()]);
    assert!(matches!(host, Err(Error::Owner { .. })), "{host:?}");
}

#[test]
fn a_directory_that_cannot_be_written_to_is_an_error() {
    let dir = runtime_dir();
    chmod(dir.path(), 0o555);
    if is_root() {
        chown(dir.path(), Some(NOBODY), None).expect("root");
        let Some(output) = as_nobody("owners::create_in_a_read_only_directory", dir.path()) else {
            return;
        };
        passed(&output);
    } else {
        read_only_directory(dir.path());
    }
    chmod(dir.path(), 0o755);
}

fn read_only_directory(dir: &Path) {
    let refusal = create(dir);
    assert!(
        matches!(&refusal, Error::Io { source, .. }
        if source.kind() == std::io::ErrorKind::PermissionDenied),
        "{refusal}"
    );
    Host::open_dirs(vec![dir.to_owned()]).expect("reading works without write permission");
}

#[test]
#[ignore = "a test above runs this as another user"]
fn create_in_a_read_only_directory() {
    if let Some(dir) = child_dir() {
        read_only_directory(&dir);
    }
}

/// The facts of the machine are for all its users, with any umask of its agent.
#[test]
fn other_users_read_and_wait_for_samples_of_root() {
    if !is_root() {
        return skipped("owners", "publishing as root needs root");
    }
    let outer = runtime_dir();
    chmod(outer.path(), 0o755);
    let dir = outer.path().join("system");
    let status = Command::new("sh")
        .args(["-c", "umask 077; exec \"$0\" --ignored --exact owners::make_under_a_strict_umask"])
        .arg(std::env::current_exe().expect("this binary has a path"))
        .env(crate::support::CHILD_DIR, &dir)
        .output()
        .expect("a shell exists");
    passed(&status);
    assert_eq!(fs::metadata(&dir).expect("made by the child").mode() & 0o777, 0o755);
    let publisher = publisher(&dir, "system");
    let writer = publisher.register(spec("n01/up", ValueType::U64)).expect("room");
    writer.publish_at(at(1), 1u64).expect("registered");
    let done = AtomicBool::new(false);
    let publishing = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 2u64.. {
                writer.publish(n).expect("registered");
                std::thread::sleep(std::time::Duration::from_millis(1));
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let output = as_nobody("owners::read_as_another_user", &dir);
        done.store(true, Ordering::Relaxed);
        output
    });
    if let Some(output) = publishing {
        passed(&output);
    }
}

#[test]
#[ignore = "a test above runs this under a strict umask"]
fn make_under_a_strict_umask() {
    if let Some(dir) = child_dir() {
        drop(publisher(&dir, "first"));
    }
}

#[test]
#[ignore = "a test above runs this as another user"]
fn read_as_another_user() {
    let Some(dir) = child_dir() else { return };
    let host = Host::open_dirs(vec![dir]).expect("root's directory is trusted");
    let vertex = host.find(&topic("n01/up")).expect("all users may read it");
    let before = vertex.latest().expect("published").as_f64();
    let mut news = vertex.subscribe();
    let delivery = news.next_timeout(crate::support::PATIENCE).expect("all users may wait");
    assert!(delivery.is_some());
    assert!(vertex.latest().expect("published").as_f64() > before);
    let refusal = create(host.segments()[0].path().parent().expect("in a directory"));
    assert!(matches!(refusal, Error::Owner { found: 0, .. }), "{refusal}");
}

/// A process that may write a file may also truncate it, and then the processes that map it die of SIGBUS.
#[test]
fn other_users_cannot_truncate_files_of_a_publisher() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "mine");
    for entry in fs::read_dir(dir.path()).expect("our own directory") {
        let entry = entry.expect("readable");
        let mode = entry.metadata().expect("readable").mode();
        assert_eq!(mode & 0o022, 0, "{:?} is {mode:o}", entry.path());
    }
    drop(publisher);
}

/// A process that may read a segment can hold a shared lock on it. Such a lock once made a dead publisher
/// look alive, and blocked its successor.
#[test]
fn a_lock_of_a_reader_does_not_mean_alive() {
    let dir = runtime_dir();
    let publisher = publisher(dir.path(), "mine");
    let path = publisher.path().to_owned();
    let kept = dir.path().join("kept");
    // SIGKILL leaves this behind: the file without the lock of its publisher.
    fs::copy(&path, &kept).expect("our own directory");
    drop(publisher);
    fs::rename(&kept, &path).expect("our own directory");
    let reader = fs::File::open(&path).expect("our own file");
    // SAFETY: all zeros is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    // SAFETY: the descriptor is open and `lock` outlives the call.
    let locked = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) };
    assert_eq!(locked, 0, "a shared lock needs only read permission");
    assert!(!Segment::open(&path).expect("whole").is_alive());
    Publisher::builder("mine")
        .dir(dir.path())
        .create()
        .expect("no living publisher holds the name");
}

/// Any user can make a directory at the path of the system agent's; that must not hide this user's own
/// segments.
#[test]
fn an_untrusted_directory_does_not_hide_others() {
    let (own, bad) = (runtime_dir(), runtime_dir());
    let publisher = publisher(own.path(), "mine");
    chmod(bad.path(), 0o777);
    let dirs = vec![own.path().to_owned(), bad.path().to_owned()];
    let host = Host::open_dirs(dirs).expect("one of them is trusted");
    assert_eq!(host.segments().len(), 1);
    assert!(matches!(host.refused(), [Error::Permissions { .. }]), "{:?}", host.refused());
    assert!(Host::open_dirs(vec![bad.path().to_owned()]).is_err());
    drop(publisher);
}
