//! The page of flags: the only memory that a reader writes. Each vertex has one word for waiters and one
//! word of marks, by which readers tell the publisher that they read the vertex. The publisher can then
//! poll unread vertices less often.
//!
//! The page is a System V segment and not a file: a process that may write a file may also truncate it,
//! and a publisher dies when it touches a truncated mapping. The worst that a hostile user can do here is
//! to raise flags, which costs wake-ups and polls, and to lower them, which delays a sleeper by a tenth
//! of a second.

use crate::layout::{FLAGS_ENTRIES_OFFSET, FLAGS_MAGIC, FLAGS_SEGMENT_OFFSET, Marks};
use crate::map::{Mapping, Pinned};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The flags of one segment.
#[derive(Debug)]
pub(crate) struct Flags {
    map: Mapping,
    entries: u32,
}

/// The `flags_id` in the header of a segment without a page of flags: the kernel has no System V memory,
/// or all of it is in use. Its readers poll instead of sleeping.
pub(crate) const NO_FLAGS: i32 = -1;

fn flag_offset(index: Option<u32>) -> u64 {
    match index {
        None => FLAGS_SEGMENT_OFFSET as u64,
        Some(index) => FLAGS_ENTRIES_OFFSET as u64 + 4 * u64::from(index),
    }
}

fn bytes(entries: u32) -> usize {
    FLAGS_ENTRIES_OFFSET + 8 * entries as usize
}

impl Flags {
    /// Makes a page for `entries` entries, and returns it with its id. `made_at` distinguishes it from a
    /// page of another segment that later gets the same id.
    pub(crate) fn make(entries: u32, made_at: i64, public: bool) -> Option<(Self, i32)> {
        let mode = if public { 0o666 } else { 0o600 };
        let (map, id) = Mapping::make_system_v(bytes(entries), mode).ok()?;
        map.store(0, &FLAGS_MAGIC);
        map.store(8, &made_at.to_le_bytes());
        Some((Self { map, entries }, id))
    }

    /// Attaches page `id` if `owner` made it at `made_at` for `entries` entries, and this process may
    /// write it.
    pub(crate) fn find(id: i32, entries: u32, made_at: i64, owner: u32) -> Option<Self> {
        if id == NO_FLAGS {
            return None;
        }
        let map = Mapping::find_system_v(id, bytes(entries), owner).ok()?;
        let word = |at| map.at::<AtomicU64>(at).map(|w| w.load(Ordering::Relaxed).to_le_bytes());
        let own = word(0) == Some(FLAGS_MAGIC) && word(8) == Some(made_at.to_le_bytes());
        own.then_some(Self { map, entries })
    }

    /// Returns the flag of waiters for entry `index`, or for any vertex if `None`.
    #[inline]
    pub(crate) fn flag(&self, index: Option<u32>) -> Option<&AtomicU32> {
        self.map.at(flag_offset(index))
    }

    /// Returns a flag of waiters with its memory.
    pub(crate) fn pin_flag(&self, index: Option<u32>) -> Option<Pinned<AtomicU32>> {
        self.map.pin(flag_offset(index))
    }

    /// Returns the marks of entry `index`.
    #[inline]
    pub(crate) fn marks(&self, index: u32) -> Option<&Marks> {
        self.map.at(self.marks_offset(index))
    }

    /// Returns the marks of entry `index` with their memory.
    pub(crate) fn pin_marks(&self, index: u32) -> Option<Pinned<Marks>> {
        self.map.pin(self.marks_offset(index))
    }

    fn marks_offset(&self, index: u32) -> u64 {
        let place = u64::from(self.entries) + u64::from(index);
        FLAGS_ENTRIES_OFFSET as u64 + 4 * place
    }
}
