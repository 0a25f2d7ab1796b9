//! The bytes of objects that were read not long ago.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path;

/// Bytes of a chunk. A request takes some milliseconds whatever it reads, and a part of a job lies within one or two
/// chunks.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;

/// The most chunks in memory: the metadata and some parts of a few dozen segments.
const MAX_CHUNKS: usize = 64;

/// Time after which a chunk is read again, so that a check of the whole segment sees the object and not this memory.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Chunks by object and number.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    known: HashMap<(Path, u64), Chunk>,
    uses: u64,
}

#[derive(Debug)]
struct Chunk {
    bytes: Bytes,
    read: Instant,
    used: u64,
}

impl Chunks {
    /// Returns a chunk, if it is known.
    pub(super) fn get(&mut self, key: &Path, number: u64, now: Instant) -> Option<Bytes> {
        self.uses += 1;
        let chunk = self.known.get_mut(&(key.clone(), number))?;
        if now.duration_since(chunk.read) > MAX_AGE {
            return None;
        }
        chunk.used = self.uses;
        Some(chunk.bytes.clone())
    }

    /// Keeps a chunk, and forgets the one that was not used for the longest time if there are too many.
    pub(super) fn insert(&mut self, key: &Path, number: u64, bytes: Bytes, now: Instant) {
        self.uses += 1;
        if self.known.len() >= MAX_CHUNKS
            && let Some((oldest, _)) = self.known.iter().min_by_key(|(_, chunk)| chunk.used)
        {
            let oldest = oldest.clone();
            self.known.remove(&oldest);
        }
        self.known.insert((key.clone(), number), Chunk { bytes, read: now, used: self.uses });
    }

    /// Forgets an object.
    pub(super) fn forget(&mut self, key: &Path) {
        self.known.retain(|(of, _), _| of != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunk_of_longest_disuse_goes_and_old_ones_are_read_again() {
        let (key, now) = (Path::from("a"), Instant::now());
        let mut chunks = Chunks::default();
        for number in 0..MAX_CHUNKS as u64 {
            chunks.insert(&key, number, Bytes::from_static(b"x"), now);
        }
        assert!(chunks.get(&key, 0, now).is_some());
        chunks.insert(&key, 1_000, Bytes::from_static(b"y"), now);
        assert!(chunks.get(&key, 0, now).is_some() && chunks.get(&key, 1, now).is_none());
        assert_eq!(chunks.known.len(), MAX_CHUNKS);
        assert!(chunks.get(&key, 0, now + MAX_AGE + Duration::from_secs(1)).is_none());
        chunks.forget(&key);
        assert!(chunks.known.is_empty());
    }
}
