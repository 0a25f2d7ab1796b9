//! A kernel file that stays open and is read from its start again and again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::Skip;

/// The first size of a buffer; grown by doubling when a file turns out to be longer.
const FIRST_BUFFER_BYTES: usize = 4096;

/// The most that one kernel file may hold: `/proc/interrupts` of a machine with 1,024 cores is
/// about 4 MB. A file that is longer gives an error instead of eating the memory.
const MAX_FILE_BYTES: usize = 16 << 20;

/// A file of procfs or sysfs, kept open, with its own buffer.
pub(crate) struct KernelFile {
    file: File,
    buffer: Vec<u8>,
}

impl KernelFile {
    /// Opens `path` for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: Vec::new() })
    }

    /// Opens `path`, or says that `what` is skipped because the file cannot be had.
    pub(crate) fn open_or_skip(path: &Path, what: &str) -> Result<Self, Skip> {
        Self::open(path).map_err(|e| Skip::new(what, format!("{}: {e}", path.display())))
    }

    /// The whole content as it is now. Allocates only when the file has outgrown the buffer.
    pub(crate) fn read(&mut self) -> io::Result<&[u8]> {
        if self.buffer.is_empty() {
            self.buffer.resize(FIRST_BUFFER_BYTES, 0);
        }
        let mut len = 0;
        loop {
            if len == self.buffer.len() {
                if len >= MAX_FILE_BYTES {
                    return Err(io::Error::new(
                        io::ErrorKind::FileTooLarge,
                        format!("the file holds more than {MAX_FILE_BYTES} bytes"),
                    ));
                }
                self.buffer.resize(len * 2, 0);
            }
            match self.file.read_at(&mut self.buffer[len..], len as u64) {
                Ok(0) => return Ok(&self.buffer[..len]),
                Ok(n) => len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}
