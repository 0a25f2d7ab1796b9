use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{
    ClockPoint, Counters, Definition, End, FRAME_HEAD_BYTES, FRAME_MAGIC, MAX_PAYLOAD_BYTES,
    Process, kind,
};
use crate::error::Error;
use crate::record::RECORD_BYTES;
use crate::text::cut;

/// Bytes that are collected before they are written: a system call for a thousand records.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes one part of a trace.
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    written: u64,
}

impl TraceWriter {
    /// Makes the file at `path`, which only this user may read, and writes the process frame.
    ///
    /// # Errors
    /// [`Error::Io`], also if the file exists.
    pub fn create(path: &Path, process: &Process) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(Error::io(path, "cannot create the trace"))?;
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut writer = Self { path: path.to_path_buf(), file, buffer, written: 0 };
        writer.process(process)?;
        Ok(writer)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the part so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes the description of the process.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn process(&mut self, process: &Process) -> Result<(), Error> {
        self.json(kind::PROCESS, process)
    }

    /// Writes the counters.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn counters(&mut self, counters: &Counters) -> Result<(), Error> {
        self.json(kind::COUNTERS, counters)
    }

    fn json(&mut self, kind: u32, value: &impl serde::Serialize) -> Result<(), Error> {
        let json = serde_json::to_vec(value)
            .map_err(|e| Error::io(&self.path, "cannot write the trace")(io::Error::other(e)))?;
        self.frame(kind, &[&json])
    }

    /// Writes the clock that holds from here on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clock(&mut self, clock: &ClockPoint) -> Result<(), Error> {
        let parts = [
            clock.ticks.to_le_bytes(),
            clock.unix_ns.to_le_bytes(),
            clock.ns_per_tick.to_bits().to_le_bytes(),
            clock.error_ns.to_le_bytes(),
        ];
        self.frame(kind::CLOCK, &[parts.as_flattened()])
    }

    /// Writes a name that later records refer to.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn define(&mut self, definition: &Definition) -> Result<(), Error> {
        let (kind, payload) = definition.encode();
        self.frame(kind, &[&payload])
    }

    /// Writes records of one thread: `records` is a multiple of 64 bytes, and before them `lost_before` records of the
    /// thread were lost since the last frame.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn records(&mut self, thread: u32, lost_before: u64, records: &[u8]) -> Result<(), Error> {
        debug_assert!(records.len().is_multiple_of(RECORD_BYTES));
        let mut lost = lost_before;
        let longest = (MAX_PAYLOAD_BYTES - 12) / RECORD_BYTES * RECORD_BYTES;
        for part in records.chunks(longest) {
            self.frame(kind::RECORDS, &[&thread.to_le_bytes(), &lost.to_le_bytes(), part])?;
            lost = 0;
        }
        if records.is_empty() && lost > 0 {
            self.frame(kind::RECORDS, &[&thread.to_le_bytes(), &lost.to_le_bytes()])?;
        }
        Ok(())
    }

    /// Writes the end and everything that was collected.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn end(&mut self, end: End) -> Result<(), Error> {
        self.frame(kind::END, &[&[end.code()]])?;
        self.flush()
    }

    /// Writes everything that was collected.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        let result = self.file.write_all(&self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        result.map_err(Error::io(&self.path, "cannot write the trace"))
    }

    /// Writes a frame whose payload is `parts`, one behind the other.
    pub(crate) fn frame(&mut self, kind: u32, parts: &[&[u8]]) -> Result<(), Error> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > MAX_PAYLOAD_BYTES {
            let source = io::Error::from(io::ErrorKind::FileTooLarge);
            return Err(Error::io(&self.path, "a frame is too long")(source));
        }
        let (kind, length) = (kind.to_le_bytes(), (len as u32).to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&kind);
        sum.update(&length);
        parts.iter().for_each(|part| sum.update(part));
        if self.buffer.len() + len + FRAME_HEAD_BYTES > BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(&FRAME_MAGIC);
        self.buffer.extend_from_slice(&kind);
        self.buffer.extend_from_slice(&length);
        self.buffer.extend_from_slice(&sum.finalize().to_le_bytes());
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        Ok(())
    }
}

impl Definition {
    /// Encodes the definition: kind and payload of its frame.
    pub(crate) fn encode(&self) -> (u32, Vec<u8>) {
        let mut payload = Vec::new();
        let kind = match self {
            Self::Node(node) => {
                payload.extend_from_slice(&node.id.to_le_bytes());
                payload.extend_from_slice(&node.parent_hash.to_le_bytes());
                payload.extend_from_slice(&node.hash.to_le_bytes());
                put_text(&mut payload, &node.name);
                kind::NODE
            }
            Self::Peer(peer) => {
                payload.extend_from_slice(&peer.id.to_le_bytes());
                put_text(&mut payload, &peer.name);
                kind::PEER
            }
            Self::Pvar(info) => {
                payload.extend_from_slice(&info.number.to_le_bytes());
                payload.extend_from_slice(&[info.class as u8, info.binding as u8]);
                put_text(&mut payload, &info.name);
                put_text(&mut payload, &info.unit);
                kind::PVAR
            }
        };
        (kind, payload)
    }
}

fn put_text(payload: &mut Vec<u8>, text: &str) {
    let text = cut(text, usize::from(u16::MAX));
    payload.extend_from_slice(&(text.len() as u16).to_le_bytes());
    payload.extend_from_slice(text.as_bytes());
}
