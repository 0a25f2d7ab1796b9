//! Records: producers and their entries. The core knows their order; the content of an entry is its client's.
//!
//! # Layout
//! Little-endian.
//!
//! ```text
//! 0  producer:    index u32, epoch i64, length u32 and description
//! 1  short entry: index u32, sequence i64, length u8 and content
//! 2  long entry:  index u32, sequence i64, length u32 and content
//! ```
//!
//! The same log describes an index before the first entry with that index.

use skopos_model::ByteReader;

use super::frame::{self, Frames, Head};

/// The most producers of one log: as many as a node can have series, and as many again for those that come and go
/// while the log is written. Bounds the memory that a reader reserves for a damaged log.
pub(crate) const MAX_PRODUCERS: usize = 1 << 20;

const PRODUCER: u8 = 0;
const SHORT: u8 = 1;
const LONG: u8 = 2;

/// A record of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'b> {
    /// An index stands for this producer from here on.
    Producer { index: u32, epoch: i64, description: &'b [u8] },
    /// The producer with this index has this entry.
    Entry { index: u32, sequence: i64, content: &'b [u8] },
}

impl Record<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Producer { index, epoch, description } => {
                out.push(PRODUCER);
                out.extend_from_slice(&index.to_le_bytes());
                out.extend_from_slice(&epoch.to_le_bytes());
                out.extend_from_slice(&(description.len() as u32).to_le_bytes());
                out.extend_from_slice(description);
            }
            Self::Entry { index, sequence, content } => {
                let short = u8::try_from(content.len());
                out.push(if short.is_ok() { SHORT } else { LONG });
                out.extend_from_slice(&index.to_le_bytes());
                out.extend_from_slice(&sequence.to_le_bytes());
                match short {
                    Ok(length) => out.push(length),
                    Err(_) => out.extend_from_slice(&(content.len() as u32).to_le_bytes()),
                }
                out.extend_from_slice(content);
            }
        }
    }
}

fn read<'b>(reader: &mut ByteReader<'b>) -> Option<Record<'b>> {
    let (tag, index, number) = (reader.u8()?, reader.u32()?, reader.i64()?);
    let length = match tag {
        SHORT => usize::from(reader.u8()?),
        PRODUCER | LONG => usize::try_from(reader.u32()?).ok()?,
        _ => return None,
    };
    let bytes = reader.take(length)?;
    Some(match tag {
        PRODUCER => Record::Producer { index, epoch: number, description: bytes },
        _ => Record::Entry { index, sequence: number, content: bytes },
    })
}

/// Reads the records of a frame; `None` if one of them is not whole.
pub(super) fn records_of(frame: &[u8]) -> Option<Vec<Record<'_>>> {
    let mut reader = ByteReader::new(frame);
    let mut records = Vec::new();
    while !reader.is_empty() {
        records.push(read(&mut reader)?);
    }
    Some(records)
}

/// Parts of a log that could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Frames that are damaged or not there, although later ones are.
    pub(crate) frames: u64,
    /// Entries that are whole, and whose producer was described in a lost frame.
    pub(crate) orphans: u64,
    /// Bytes after the last whole frame.
    pub(crate) tail: u64,
}

/// A log that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Number of the next frame.
    pub(super) next: u32,
    /// End of the last whole frame; zero if the log has no whole head.
    pub(super) end: usize,
    pub(crate) losses: Losses,
}

impl Scanned {
    /// Returns true if the log has no frame, and no trace of one but a torn tail.
    pub(crate) fn is_empty(&self) -> bool {
        self.next == 0 && self.losses.frames == 0
    }
}

/// Reasons for which nothing of a log can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotALog {
    /// It does not begin with the head of a log of its generation.
    Damaged,
    /// A later version wrote it, with this layout.
    Newer(u32),
}

