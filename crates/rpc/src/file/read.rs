use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::{
    ClockPoint, Counters, Definition, End, FRAME_HEAD_BYTES, FRAME_MAGIC, MAX_PAYLOAD_BYTES, Node,
    Peer, Process, kind,
};
use crate::error::Error;
use crate::pvar::{Binding, PvarClass, PvarInfo};
use crate::record::{RECORD_BYTES, Record};

/// Step in which the buffer of a payload grows: a length from a file is not trusted with more memory at a time.
const GROWTH_BYTES: usize = 256 << 10;

/// One frame of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame<'f> {
    /// The process.
    Process(Process),
    /// The clock for the records from here on.
    Clock(ClockPoint),
    /// A name that later records refer to.
    Definition(Definition),
    /// Records of one thread.
    Records(Records<'f>),
    /// All that the recorder left out so far.
    Counters(Counters),
    /// The end of the trace.
    End(End),
    /// A kind of a newer version.
    Unknown(u32),
}

/// Records of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'f> {
    /// Number of the thread's ring.
    pub thread: u32,
    /// Records of the ring that were lost since the last frame.
    pub lost_before: u64,
    /// The records, 64 bytes each.
    pub bytes: &'f [u8],
}

impl<'f> Records<'f> {
    /// Returns the number of records, also of those that cannot be decoded.
    pub fn len(&self) -> usize {
        self.bytes.len() / RECORD_BYTES
    }

    /// Returns true if there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decodes the records; `None` for a kind of a newer version.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<Record>> + use<'f> {
        self.bytes.as_chunks::<RECORD_BYTES>().0.iter().map(Record::from_bytes)
    }
}

/// The place at which a trace cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tear {
    /// Offset of the first byte that was not read.
    pub at: u64,
    /// Number of bytes from there to the end of the file.
    pub bytes: u64,
    /// The reason.
    pub why: &'static str,
}

/// Reads one part of a trace, frame by frame, up to its end or a tear.
#[derive(Debug)]
pub struct Frames<R = BufReader<File>> {
    source: R,
    path: PathBuf,
    length: u64,
    at: u64,
    payload: Vec<u8>,
    tear: Option<Tear>,
    is_over: bool,
    damaged: u64,
    process: Process,
    has_first: bool,
}

/// A head of a frame, or the reason for which there is none.
enum Head {
    Frame { kind: u32, length: usize, sum: u32 },
    End,
    Torn(&'static str),
}

impl Frames {
    /// Opens the file at `path` and reads its process frame.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::NotATrace`] if the file does not begin with a process frame.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io(path, "cannot open the trace"))?;
        let about = file.metadata().map_err(Error::io(path, "cannot open the trace"))?;
        if !about.is_file() {
            return Err(Error::NotATrace { path: path.into(), why: "not a plain file".to_owned() });
        }
        Self::new(BufReader::with_capacity(GROWTH_BYTES, file), path, about.len())
    }
}

impl<R: Read> Frames<R> {
    /// Reads `length` bytes from `source`; `path` is for errors.
    ///
    /// # Errors
    /// The errors of [`Frames::open`].
    pub fn new(source: R, path: &Path, length: u64) -> Result<Self, Error> {
        let mut frames = Self {
            source,
            path: path.to_path_buf(),
            length,
            at: 0,
            payload: Vec::new(),
            tear: None,
            is_over: false,
            damaged: 0,
            process: Process::default(),
            has_first: false,
        };
        let process = match frames.next_frame()? {
            Some(Frame::Process(process)) => process,
            _ => {
                let why = frames.tear.map_or("it has another first frame", |tear| tear.why);
                return Err(Error::NotATrace { path: frames.path, why: why.to_owned() });
            }
        };
        frames.process = process;
        frames.has_first = true;
        Ok(frames)
    }

    /// Returns the process of the first frame.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the place at which the trace cannot be read on; `None` before, and if it is whole.
    pub fn tear(&self) -> Option<&Tear> {
        self.tear.as_ref()
    }

    /// Returns the number of frames that were whole and could not be decoded; they were passed over.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Returns the next frame; `None` at the end of the file or at a tear. The process frame at the beginning was
    /// read by [`Frames::open`].
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Error> {
        let kind = loop {
            let Some(kind) = self.fill()? else { return Ok(None) };
            if decode(kind, &self.payload).is_some() {
                break kind;
            }
            self.damaged += 1;
        };
        Ok(decode(kind, &self.payload))
    }

