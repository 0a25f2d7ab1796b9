//! Frames of a trace file: each has a magic number, a kind, a length and a checksum. A file is read up to the first
//! frame that is not whole.

use std::io::{self, Read};

/// The first word of each frame: `SKTF`.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"SKTF");
/// The longest payload. A greater length is damage.
pub(crate) const MAX_PAYLOAD: usize = 16 << 20;
/// The bytes before a payload.
pub(crate) const HEADER_BYTES: usize = 16;

/// The process that wrote the file, as JSON.
pub(crate) const PROCESS: u32 = 1;
/// The relation of ticks to nanoseconds.
pub(crate) const CLOCK: u32 = 2;
/// A node of the call tree.
pub(crate) const NODE: u32 = 3;
/// The name of a peer.
pub(crate) const PEER: u32 = 4;
/// A performance variable.
pub(crate) const PVAR: u32 = 5;
/// Records.
pub(crate) const RECORDS: u32 = 6;
/// The end of the trace.
pub(crate) const END: u32 = 7;

/// The sum over kind, length and payload.
pub(crate) fn checksum(kind: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind.to_le_bytes());
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// The outcome of reading a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A whole frame of this kind; the payload is in the buffer.
    Whole(u32),
    /// The end of the file, after a whole frame.
    End,
    /// Bytes that are not a whole frame. Nothing behind them is read.
    Torn,
}

/// Reads the next frame into `payload`, which grows no faster than bytes arrive.
///
/// # Errors
/// The error of the reader, except for an end within a frame, which is [`Frame::Torn`].
pub(crate) fn next(reader: &mut dyn Read, payload: &mut Vec<u8>) -> io::Result<Frame> {
    let mut header = [0; HEADER_BYTES];
    match fill(reader, &mut header)? {
        0 => return Ok(Frame::End),
        HEADER_BYTES => {}
        _ => return Ok(Frame::Torn),
    }
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[4 * at + byte]));
    let (kind, length) = (word(1), word(2) as usize);
    if word(0) != MAGIC || length > MAX_PAYLOAD {
        return Ok(Frame::Torn);
    }
    payload.clear();
    reader.take(length as u64).read_to_end(payload)?;
    match payload.len() == length && checksum(kind, payload) == word(3) {
        true => Ok(Frame::Whole(kind)),
        false => Ok(Frame::Torn),
    }
}

fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < buffer.len() {
        match reader.read(&mut buffer[at..]) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

/// Appends a frame to `file`.
pub(crate) fn append(file: &mut Vec<u8>, kind: u32, payload: &[u8]) {
    let words = [MAGIC, kind, payload.len() as u32, checksum(kind, payload)];
    words.iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
    file.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back_and_every_flipped_bit_is_a_tear() {
        let mut file = Vec::new();
        append(&mut file, NODE, b"payload");
        let mut payload = Vec::new();
        assert_eq!(next(&mut file.as_slice(), &mut payload).unwrap(), Frame::Whole(NODE));
        assert_eq!(payload, b"payload");
        for bit in 0..file.len() * 8 {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(next(&mut bad.as_slice(), &mut payload).unwrap(), Frame::Torn, "{bit}");
        }
        for length in 1..file.len() {
            assert_eq!(next(&mut &file[..length], &mut payload).unwrap(), Frame::Torn);
        }
    }
}
