//! A FUSE server with one file, `image`. The layout of messages is that of `<linux/fuse.h>`, version 7.31, in the
//! byte order of the machine.

use std::fs::File;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::Error;

/// The most bytes of one write, which is also the most of one read that we ask the kernel for.
const MAX_WRITE: u32 = 128 << 10;
/// A message has its bytes and two headers.
const MESSAGE_BYTES: usize = MAX_WRITE as usize + 4096;

const HEADER_BYTES: usize = 40;
const ROOT: u64 = 1;
const IMAGE: u64 = 2;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const ACCESS: u32 = 34;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

/// Flags of INIT: writes of more than a page, and more than 32 pages in a message.
const BIG_WRITES: u32 = 1 << 5;
const MAX_PAGES: u32 = 1 << 22;
/// The kernel keeps no pages of the file: each access comes to the arm.
const DIRECT: u32 = 1;

/// The arm of a disk.
#[derive(Debug)]
pub(super) struct Arm {
    seek_ns: Arc<AtomicU64>,
    bytes_per_second: Option<f64>,
    at: u64,
    seeks: Arc<AtomicU64>,
}

impl Arm {
    pub(super) fn new(
        seek_ns: Arc<AtomicU64>,
        rate_mb: Option<f64>,
        seeks: Arc<AtomicU64>,
    ) -> Self {
        let bytes_per_second = rate_mb.map(|rate| rate * 1e6).filter(|rate| *rate > 0.0);
        Self { seek_ns, bytes_per_second, at: 0, seeks }
    }

    /// Waits as long as the disk takes.
    fn access(&mut self, offset: u64, bytes: usize) {
        let mut time = Duration::ZERO;
        if offset != self.at {
            time += Duration::from_nanos(self.seek_ns.load(Ordering::Relaxed));
            self.seeks.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(rate) = self.bytes_per_second {
            time += Duration::from_secs_f64(bytes as f64 / rate);
        }
        self.at = offset.saturating_add(bytes as u64);
        thread::sleep(time);
    }
}

/// The server.
pub(super) struct Server {
    device: File,
    image: File,
    bytes: u64,
    arm: Arm,
}

/// The answer to a message: an error number, or content.
type Answer = Result<Vec<u8>, i32>;

impl Server {
    pub(super) fn new(device: File, image: File, arm: Arm) -> Result<Self, Error> {
        let bytes = image.metadata().map_err(Error::system("stat an image"))?.len();
        Ok(Self { device, image, bytes, arm })
    }

