//! The directory of a segment: lookups that return vertices.

use std::os::unix::fs::MetadataExt as _;

use skopos_model::Topic;

use crate::entry::{self, Registered};
use crate::error::Error;
use crate::layout::{ENTRY_BYTES, Entry};
use crate::segment::{Segment, VertexInfo};
use crate::sync::{AcquireLoad as _, Ordering};
use crate::vertex::Vertex;

/// The unit of a file's number of blocks, on every Linux file system.
const BLOCK_BYTES: u64 = 512;

impl Segment {
    fn entries(&self) -> &[Entry] {
        let header = &self.shared.header;
        // SYNC: pairs with the Release in `OwnSegment::register`.
        let len = self.live().directory_len.load_acquire().min(header.directory_capacity);
        let len = self.reserved_entries(len);
        self.shared.map.slice(header.directory_offset, len as usize).unwrap_or_default()
    }

    /// Returns `len`, or fewer entries if the file does not have the memory for so many: a publisher reserves it
    /// before it counts an entry. Reading on would give memory to a file that has none, up to its whole length.
    fn reserved_entries(&self, len: u32) -> u32 {
        let known = self.shared.reserved_entries.load(Ordering::Relaxed);
        if len <= known {
            return len;
        }
        let bytes = self.shared.file.metadata().map_or(0, |about| about.blocks() * BLOCK_BYTES);
        let entries = u32::try_from(bytes / ENTRY_BYTES as u64).unwrap_or(u32::MAX);
        self.shared.reserved_entries.store(entries, Ordering::Relaxed);
        len.min(entries)
    }

    /// Returns every vertex that is registered now.
    pub fn vertices(&self) -> Vec<Vertex> {
        (0..self.entries().len()).filter_map(|index| self.vertex_at(index)).collect()
    }

    /// Returns the vertex of `topic`.
    ///
    /// # Errors
    /// [`Error::NoVertex`].
    pub fn find(&self, topic: &Topic) -> Result<Vertex, Error> {
        self.entries()
            .iter()
            .position(|e| entry::has_topic(e, topic.as_str()))
            .and_then(|index| self.vertex_at(index))
            .filter(|vertex| vertex.topic() == topic)
            .ok_or_else(|| Error::NoVertex(topic.clone()))
    }

    fn vertex_at(&self, index: usize) -> Option<Vertex> {
        let registered = entry::read(self.entries().get(index)?)?;
        if registered.place.offset < self.shared.header.heap_offset {
            return None;
        }
        let Registered { version, place, value_type, kind, unit, topic, group, registered_at } =
            registered;
        let index = u32::try_from(index).ok()?;
        let info = VertexInfo {
            topic,
            value_type,
            kind,
            unit,
            group: self.group_name(group).unwrap_or_default(),
            slots: place.slots,
            registered_at,
        };
        Vertex::new(self.clone(), info, (index, group), place, entry::owner(index, version))
    }

    fn group_name(&self, id: u32) -> Option<String> {
        let header = &self.shared.header;
        // SYNC: pairs with the Release store in `OwnSegment::add_group`.
        let groups = self.live().groups_len.load_acquire().min(header.groups_capacity);
        if id == 0 || id >= groups {
            return None;
        }
        let group = self.shared.map.group(header.groups_offset, id)?;
        let bytes: Vec<u8> =
            group.name.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        let len = group.name_len.load(Ordering::Relaxed) as usize;
        String::from_utf8(bytes.get(..len)?.to_vec()).ok()
    }
}
