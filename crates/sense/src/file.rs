//! A kernel file that stays open and is read from its start again and again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::parse;
use crate::sensor::Skip;

/// The first size of a buffer. It is doubled whenever a file turns out to be longer.
const FIRST_BUFFER_BYTES: usize = 4096;

/// The largest kernel file that is read: `/proc/interrupts` of a machine with 1,024 cores is about
/// 4 MB. A longer file is an error and does not use up the memory.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The size up to which the buffer of a file that is read in pieces grows if reads fill it. The kernel
/// itself returns less at a time: a page, or a line that is longer.
const MAX_PIECE_BYTES: usize = 64 << 10;

/// A read shorter than this has reached the end of the file, so the call that would only return 0
/// is saved. The kernel's `seq_file` stops before its buffer of a page is full only if the next
/// line does not fit into the rest. A line that follows others is longer than half a page only if
/// those are too.
const HALF_A_PAGE_BYTES: usize = 2048;

/// A file of procfs or sysfs that stays open, with its own buffer.
pub(crate) struct KernelFile {
    file: File,
    buffer: Vec<u8>,
    /// Length of the content at the last read.
    len: usize,
}

impl KernelFile {
    /// Opens `path` for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: Vec::new(), len: 0 })
    }

    /// Opens `path`. If that fails, returns a skip of `what` with the reason.
    pub(crate) fn open_or_skip(path: &Path, what: &str) -> Result<Self, Skip> {
        Self::open(path).map_err(|e| Skip::new(what, format!("{}: {e}", path.display())))
    }

    /// Returns the whole content as it is now. Allocates only when the file has outgrown the
    /// buffer.
    pub(crate) fn read(&mut self) -> io::Result<&[u8]> {
        read_until(&self.file, &mut self.buffer, |len, _| len < HALF_A_PAGE_BYTES)
    }

    /// Reads a file that the kernel makes in one go; see [`read_record`].
    pub(crate) fn read_record(&mut self) -> io::Result<&[u8]> {
        self.len = 0;
        self.len = read_record(&self.file, &mut self.buffer)?.len();
        Ok(self.last())
    }

    /// Returns the content at the last [`read_record`](Self::read_record).
    pub(crate) fn last(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Passes each line of a file of many records to `take`, without its line feed. The buffer
    /// holds a piece of the file, so a long file takes little memory. A last line without a line
    /// feed is left out, as it was cut off.
    pub(crate) fn read_lines(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let Self { file, buffer, .. } = self;
        if buffer.is_empty() {
            buffer.resize(FIRST_BUFFER_BYTES, 0);
        }
        let (mut read, mut kept) = (0, 0);
        loop {
            if kept == buffer.len() {
                buffer.resize(kept * 2, 0);
            }
            if read >= MAX_FILE_BYTES {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
            let new = match file.read_at(&mut buffer[kept..], read as u64) {
                Ok(0) => return Ok(()),
                Ok(new) => new,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            read += new;
            let is_full = kept + new == buffer.len();
            let text = &buffer[..kept + new];
            let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
            parse::lines(&text[..whole]).for_each(&mut take);
            buffer.copy_within(whole..kept + new, 0);
            kept = kept + new - whole;
            if is_full && buffer.len() < MAX_PIECE_BYTES {
                buffer.resize(buffer.len() * 2, 0);
            }
        }
    }
}

impl AsFd for KernelFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns the whole content of a `file` that the kernel makes in one go: every file in sysfs and
/// cgroup, and those of procfs that it shows with `single_open` (`stat`, `meminfo`, `net/snmp`). A
/// read of such a file that leaves room in the buffer was the last one, which saves the system call
/// that would only return 0. A file of many records may stop short of a full buffer and go on.
pub(crate) fn read_record<'b>(file: &File, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    read_until(file, buffer, |_, room_left| room_left > 0)
}

fn read_until<'b>(
    file: &File,
    buffer: &'b mut Vec<u8>,
    is_last: impl Fn(usize, usize) -> bool,
) -> io::Result<&'b [u8]> {
    if buffer.is_empty() {
        buffer.resize(FIRST_BUFFER_BYTES, 0);
    }
    let mut len = 0;
    loop {
        if len == buffer.len() {
            if len >= MAX_FILE_BYTES {
                return Err(io::Error::from(io::ErrorKind::FileTooLarge));
            }
            buffer.resize(len * 2, 0);
        }
        match file.read_at(&mut buffer[len..], len as u64) {
            Ok(0) => return Ok(&buffer[..len]),
            Ok(n) => {
                len += n;
                if is_last(len, buffer.len() - len) {
                    return Ok(&buffer[..len]);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
