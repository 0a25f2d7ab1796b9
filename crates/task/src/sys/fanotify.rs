//! `fanotify`, which reports files by their handles, and the handles of folders.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::pid::Pid;
use crate::bytes::{u16_at, u32_at, u64_at};

/// The size of one read: hundreds of events.
const BUFFER_BYTES: usize = 64 * 1024;

/// Sizes of the header of an event and of each information record.
const EVENT: usize = 24;
const INFORMATION: usize = 4;
/// Sizes of a file system's id, and of a handle's header: its length and type.
const FILE_SYSTEM: usize = 8;
const HANDLE: usize = 8;

/// The most bytes of a handle (`MAX_HANDLE_SZ`).
const MAX_HANDLE: usize = 128;

/// A group of marks whose events are read.
#[derive(Debug)]
pub(crate) struct Notifier {
    descriptor: OwnedFd,
    buffer: Vec<u8>,
}

/// An access of a process to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileEvent {
    /// The process id; 0 for a process of another namespace.
    pub(crate) process: Pid,
    pub(crate) is_opened: bool,
    /// The file was open for writing and is closed.
    pub(crate) is_written: bool,
    /// Events before this one were lost.
    pub(crate) is_cut: bool,
    /// The id of the file system and the handle of the file: the same for all names of the file.
    pub(crate) file: Vec<u8>,
    /// The id of the file system and the handle of the folder of the file.
    pub(crate) folder: Vec<u8>,
}

impl Notifier {
    /// Creates a group.
    ///
    /// # Errors
    /// The user lacks the privilege, or the kernel is older than 5.9.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_FID
            | libc::FAN_REPORT_DFID_NAME;
        // SAFETY: touches no memory, and makes a descriptor that has no other owner.
        let descriptor = unsafe {
            let made = libc::fanotify_init(flags, libc::O_RDONLY as u32);
            if made < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(made)
        };
        Ok(Self { descriptor, buffer: vec![0; BUFFER_BYTES] })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Watches all files of the file system of an open folder.
    ///
    /// # Errors
    /// The file system has no handles or no id.
    pub(crate) fn watch(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        let mask = libc::FAN_OPEN | libc::FAN_CLOSE_WRITE;
        // SAFETY: the name ends in a zero.
        let done = unsafe {
            let (own, of) = (self.descriptor.as_raw_fd(), folder.as_raw_fd());
            libc::fanotify_mark(own, flags, mask, of, c".".as_ptr())
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Reads the next events; empty if there are none at present.
    pub(crate) fn next(&mut self) -> Vec<FileEvent> {
        match rustix::io::read(&self.descriptor, &mut self.buffer[..]) {
            Ok(length) => events(self.buffer.get(..length).unwrap_or_default()),
            Err(_) => Vec::new(),
        }
    }
}

/// Parses events, without one that is cut short.
fn events(bytes: &[u8]) -> Vec<FileEvent> {
    let mut rest = bytes;
    let mut all = Vec::new();
    while let (Some(length), Some(mask), Some(process)) =
        (u32_at(rest, 0), u64_at(rest, 8), u32_at(rest, 20))
    {
        let Some(event) = rest.get(EVENT..length as usize) else { break };
        rest = rest.get(length as usize..).unwrap_or_default();
        let mut parsed = FileEvent {
            process: process.cast_signed(),
            is_opened: mask & libc::FAN_OPEN != 0,
            is_written: mask & libc::FAN_CLOSE_WRITE != 0,
            is_cut: mask & libc::FAN_Q_OVERFLOW != 0,
            ..FileEvent::default()
        };
        for (kind, object) in information(event) {
            match kind {
                libc::FAN_EVENT_INFO_TYPE_FID => parsed.file = object,
                libc::FAN_EVENT_INFO_TYPE_DFID_NAME => parsed.folder = object,
                _ => {}
            }
        }
        all.push(parsed);
    }
    all
}

/// Iterates over the information records of an event: types, and the file system's id with a
/// handle, without the name that may follow.
fn information(bytes: &[u8]) -> impl Iterator<Item = (u8, Vec<u8>)> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (kind, length) = (*rest.first()?, usize::from(u16_at(rest, 2)?));
        let body = rest.get(INFORMATION..length)?;
        rest = rest.get(length..).unwrap_or_default();
        let size = u32_at(body, FILE_SYSTEM)? as usize;
        let object = body.get(..FILE_SYSTEM + HANDLE + size)?.to_vec();
        Some((kind, object))
    })
}

/// Returns the id of the file system of an open folder, in the form with which objects begin.
pub(crate) fn file_system_of(folder: BorrowedFd<'_>) -> io::Result<[u8; FILE_SYSTEM]> {
    let mut statfs = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the buffer is as large as the call expects, all zero is a value of it, and the id
    // that is copied is two words.
    unsafe {
        if libc::fstatfs(folder.as_raw_fd(), statfs.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        let id = statfs.assume_init().f_fsid;
        Ok(std::mem::transmute_copy::<libc::fsid_t, [u8; FILE_SYSTEM]>(&id))
    }
}

/// Returns the path of a folder, given its object; `on` is any folder of the same file system.
///
/// # Errors
/// The folder was removed.
pub(crate) fn path_of(object: &[u8], on: BorrowedFd<'_>) -> io::Result<PathBuf> {
    /// `struct file_handle` with room for the longest handle.
    #[repr(C, align(8))]
    struct Handle([u8; HANDLE + MAX_HANDLE]);
    let mut handle = Handle([0; HANDLE + MAX_HANDLE]);
    let bytes = object.get(FILE_SYSTEM..).unwrap_or_default();
    let place = handle.0.get_mut(..bytes.len()).ok_or(io::ErrorKind::InvalidData)?;
    place.copy_from_slice(bytes);
    // SAFETY: the kernel reads as many bytes as the handle states, which `information` has checked
    // and which fit; the descriptor is new and has no other owner.
    let folder = unsafe {
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        let opened = libc::open_by_handle_at(on.as_raw_fd(), (&raw mut handle).cast(), flags);
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(opened)
    };
    let path = std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    let is_gone = path.as_os_str().as_bytes().ends_with(b" (deleted)") && !Path::exists(&path);
    if is_gone { Err(io::ErrorKind::NotFound.into()) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_cut_short_is_left_out() {
        let mut event = vec![0; EVENT];
        event[8] = (libc::FAN_OPEN | libc::FAN_CLOSE_WRITE) as u8;
        event[20] = 7;
        for (kind, object) in [(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, 5), (1, 6)] {
            let body = [vec![9; FILE_SYSTEM], vec![4, 0, 0, 0, 1, 0, 0, 0], vec![object; 4]];
            event.extend([kind, 0, 24, 0]);
            event.extend(body.concat());
        }
        event[0] = event.len() as u8;
        let parsed = events(&event);
        assert_eq!((parsed.len(), parsed[0].process), (1, 7));
        assert!(parsed[0].is_opened && parsed[0].is_written && !parsed[0].is_cut);
        assert_eq!((parsed[0].file.len(), parsed[0].file.last()), (20, Some(&6)));
        assert_eq!(parsed[0].folder.last(), Some(&5));
        for end in 0..event.len() {
            assert!(events(&event[..end]).is_empty(), "{end}");
        }
        let two = [event.clone(), event].concat();
        assert_eq!(events(&two).len(), 2);
        assert!(events(&[0; 64]).len() <= 64, "a length of zero ends it");
    }
}