    /// Reads the next whole frame into the payload and returns its kind.
    fn fill(&mut self) -> Result<Option<u32>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let failed = Error::io(&self.path, "cannot read the trace");
        let why = match self.read_head().and_then(|head| self.read_payload(head)) {
            Ok(Ok(Some(kind))) => return Ok(Some(kind)),
            Ok(Ok(None)) => None,
            Ok(Err(why)) => Some(why),
            Err(e) => return Err(failed(e)),
        };
        self.is_over = true;
        self.tear =
            why.map(|why| Tear { at: self.at, bytes: self.length.saturating_sub(self.at), why });
        Ok(None)
    }

    fn read_head(&mut self) -> io::Result<Head> {
        let mut head = [0; FRAME_HEAD_BYTES];
        let read = read_up_to(&mut self.source, &mut head)?;
        if read == 0 {
            return Ok(Head::End);
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let length = word(8) as usize;
        Ok(if read < FRAME_HEAD_BYTES {
            Head::Torn("the head of a frame is cut off")
        } else if head[..4] != FRAME_MAGIC {
            Head::Torn("there is no frame")
        } else if length > MAX_PAYLOAD_BYTES {
            Head::Torn("a frame is longer than any frame")
        } else {
            Head::Frame { kind: word(4), length, sum: word(12) }
        })
    }

    fn read_payload(&mut self, head: Head) -> io::Result<Result<Option<u32>, &'static str>> {
        let (kind, length, expected) = match head {
            Head::Frame { kind, length, sum } => (kind, length, sum),
            Head::End => return Ok(Ok(None)),
            Head::Torn(why) => return Ok(Err(why)),
        };
        self.payload.clear();
        while self.payload.len() < length {
            let start = self.payload.len();
            self.payload.resize(length.min(start + GROWTH_BYTES), 0);
            let read = read_up_to(&mut self.source, &mut self.payload[start..])?;
            if start + read < self.payload.len() {
                return Ok(Err("a frame is cut off"));
            }
        }
        let mut sum = crc32fast::Hasher::new();
        sum.update(&kind.to_le_bytes());
        sum.update(&(length as u32).to_le_bytes());
        sum.update(&self.payload);
        if sum.finalize() != expected {
            return Ok(Err("a frame is damaged: its sum is wrong"));
        }
        self.at += (FRAME_HEAD_BYTES + length) as u64;
        Ok(Ok(Some(kind)))
    }
}

/// Reads until `into` is full or the source ends; returns the number of bytes.
fn read_up_to(source: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match source.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(read)
}

/// Decodes a payload; `None` if it is not one of its kind.
fn decode(kind: u32, payload: &[u8]) -> Option<Frame<'_>> {
    let mut fields = Fields(payload);
    Some(match kind {
        kind::PROCESS => Frame::Process(serde_json::from_slice(payload).ok()?),
        kind::COUNTERS => Frame::Counters(serde_json::from_slice(payload).ok()?),
        kind::CLOCK => {
            let (ticks, unix_ns) = (fields.u64()?, fields.u64()?.cast_signed());
            let (ns_per_tick, error_ns) = (f64::from_bits(fields.u64()?), fields.u64()?);
            let is_possible = ns_per_tick.is_finite() && ns_per_tick > 0.0;
            is_possible.then_some(Frame::Clock(ClockPoint {
                ticks,
                unix_ns,
                ns_per_tick,
                error_ns,
            }))?
        }
        kind::NODE | kind::PEER | kind::PVAR => {
            Frame::Definition(Definition::decode(kind, payload)?)
        }
        kind::RECORDS => {
            let (thread, lost_before, bytes) = (fields.u32()?, fields.u64()?, fields.0);
            let is_whole = bytes.len().is_multiple_of(RECORD_BYTES);
            is_whole.then_some(Frame::Records(Records { thread, lost_before, bytes }))?
        }
        kind::END => Frame::End(End::from_code(fields.u8()?)),
        kind => Frame::Unknown(kind),
    })
}

impl Definition {
    /// Decodes the payload of a definition's frame.
    pub(crate) fn decode(kind: u32, payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        Some(match kind {
            kind::NODE => Self::Node(Node {
                id: fields.u32()?,
                parent_hash: fields.u64()?,
                hash: fields.u64()?,
                name: fields.text()?,
            }),
            kind::PEER => Self::Peer(Peer { id: fields.u16()?, name: fields.text()? }),
            kind::PVAR => Self::Pvar(PvarInfo {
                number: fields.u16()?,
                class: PvarClass::from_code(fields.u8()?)?,
                binding: Binding::from_code(fields.u8()?)?,
                name: fields.text()?,
                unit: fields.text()?,
            }),
            _ => return None,
        })
    }
}

/// The rest of a payload.
struct Fields<'p>(&'p [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(str::to_owned)
    }
}
