//! A descriptor of a process, as `/proc/PID/fd` and `/proc/PID/fdinfo` show it.

use std::fs;
use std::os::fd::RawFd;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use crate::sys::{self, Pid};

/// Identity of a file: device, inode and time of birth, because a freed inode is reused for another
/// file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
    born: (i64, u32),
}

/// The access mode of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
    /// The position does not show whether bytes were read or written.
    Both,
}

/// A descriptor of a file that has positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) file: FileId,
    pub(super) mode: Mode,
    /// Its position is the end of the file, whichever process wrote the bytes.
    pub(super) appends: bool,
    pub(super) closes_on_exec: bool,
    pub(super) position: u64,
    pub(super) size: u64,
}

/// A descriptor number of a process. A thread id may stand for the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DescriptorId {
    pub(super) process: Pid,
    pub(super) number: RawFd,
}

impl DescriptorId {
    /// Reads the descriptor; `None` if it is not a file with positions.
    pub(super) fn read(self) -> Option<Descriptor> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let place = format!("/proc/{}/fd/{}", self.process, self.number);
        // STATX_DONT_SYNC keeps the kernel from asking a file system that the task itself may
        // serve.
        let stat = statx(CWD, &place, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
        let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return None;
        }
        let place = format!("/proc/{}/fdinfo/{}", self.process, self.number);
        let (position, flags) = parse(&fs::read_to_string(place).ok()?)?;
        let mode = match flags & libc::O_ACCMODE {
            _ if flags & libc::O_PATH != 0 => return None,
            libc::O_RDONLY => Mode::Read,
            libc::O_WRONLY => Mode::Write,
            _ => Mode::Both,
        };
        let born = match stat.stx_mask & StatxFlags::BTIME.bits() {
            0 => (0, 0),
            _ => (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
        };
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        Some(Descriptor {
            file: FileId { device, inode: stat.stx_ino, born },
            mode,
            appends: flags & libc::O_APPEND != 0,
            closes_on_exec: flags & libc::O_CLOEXEC != 0,
            position,
            size: stat.stx_size,
        })
    }

    /// Returns the path of its file.
    pub(super) fn path(self) -> String {
        let place = format!("/proc/{}/fd/{}", self.process, self.number);
        let path = fs::read_link(place).unwrap_or_default();
        let path = path.to_string_lossy();
        path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
    }

    /// True if both share one open file description, with one position. `own` is the descriptor of
    /// this one. If the kernel does not allow the question, two descriptors with equal properties
    /// count as shared.
    pub(super) fn shares_with(self, other: Self, own: &Descriptor) -> bool {
        let known = |holder: Self| (holder.process, holder.number);
        sys::seccomp::is_same_file(known(self), known(other))
            .unwrap_or_else(|| other.resembles(own))
    }

    fn resembles(self, other: &Descriptor) -> bool {
        let same = |own: Descriptor| {
            (own.file, own.position, own.mode) == (other.file, other.position, other.mode)
        };
        self.read().is_some_and(same)
    }
}

/// Parses the position and flags of `fdinfo`.
fn parse(text: &str) -> Option<(u64, i32)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((field("pos:")?.parse().ok()?, i32::from_str_radix(field("flags:")?, 8).ok()?))
}

/// Reads all descriptors of a process that are files with positions.
pub(super) fn all_of(process: Pid) -> Vec<(DescriptorId, Descriptor)> {
    let numbers = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holders = numbers.map(|number| DescriptorId { process, number });
    holders.filter_map(|holder| Some((holder, holder.read()?))).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_descriptor_has_the_properties_with_which_it_was_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, [1; 100]).expect("written");
        let mut file = fs::File::open(&path).expect("opened");
        file.read_exact(&mut [0; 60]).expect("read");
        let process = std::process::id().cast_signed();
        let of = |file: &fs::File| DescriptorId { process, number: file.as_raw_fd() };
        let found = of(&file).read().expect("it is open");
        assert_eq!((found.position, found.size, found.mode), (60, 100, Mode::Read));
        assert!(found.closes_on_exec && !found.appends);
        let twin = file.try_clone().expect("a twin");
        let second = fs::OpenOptions::new().append(true).open(&path).expect("opened");
        let third = fs::OpenOptions::new().read(true).write(true).open(&path).expect("opened");
        assert!(of(&second).read().is_some_and(|d| d.appends && d.mode == Mode::Write));
        assert!(of(&third).read().is_some_and(|d| d.mode == Mode::Both && d.file == found.file));
        // Both the kernel's answer and the comparison of properties.
        for same in
            [DescriptorId::shares_with, |a: DescriptorId, b, d: &_| a == b || b.resembles(d)]
        {
            assert!(same(of(&file), of(&twin), &found));
            assert!(!same(of(&file), of(&second), &found) && !same(of(&file), of(&third), &found));
        }
        file.rewind().expect("moved");
        assert_eq!(of(&twin).read().expect("open").position, 0);
        assert!(all_of(process).contains(&(of(&second), of(&second).read().expect("open"))));
        assert_eq!(of(&file).path(), fs::canonicalize(&path).expect("there").display().to_string());
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert_eq!(DescriptorId { process, number: reader.as_raw_fd() }.read(), None);
    }
}