/// Passes the records of a log's whole frames to `visit`, in their order. The sequences of each producer ascend.
pub(crate) fn scan(
    bytes: &[u8],
    generation: u64,
    visit: &mut dyn FnMut(Record<'_>),
) -> Result<Scanned, NotALog> {
    match frame::read_head(bytes) {
        Head::Of(found) if found == generation => {}
        Head::Torn => {
            let losses = Losses { tail: bytes.len() as u64, ..Losses::default() };
            return Ok(Scanned { next: 0, end: 0, losses });
        }
        Head::Newer(layout) => return Err(NotALog::Newer(layout)),
        Head::Of(_) | Head::Damaged => return Err(NotALog::Damaged),
    }
    let Frames { whole, next, lost, end } = frame::find(bytes);
    let tail = (bytes.len() - end) as u64;
    let mut losses = Losses { frames: lost.into(), orphans: 0, tail };
    let mut producers = Producers::default();
    for range in whole {
        let Some(records) = records_of(&bytes[range]) else {
            losses.frames += 1;
            continue;
        };
        for record in records {
            match producers.follows(&record) {
                true => visit(record),
                false => losses.orphans += 1,
            }
        }
    }
    Ok(Scanned { next, end, losses })
}

/// The last sequence of each index; `None` outside if the index is not described, inside if it has no entry yet.
#[derive(Default)]
struct Producers(Vec<Option<Option<i64>>>);

impl Producers {
    /// Returns true if a record can follow those before it.
    fn follows(&mut self, record: &Record<'_>) -> bool {
        match record {
            Record::Producer { index, .. } => {
                let at = *index as usize;
                if at >= MAX_PRODUCERS {
                    return false;
                }
                if self.0.len() <= at {
                    self.0.resize(at + 1, None);
                }
                self.0[at] = Some(None);
                true
            }
            Record::Entry { index, sequence, .. } => {
                let Some(Some(last)) = self.0.get_mut(*index as usize) else { return false };
                let is_next = last.is_none_or(|last| last < *sequence);
                if is_next {
                    *last = Some(*sequence);
                }
                is_next
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Capacity, Level, LogWriter};

    fn log(frames: &[&[Record<'_>]]) -> Vec<u8> {
        let mut bytes = frame::head(3).to_vec();
        for (number, records) in frames.iter().enumerate() {
            let mut content = Vec::new();
            records.iter().for_each(|record| record.write(&mut content));
            frame::write(number as u32, &content, &mut bytes);
        }
        bytes
    }

    fn entries(bytes: &[u8]) -> (Vec<(u32, i64, usize)>, Losses) {
        let mut found = Vec::new();
        let scanned = scan(bytes, 3, &mut |record| {
            if let Record::Entry { index, sequence, content } = record {
                found.push((index, sequence, content.len()));
            }
        });
        (found, scanned.expect("a log").losses)
    }

    #[test]
    fn entries_come_back_in_their_order() {
        let (producer, long) =
            (Record::Producer { index: 0, epoch: 1, description: b"a" }, vec![1; 300]);
        let entry = |sequence, content| Record::Entry { index: 0, sequence, content };
        let bytes = log(&[&[producer, entry(1, b"")], &[entry(2, &long), entry(9, b"x")]]);
        assert_eq!(entries(&bytes), (vec![(0, 1, 0), (0, 2, 300), (0, 9, 1)], Losses::default()));
    }

    #[test]
    fn entries_without_producer_and_repeated_ones_are_counted() {
        let producer = Record::Producer { index: 0, epoch: 1, description: b"a" };
        let entry = |index, sequence| Record::Entry { index, sequence, content: b"" };
        let bytes = log(&[&[producer, entry(0, 5), entry(0, 5), entry(0, 4), entry(1, 1)]]);
        let losses = Losses { orphans: 3, ..Losses::default() };
        assert_eq!(entries(&bytes), (vec![(0, 5, 0)], losses));
        let far = Record::Producer { index: u32::MAX, epoch: 1, description: b"" };
        assert_eq!(entries(&log(&[&[far]])).1.orphans, 1);
    }

    #[test]
    fn records_that_a_writer_does_not_write_cost_their_frame() {
        for content in [&[9u8][..], &[SHORT, 0, 0], &[LONG; 17]] {
            let mut bytes = frame::head(3).to_vec();
            frame::write(0, content, &mut bytes);
            assert_eq!(entries(&bytes).1.frames, 1, "{content:?}");
        }
    }

    #[test]
    fn a_writer_refuses_what_a_reader_would_take_for_damage() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        let disk = std::sync::Arc::new(crate::log::OsDisk);
        let capacity = Capacity::new(1 << 20, 4096);
        let mut log = LogWriter::create(disk, path.clone(), 3, capacity).expect("made");
        let (fits, long) = (vec![1; 4096], vec![1; 4097]);
        assert_eq!(log.describe(1, &long), None);
        let index = log.describe(1, b"a").expect("described");
        assert_eq!(log.append(index, 1, &long), None);
        let places: Vec<u64> =
            (1..).map_while(|sequence| log.append(index, sequence, &fits)).collect();
        assert!(places.len() > 10, "{places:?}");
        log.commit(Level::Memory).expect("committed");
        let bytes = std::fs::read(&path).expect("a log");
        let (found, losses) = entries(&bytes);
        assert_eq!((found.len(), losses), (places.len(), Losses::default()));
        let lies_at = |place: &u64| bytes[*place as usize..].starts_with(&fits);
        assert!(places.iter().all(lies_at) && bytes[places[0] as usize - 1] != 1);
    }

    #[test]
    fn a_log_of_another_generation_is_damaged() {
        assert_eq!(scan(&frame::head(4), 3, &mut |_| {}), Err(NotALog::Damaged));
    }
}
