//! Frames: the unit that is written, checked and lost as a whole. A frame has the records of one group commit.
//!
//! # Layout
//! Little-endian.
//!
//! ```text
//! head:   "SKLG" layout u32, generation u64, checksum u32 of these            20 bytes
//! frame:  "SKFR" number u32, length u32, checksum u32 of number and length,
//!         checksum u32 of the records, then `length` bytes of records         20 bytes and the records
//! ```
//!
//! Frames are numbered from 0. Checksums are CRC-32.
//!
//! # Reading damaged logs
//! If the checksum of a frame's head is right, its length is known: when its records are damaged, only they are left
//! out. If it is wrong, the next whole frame is looked for. A gap in the numbers is damage. Bytes after the last whole
//! frame are a torn tail if the log is the newest one, because a process was killed, or power was lost, while it
//! wrote; in a log that was closed they are damage too.

use std::ops::Range;

use super::MAX_FRAME_BYTES;

/// The version of the layout.
pub(super) const LAYOUT: u32 = 2;

const MAGIC: &[u8; 4] = b"SKLG";

pub(super) const HEAD_BYTES: usize = 20;

const MARK: &[u8; 4] = b"SKFR";

pub(super) const FRAME_HEAD_BYTES: usize = 20;

/// Returns the head of a log.
pub(super) fn head(generation: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(MAGIC);
    head[4..8].copy_from_slice(&LAYOUT.to_le_bytes());
    head[8..16].copy_from_slice(&generation.to_le_bytes());
    let sum = crc32fast::hash(&head[..16]);
    head[16..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Appends a frame to `out`.
pub(super) fn write(number: u32, records: &[u8], out: &mut Vec<u8>) {
    // Never more than `MAX_FRAME_BYTES`.
    let numbers = [number.to_le_bytes(), (records.len() as u32).to_le_bytes()].concat();
    out.extend_from_slice(MARK);
    out.extend_from_slice(&numbers);
    out.extend_from_slice(&crc32fast::hash(&numbers).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(records).to_le_bytes());
    out.extend_from_slice(records);
}

/// The head of a log, as a reader finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It belongs to this generation.
    Of(u64),
    /// The log ends before its head does.
    Torn,
    /// A later version of Skopos wrote the log.
    Newer(u32),
    /// It is not the head of a log.
    Damaged,
}

/// Reads the head of a log.
pub(super) fn read_head(bytes: &[u8]) -> Head {
    let Some(head) = bytes.get(..HEAD_BYTES) else { return Head::Torn };
    let is_whole = crc32fast::hash(&head[..16]) == u32_at(head, 16);
    if &head[..4] != MAGIC || !is_whole {
        return Head::Damaged;
    }
    match u32_at(head, 4) {
        LAYOUT => Head::Of(u64_at(head, 8)),
        layout => Head::Newer(layout),
    }
}

/// The frames of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frames {
    /// Places of the records of whole frames.
    pub(super) whole: Vec<Range<usize>>,
    /// The number of the next frame.
    pub(super) next: u32,
    /// Number of frames that are damaged or missing; those at the end count as one.
    pub(super) lost: u32,
    /// End of the last whole frame.
    pub(super) end: usize,
}

/// Finds the frames of a log with a head. Takes time in proportion to its length, whatever the bytes are.
pub(super) fn find(bytes: &[u8]) -> Frames {
    let mut frames = Frames { end: HEAD_BYTES, ..Frames::default() };
    let mut at = HEAD_BYTES;
    while at < bytes.len() {
        let Some(FrameHead { number, length, sum }) = FrameHead::read(&bytes[at..]) else {
            at += 1;
            continue;
        };
        // Numbers ascend, so a frame of an older log in the same place on disk is not taken for one of this log.
        if number < frames.next {
            at += 1;
            continue;
        }
        let records = at + FRAME_HEAD_BYTES..at + FRAME_HEAD_BYTES + length;
        let Some(found) = bytes.get(records.clone()) else { break };
        at = records.end;
        if crc32fast::hash(found) == sum {
            frames.lost += number - frames.next;
            frames.next = number.saturating_add(1);
            frames.end = records.end;
            frames.whole.push(records);
        }
    }
    let rest = bytes.get(frames.end..).unwrap_or_default();
    let is_beginning = rest.len() < FRAME_HEAD_BYTES
        || FrameHead::read(rest).is_some_and(|head| {
            head.number == frames.next && rest.len() < FRAME_HEAD_BYTES + head.length
        });
    frames.lost += u32::from(!is_beginning);
    frames
}

/// The head of a frame.
pub(super) struct FrameHead {
    pub(super) number: u32,
    pub(super) length: usize,
    /// The checksum of the records.
    pub(super) sum: u32,
}

impl FrameHead {
    /// Reads a head; `None` if it is not whole.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..FRAME_HEAD_BYTES)?;
        let (number, length) = (u32_at(head, 4), u32_at(head, 8) as usize);
        let is_whole = &head[..4] == MARK
            && crc32fast::hash(&head[4..12]) == u32_at(head, 12)
            && length <= MAX_FRAME_BYTES;
        is_whole.then(|| Self { number, length, sum: u32_at(head, 16) })
    }
}

/// Reads a number. The caller has checked the length.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(frames: &[&[u8]]) -> Vec<u8> {
        let mut bytes = head(7).to_vec();
        for (number, records) in frames.iter().enumerate() {
            write(number as u32, records, &mut bytes);
        }
        bytes
    }

    #[test]
    fn each_flipped_bit_of_a_frame_costs_that_frame_and_is_noticed() {
        let records: [&[u8]; 3] = [b"one", b"SKFR and more", b"three"];
        let bytes = log(&records);
        let whole = find(&bytes);
        assert_eq!((whole.whole.len(), whole.next, whole.lost, whole.end), (3, 3, 0, bytes.len()));
        for bit in HEAD_BYTES * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = find(&damaged);
            let is_in = |range: &Range<usize>| {
                range.start - FRAME_HEAD_BYTES <= bit / 8 && bit / 8 < range.end
            };
            let mut expected = whole.whole.clone();
            expected.retain(|range| !is_in(range));
            assert_eq!(found.whole, expected, "bit {bit}");
            assert_eq!(found.lost, 1, "bit {bit}");
        }
    }

    #[test]
    fn each_flipped_bit_of_a_head_is_noticed() {
        let bytes = head(7);
        assert_eq!(read_head(&bytes), Head::Of(7));
        assert_eq!(read_head(&bytes[..19]), Head::Torn);
        for bit in 0..HEAD_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_head(&damaged), Head::Damaged, "bit {bit}");
        }
        let mut newer = bytes;
        newer[4] = 9;
        let sum = crc32fast::hash(&newer[..16]).to_le_bytes();
        newer[16..].copy_from_slice(&sum);
        assert_eq!(read_head(&newer), Head::Newer(9));
    }

    #[test]
    fn a_frame_that_claims_more_than_there_is_ends_the_log() {
        let mut bytes = log(&[b"one"]);
        let end = bytes.len();
        let mut claim = Vec::new();
        write(1, &[0; 100], &mut claim);
        bytes.extend_from_slice(&claim[..60]);
        let found = find(&bytes);
        assert_eq!((found.whole.len(), found.lost, found.end), (1, 0, end), "a torn tail");
    }
}
