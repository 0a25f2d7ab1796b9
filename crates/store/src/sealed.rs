//! Sealed files: Parquet files with checksums, which parts of history and segments of jobs share. Every byte is covered,
//! and every byte that is read is checked.
//!
//! The rows come first, in blocks of [`BLOCK_BYTES`], the last one shorter; the metadata of the file have a CRC-32 of
//! each block. What follows is the tail: indexes and metadata of Parquet. The name of the file has the length of the
//! tail, and a CRC-32 of the tail and of the rest of the name.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use crc32fast::Hasher;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::log::{DiskFile, Error, io_at};

/// The key of the checksums in the metadata of a file.
pub(crate) const KEY: &str = "skopos.blocks";

/// Bytes of a block: no longer than most pages, so that reading a page checks little else.
const BLOCK_BYTES: usize = 16 * 1024;

/// Hexadecimal digits of a CRC-32.
const DIGITS: usize = 8;

/// The checksums of the blocks of some bytes, which come piece by piece.
#[derive(Default)]
pub(crate) struct BlockSums {
    ended: Vec<u32>,
    /// The block that is not full yet.
    current: Hasher,
    current_bytes: usize,
}

impl BlockSums {
    /// Adds the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while self.current_bytes + rest.len() >= BLOCK_BYTES {
            let (block, after) = rest.split_at(BLOCK_BYTES - self.current_bytes);
            self.current.update(block);
            self.end_block();
            rest = after;
        }
        self.current.update(rest);
        self.current_bytes += rest.len();
    }

    /// Ends the last block. Returns the checksums.
    pub(crate) fn finish(mut self) -> Vec<u32> {
        if self.current_bytes > 0 {
            self.end_block();
        }
        self.ended
    }

    fn end_block(&mut self) {
        self.ended.push(std::mem::take(&mut self.current).finalize());
        self.current_bytes = 0;
    }
}

/// Writes a file, and computes the checksums of its blocks.
pub(crate) struct SummedWriter {
    file: Box<dyn DiskFile>,
    length: u64,
    blocks: BlockSums,
    /// The place at which the tail begins, and its checksum so far, once it has begun.
    tail: Option<(u64, Hasher)>,
}

impl SummedWriter {
    pub(crate) fn new(file: Box<dyn DiskFile>) -> Self {
        Self { file, length: 0, blocks: BlockSums::default(), tail: None }
    }

    /// Returns the bytes that were written.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Ends the blocks, and returns their checksums as a text. What is written from here on is the tail.
    pub(crate) fn begin_tail(&mut self) -> String {
        self.tail = Some((self.length, Hasher::new()));
        let sums = std::mem::take(&mut self.blocks).finish();
        sums.iter().map(|sum| format!("{sum:08x}")).collect()
    }

    /// Syncs the file. Returns the length of the tail, and its checksum with `name`.
    pub(crate) fn finish(self, name: impl FnOnce(u64) -> Vec<u8>) -> io::Result<(u64, u32)> {
        self.file.sync()?;
        let (at, mut sum) = self.tail.unwrap_or_else(|| (self.length, Hasher::new()));
        let tail = self.length - at;
        sum.update(&name(tail));
        Ok((tail, sum.finalize()))
    }
}

