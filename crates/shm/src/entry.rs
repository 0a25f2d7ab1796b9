//! Directory entries: one writer changes an entry while readers read it.

use skopos_model::{Kind, Timestamp, Topic, Unit, ValueType};

use crate::layout::{ENTRY_REGISTERED, Entry, MAX_BYTE_RING_BYTES, MAX_SLOTS};
use crate::ring::Place;
use crate::sync::{AcquireLoad as _, AtomicU64, Ordering, fence};

/// Attempts of a reader at an entry that is being changed.
const READ_ATTEMPTS: u32 = 1000;

/// The description of a vertex in its directory entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Registered {
    pub(crate) version: u32,
    pub(crate) place: Place,
    pub(crate) value_type: ValueType,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) topic: Topic,
    pub(crate) group: u32,
    pub(crate) registered_at: Timestamp,
}

/// Returns the value of a vertex's `owner` word for entry `index` in this version.
pub(crate) fn owner(index: u32, version: u32) -> u64 {
    (u64::from(index) + 1) << 32 | u64::from(version)
}

/// Changes the entry to `registered` (except its version), or to free. Returns the new version. The
/// caller ensures that there is one writer at a time.
pub(crate) fn write(entry: &Entry, registered: Option<&Registered>) -> u32 {
    let version = entry.version.load(Ordering::Relaxed);
    entry.version.store(version.wrapping_add(1), Ordering::Relaxed);
    // SYNC: pairs with the Acquire fence in `read`: a reader that sees any field changed sees the
    // version changed too.
    fence(Ordering::Release);
    match registered {
        None => entry.state.store(0, Ordering::Relaxed),
        Some(r) => {
            entry.vertex_offset.store(r.place.offset, Ordering::Relaxed);
            entry.slots.store(r.place.slots, Ordering::Relaxed);
            entry.byte_ring_bytes.store(r.place.byte_ring_bytes, Ordering::Relaxed);
            let (unit, topic) = (r.unit.as_str(), r.topic.as_str());
            let traits = [r.value_type.code(), r.kind.code(), unit.len() as u8, topic.len() as u8];
            entry.traits.store(u32::from_le_bytes(traits), Ordering::Relaxed);
            entry.group.store(r.group, Ordering::Relaxed);
            store_text(&entry.unit, unit);
            store_text(&entry.topic, topic);
            entry.registered_at.store(r.registered_at.as_nanos(), Ordering::Relaxed);
            entry.state.store(ENTRY_REGISTERED, Ordering::Relaxed);
        }
    }
    let settled = version.wrapping_add(2);
    // SYNC: pairs with the Acquire load of the version in `read`.
    entry.version.store(settled, Ordering::Release);
    settled
}

/// Reads a complete entry; `None` if it is free, is being changed all the time, or is invalid.
pub(crate) fn read(entry: &Entry) -> Option<Registered> {
    (0..READ_ATTEMPTS).find_map(|_| read_once(entry)).flatten()
}

/// Makes one attempt: `None` if the entry was being changed, `Some(None)` if it is free or invalid.
pub(crate) fn read_once(entry: &Entry) -> Option<Option<Registered>> {
    // SYNC: pairs with the Release store of the version in `write`.
    let version = entry.version.load_acquire();
    let registered = decode(entry, version);
    // SYNC: pairs with the Release fence in `write`.
    fence(Ordering::Acquire);
    let settled = version.is_multiple_of(2) && entry.version.load(Ordering::Relaxed) == version;
    settled.then_some(registered)
}

fn decode(entry: &Entry, version: u32) -> Option<Registered> {
    if entry.state.load(Ordering::Relaxed) != ENTRY_REGISTERED {
        return None;
    }
    let [value_type, kind, unit_len, topic_len] =
        entry.traits.load(Ordering::Relaxed).to_le_bytes();
    let value_type = ValueType::from_code(value_type)?;
    let place = Place {
        offset: entry.vertex_offset.load(Ordering::Relaxed),
        slots: entry.slots.load(Ordering::Relaxed),
        byte_ring_bytes: entry.byte_ring_bytes.load(Ordering::Relaxed),
    };
    let ring_fits = place.slots.is_power_of_two() && place.slots <= MAX_SLOTS;
    let bytes_fit = match value_type {
        ValueType::Structured => {
            place.byte_ring_bytes.is_power_of_two()
                && (8..=MAX_BYTE_RING_BYTES).contains(&place.byte_ring_bytes)
        }
        _ => place.byte_ring_bytes == 0,
    };
    if !ring_fits || !bytes_fit {
        return None;
    }
    let mut text = [0; 256];
    Some(Registered {
        version,
        place,
        value_type,
        kind: Kind::from_code(kind)?,
        unit: Unit::new(load_text(&entry.unit, unit_len, &mut text)?).ok()?,
        topic: Topic::new(load_text(&entry.topic, topic_len, &mut text)?).ok()?,
        group: entry.group.load(Ordering::Relaxed),
        registered_at: Timestamp::from_nanos(entry.registered_at.load(Ordering::Relaxed)),
    })
}

/// Returns true if the entry is registered under `topic`; cheaper than [`read`].
pub(crate) fn has_topic(entry: &Entry, topic: &str) -> bool {
    let mut text = [0; 256];
    let [.., len] = entry.traits.load(Ordering::Relaxed).to_le_bytes();
    usize::from(len) == topic.len()
        && entry.state.load(Ordering::Relaxed) == ENTRY_REGISTERED
        && load_text(&entry.topic, len, &mut text) == Some(topic)
}

fn store_text(words: &[AtomicU64], text: &str) {
    let mut chunks = text.as_bytes().chunks(8);
    for word in words {
        let mut bytes = [0; 8];
        if let Some(chunk) = chunks.next() {
            bytes[..chunk.len()].copy_from_slice(chunk);
        }
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

fn load_text<'t>(words: &[AtomicU64], len: u8, into: &'t mut [u8; 256]) -> Option<&'t str> {
    let len = usize::from(len);
    for (chunk, word) in into.chunks_exact_mut(8).zip(words).take(len.div_ceil(8)) {
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    if len > words.len() * 8 {
        return None;
    }
    std::str::from_utf8(&into[..len]).ok()
}