    /// Serves until the file system is unmounted.
    pub(super) fn serve(mut self) {
        let mut message = vec![0; MESSAGE_BYTES];
        loop {
            match (&self.device).read(&mut message) {
                Ok(bytes) => {
                    if self.handle(&message[..bytes]).is_err() {
                        return;
                    }
                }
                // A request that was withdrawn before it was read.
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::ENOENT | libc::EINTR | libc::EAGAIN)
                    ) => {}
                // ENODEV: unmounted.
                Err(_) => return,
            }
        }
    }

    /// Answers one message.
    fn handle(&mut self, message: &[u8]) -> io::Result<()> {
        let Some((operation, unique, node)) = header(message) else { return Ok(()) };
        if matches!(operation, FORGET | BATCH_FORGET | INTERRUPT) {
            return Ok(());
        }
        let answer = self.answer(operation, node, &message[HEADER_BYTES..]);
        let (error, content) = match &answer {
            Ok(content) => (0, &content[..]),
            Err(error) => (-error, &[][..]),
        };
        let mut head = Vec::with_capacity(16);
        head.extend((16 + content.len() as u32).to_ne_bytes());
        head.extend(error.to_ne_bytes());
        head.extend(unique.to_ne_bytes());
        match (&self.device).write_vectored(&[IoSlice::new(&head), IoSlice::new(content)]) {
            // The program that asked is gone.
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => Err(e),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, operation: u32, node: u64, content: &[u8]) -> Answer {
        match operation {
            INIT => init(content),
            LOOKUP if node == ROOT && content == b"image\0" => Ok(self.entry()),
            LOOKUP => Err(libc::ENOENT),
            GETATTR | SETATTR => Ok([&[0; 16][..], &self.attributes(node)].concat()),
            OPEN => Ok(opened(DIRECT)),
            OPENDIR => Ok(opened(0)),
            READ => self.read(content),
            WRITE => self.write(content),
            STATFS => Ok(vec![0; 80]),
            FLUSH | FSYNC | RELEASE | RELEASEDIR | ACCESS | READDIR | DESTROY => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        }
    }

    fn read(&mut self, content: &[u8]) -> Answer {
        let (offset, wanted) = place(content)?;
        let bytes =
            (wanted as u64).min(self.bytes.saturating_sub(offset)).min(u64::from(MAX_WRITE));
        self.arm.access(offset, bytes as usize);
        let mut read = vec![0; bytes as usize];
        self.image.read_exact_at(&mut read, offset).map_err(number)?;
        Ok(read)
    }

    fn write(&mut self, content: &[u8]) -> Answer {
        let (offset, bytes) = place(content)?;
        let data = content.get(40..).and_then(|data| data.get(..bytes)).ok_or(libc::EINVAL)?;
        if offset.checked_add(bytes as u64).is_none_or(|end| end > self.bytes) {
            return Err(libc::ENOSPC);
        }
        self.arm.access(offset, bytes);
        self.image.write_all_at(data, offset).map_err(number)?;
        Ok([bytes as u32, 0].map(u32::to_ne_bytes).concat())
    }

    /// `fuse_entry_out` of the image.
    fn entry(&self) -> Vec<u8> {
        let mut entry = IMAGE.to_ne_bytes().to_vec();
        entry.extend([0; 32]);
        entry.extend(self.attributes(IMAGE));
        entry
    }

    /// `fuse_attr`.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) = if node == ROOT {
            (0, libc::S_IFDIR | 0o700)
        } else {
            (self.bytes, libc::S_IFREG | 0o600)
        };
        let long = [node, size, size / 512, 0, 0, 0].map(u64::to_ne_bytes).concat();
        // Times, mode, links, user, group, device, size of a block, flags.
        let short = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat();
        [long, short].concat()
    }
}

/// Returns operation, number and node of a message.
fn header(message: &[u8]) -> Option<(u32, u64, u64)> {
    message.get(..HEADER_BYTES)?;
    Some((word(message, 4)?, long(message, 8)?, long(message, 16)?))
}

/// Returns offset and length of a read or write.
fn place(content: &[u8]) -> Result<(u64, usize), i32> {
    let offset = long(content, 8).ok_or(libc::EINVAL)?;
    let bytes = word(content, 16).ok_or(libc::EINVAL)?;
    Ok((offset, bytes as usize))
}

/// `fuse_init_out`.
fn init(content: &[u8]) -> Answer {
    let (major, readahead, flags) = (word(content, 0), word(content, 8), word(content, 12));
    let (Some(7), Some(readahead), Some(flags)) = (major, readahead, flags) else {
        return Err(libc::EPROTO);
    };
    let mut answer =
        [7u32, 31, readahead, flags & (BIG_WRITES | MAX_PAGES)].map(u32::to_ne_bytes).concat();
    // Requests in the background, and when there are many of them.
    answer.extend([16u16, 12].map(u16::to_ne_bytes).concat());
    answer.extend([MAX_WRITE, 1].map(u32::to_ne_bytes).concat());
    // Pages in a message, alignment.
    answer.extend([(MAX_WRITE / 4096) as u16, 0].map(u16::to_ne_bytes).concat());
    answer.extend([0; 32]);
    Ok(answer)
}

/// `fuse_open_out`.
fn opened(flags: u32) -> Vec<u8> {
    [0, 0, flags, 0].map(u32::to_ne_bytes).concat()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}