impl Write for SummedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        match &mut self.tail {
            Some((_, sum)) => sum.update(bytes),
            None => self.blocks.update(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the tail of a file with the length and the checksum that its name has; `None` if it is another one.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn tail(
    file: &dyn DiskFile,
    (length, sum): (u64, u32),
    name: &[u8],
) -> io::Result<Option<Tail>> {
    let Some(at) = file.length()?.checked_sub(length) else { return Ok(None) };
    // Not longer than the file.
    let mut bytes = vec![0; length as usize];
    file.read_at(&mut bytes, at)?;
    let mut hasher = Hasher::new();
    hasher.update(&bytes);
    hasher.update(name);
    Ok((hasher.finalize() == sum).then(|| Tail { bytes: bytes.into(), at }))
}

/// The tail of a file, for the reader of its metadata.
pub(crate) struct Tail {
    pub(crate) bytes: Bytes,
    /// The place in the file at which it begins.
    pub(crate) at: u64,
}

impl Tail {
    fn range(&self, start: u64, length: usize) -> Option<Range<usize>> {
        let start = usize::try_from(start.checked_sub(self.at)?).ok()?;
        let end = start.checked_add(length)?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

impl Length for Tail {
    fn len(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

impl ChunkReader for Tail {
    type T = io::Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let range = self.range(start, 0).ok_or_else(outside)?;
        Ok(io::Cursor::new(self.bytes.slice(range.start..)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.range(start, length).map(|range| self.bytes.slice(range)).ok_or_else(outside)
    }
}

fn wrong_sum(block: u64) -> ParquetError {
    let place = block * BLOCK_BYTES as u64;
    ParquetError::General(format!("the checksum of the bytes from {place} on is wrong"))
}

fn invalid(e: ParquetError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

fn outside() -> ParquetError {
    ParquetError::General("its metadata refer to bytes that are not there".to_owned())
}

/// The rows of a file. Blocks are checked whenever they are read.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    file: Arc<dyn DiskFile>,
    sums: Arc<[u32]>,
    /// Bytes of all blocks.
    length: u64,
}

impl Blocks {
    /// Takes the checksums from a text; `None` if they are not those of `length` bytes.
    pub(crate) fn new(file: Arc<dyn DiskFile>, sums: &str, length: u64) -> Option<Self> {
        let digits = sums.as_bytes().chunks(DIGITS);
        let sum = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let sums: Option<Arc<[u32]>> = digits.map(sum).collect();
        let sums = sums.filter(|sums| sums.len() as u64 == length.div_ceil(BLOCK_BYTES as u64))?;
        Some(Self { file, sums, length })
    }

    /// Checks every block.
    ///
    /// # Errors
    /// A block is damaged, or it cannot be read.
    pub(crate) fn check(&self) -> Result<(), ParquetError> {
        let mut at = 0;
        while at < self.length {
            let bytes = (self.length - at).min(1 << 20);
            self.read(at..at + bytes)?;
            at += bytes;
        }
        Ok(())
    }

    /// Compares the checksums of bytes that were written with those that the blocks must have.
    ///
    /// # Errors
    /// A block is another one.
    pub(crate) fn compare(&self, sums: &[u32]) -> Result<(), ParquetError> {
        let mut numbers = 0..self.sums.len().max(sums.len());
        match numbers.find(|at| self.sums.get(*at) != sums.get(*at)) {
            Some(other) => Err(wrong_sum(other as u64)),
            None => Ok(()),
        }
    }

    /// Reads the blocks that have some of these bytes, and returns these bytes.
    fn read(&self, wanted: Range<u64>) -> Result<Bytes, ParquetError> {
        if wanted.end > self.length || wanted.start > wanted.end {
            return Err(outside());
        }
        let block = BLOCK_BYTES as u64;
        let from = wanted.start / block * block;
        let to = wanted.end.next_multiple_of(block).min(self.length);
        // Not longer than the file.
        let mut bytes = vec![0; (to - from) as usize];
        let read = self.file.read_at(&mut bytes, from);
        read.map_err(|e| ParquetError::External(Box::new(e)))?;
        for (at, content) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let number = from / block + at as u64;
            let sum = usize::try_from(number).ok().and_then(|number| self.sums.get(number));
            if sum != Some(&crc32fast::hash(content)) {
                return Err(wrong_sum(number));
            }
        }
        let skipped = (wanted.start - from) as usize;
        let length = (wanted.end - wanted.start) as usize;
        Ok(Bytes::from(bytes).slice(skipped..skipped + length))
    }
}

impl Length for Blocks {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Blocks {
    type T = BlockReader;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BlockReader { blocks: self.clone(), at: start, current: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(length as u64).ok_or_else(outside)?;
        self.read(start..end)
    }
}

/// Reads blocks one after the other.
pub(crate) struct BlockReader {
    blocks: Blocks,
    /// The place at which the next block begins.
    at: u64,
    current: Bytes,
}

impl Read for BlockReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.current.is_empty() {
            let end = (self.at + 1).next_multiple_of(BLOCK_BYTES as u64).min(self.blocks.length);
            if self.at >= end {
                return Ok(0);
            }
            self.current = self.blocks.read(self.at..end).map_err(invalid)?;
            self.at = end;
        }
        let count = out.len().min(self.current.len());
        out[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}

/// Returns the error of a file that cannot be written, for example because the disk is full. It is never damage: its
/// source is whole.
pub(crate) fn unwritten(path: &Path, error: ParquetError) -> Error {
    let source = match error {
        ParquetError::External(cause) => {
            cause.downcast::<io::Error>().map_or_else(io::Error::other, |source| *source)
        }
        other => io::Error::other(other),
    };
    io_at(path, "it cannot be written")(source)
}

/// Returns the error of a file that Parquet cannot read.
pub(crate) fn failed(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(source) if is_damage(&source) => Error::damaged(path, &source),
            Ok(source) => io_at(path, "it cannot be read")(*source),
            Err(cause) => Error::damaged(path, &cause),
        },
        other => Error::damaged(path, &other),
    }
}

/// Returns true if an error means that a file has other content than it had.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
