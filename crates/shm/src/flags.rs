//! The page of flags that readers raise: the only memory that a reader writes. One word a vertex for
//! those who wait, and one by which readers say what is read, so that the publisher can spare what
//! nobody reads.
//!
//! It is a System V segment and no file, because whoever may write a file may cut it short, and a
//! publisher whose mapping is cut short dies. The worst that a hostile user can do here is to raise
//! flags, which costs wake-ups and polls, and to lower them, which costs a sleeper a tenth of a
//! second.

use crate::layout::{FLAGS_ENTRIES_OFFSET, FLAGS_MAGIC, FLAGS_SEGMENT_OFFSET};
use crate::map::Mapping;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The flags of one segment.
#[derive(Debug)]
pub(crate) struct Flags {
    map: Mapping,
    entries: u32,
}

/// In a vertex's word of marks: somebody read it.
pub(crate) const MARK_READ: u32 = 1;
/// Somebody follows it and wants each change as it comes.
pub(crate) const MARK_FOLLOWED: u32 = 2;

/// [`crate::header::Header::flags_id`] of a segment whose publisher got no page: a kernel without
/// System V memory, or with all of it in use. Its readers look now and then instead of sleeping.
pub(crate) const NO_FLAGS: i32 = -1;

fn bytes(entries: u32) -> usize {
    FLAGS_ENTRIES_OFFSET + 8 * entries as usize
}

impl Flags {
    /// A page for `entries` entries, and its id. `made_at` tells it from a page of another segment
    /// that has got the same id later.
    pub(crate) fn make(entries: u32, made_at: i64, public: bool) -> Option<(Self, i32)> {
        let mode = if public { 0o666 } else { 0o600 };
        let (map, id) = Mapping::make_system_v(bytes(entries), mode).ok()?;
        map.store(0, &FLAGS_MAGIC);
        map.store(8, &made_at.to_le_bytes());
        Some((Self { map, entries }, id))
    }

    /// The page `id`, if it is the one that `owner` made at `made_at` for so many entries, and this
    /// process may write it.
    pub(crate) fn find(id: i32, entries: u32, made_at: i64, owner: u32) -> Option<Self> {
        if id == NO_FLAGS {
            return None;
        }
        let map = Mapping::find_system_v(id, bytes(entries), owner).ok()?;
        let word = |at| map.at::<AtomicU64>(at).map(|w| w.load(Ordering::Relaxed).to_le_bytes());
        let own = word(0) == Some(FLAGS_MAGIC) && word(8) == Some(made_at.to_le_bytes());
        own.then_some(Self { map, entries })
    }

    /// The flag of those who wait for entry `index`, or for any vertex if `None`.
    #[inline]
    pub(crate) fn flag(&self, index: Option<u32>) -> Option<&AtomicU32> {
        self.map.at(match index {
            None => FLAGS_SEGMENT_OFFSET as u64,
            Some(index) => FLAGS_ENTRIES_OFFSET as u64 + 4 * u64::from(index),
        })
    }

    /// The marks of those who read entry `index`.
    #[inline]
    pub(crate) fn marks(&self, index: u32) -> Option<&AtomicU32> {
        let place = u64::from(self.entries) + u64::from(index);
        self.map.at(FLAGS_ENTRIES_OFFSET as u64 + 4 * place)
    }

    /// Says that entry `index` is read. A store only if nobody has said so since the publisher
    /// last looked: readers on many cores share the line.
    #[inline]
    pub(crate) fn mark(&self, index: u32, mark: u32) {
        if let Some(marks) = self.marks(index)
            && marks.load(Ordering::Relaxed) & mark != mark
        {
            marks.fetch_or(mark, Ordering::Relaxed);
        }
    }
}
