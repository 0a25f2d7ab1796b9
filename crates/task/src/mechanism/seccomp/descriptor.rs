//! A descriptor of a process, as `/proc/PID/fd` and `/proc/PID/fdinfo` show it.

use std::fs;
use std::os::fd::RawFd;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use crate::sys::{self, Pid};

/// Which file: device, inode, time of birth. An inode that is free again becomes another file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
    born: (i64, u32),
}

/// What a file is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
    /// The position does not tell which.
    Both,
}

/// A descriptor of a file that has positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) file: FileId,
    pub(super) mode: Mode,
    /// Its position is the end of the file, whoever wrote that.
    pub(super) appends: bool,
    pub(super) closes_on_exec: bool,
    pub(super) position: u64,
    pub(super) size: u64,
}

/// One descriptor of one process. A thread of it may stand for the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DescriptorId {
    pub(super) process: Pid,
    pub(super) number: RawFd,
}

impl DescriptorId {
    /// What it is, if it is a file with positions.
    pub(super) fn look(self) -> Option<Descriptor> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let place = format!("/proc/{}/fd/{}", self.process, self.number);
        // Nobody is asked who may have to ask the task: a file system that it serves itself.
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

    /// The name of its file.
    pub(super) fn path(self) -> String {
        let place = format!("/proc/{}/fd/{}", self.process, self.number);
        let path = fs::read_link(place).unwrap_or_default();
        let path = path.to_string_lossy();
        path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
    }

    /// True if both are of one open file, with one position. `own` is what this one is. A kernel that
    /// may not be asked leaves a guess: all that is known of both is the same.
    pub(super) fn shares_with(self, other: Self, own: &Descriptor) -> bool {
        let known = |holder: Self| (holder.process, holder.number);
        sys::seccomp::is_same_file(known(self), known(other))
            .unwrap_or_else(|| other.looks_like(own))
    }

    fn looks_like(self, other: &Descriptor) -> bool {
        let same = |own: Descriptor| {
            (own.file, own.position, own.mode) == (other.file, other.position, other.mode)
        };
        self.look().is_some_and(same)
    }
}

/// The position and flags in the text of `fdinfo`.
fn parse(text: &str) -> Option<(u64, i32)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((field("pos:")?.parse().ok()?, i32::from_str_radix(field("flags:")?, 8).ok()?))
}

/// All descriptors of a process that are files with positions.
pub(super) fn all_of(process: Pid) -> Vec<(DescriptorId, Descriptor)> {
    let numbers = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holders = numbers.map(|number| DescriptorId { process, number });
    holders.filter_map(|holder| Some((holder, holder.look()?))).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_descriptor_is_as_it_was_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, [1; 100]).expect("written");
        let mut file = fs::File::open(&path).expect("opened");
        file.read_exact(&mut [0; 60]).expect("read");
        let process = std::process::id().cast_signed();
        let of = |file: &fs::File| DescriptorId { process, number: file.as_raw_fd() };
        let found = of(&file).look().expect("it is open");
        assert_eq!((found.position, found.size, found.mode), (60, 100, Mode::Read));
        assert!(found.closes_on_exec && !found.appends);
        let twin = file.try_clone().expect("a twin");
        let second = fs::OpenOptions::new().append(true).open(&path).expect("opened");
        let third = fs::OpenOptions::new().read(true).write(true).open(&path).expect("opened");
        assert!(of(&second).look().is_some_and(|d| d.appends && d.mode == Mode::Write));
        assert!(of(&third).look().is_some_and(|d| d.mode == Mode::Both && d.file == found.file));
        // What the kernel says, and what is guessed where it may not be asked.
        for same in
            [DescriptorId::shares_with, |a: DescriptorId, b, d: &_| a == b || b.looks_like(d)]
        {
            assert!(same(of(&file), of(&twin), &found));
            assert!(!same(of(&file), of(&second), &found) && !same(of(&file), of(&third), &found));
        }
        file.rewind().expect("moved");
        assert_eq!(of(&twin).look().expect("open").position, 0);
        assert!(all_of(process).contains(&(of(&second), of(&second).look().expect("open"))));
        assert_eq!(of(&file).path(), fs::canonicalize(&path).expect("there").display().to_string());
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert_eq!(DescriptorId { process, number: reader.as_raw_fd() }.look(), None);
    }
}
