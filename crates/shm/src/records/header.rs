//! The fixed part of the header of a recorder's segment: decoded and checked once.

use crate::dir;
use crate::header::Refusal;
use crate::layout::{FIXED_BYTES, HEADER_BYTES, MAX_FILE_BYTES, MAX_NAME_BYTES};
use crate::process::Identity;
use crate::records::layout::{
    HEADS_OFFSET, MAX_RING_RECORDS, MAX_RINGS, MAX_SERVICE_NAME_BYTES, MIN_RING_RECORDS,
    RECORDS_MAGIC, RECORDS_VERSION, RING_HEAD_BYTES, SLOT_BYTES,
};

/// The fixed fields after their check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordsHeader {
    pub(crate) rings: u32,
    pub(crate) ring_records: u32,
    pub(crate) definitions_bytes: u64,
    pub(crate) process: Identity,
    pub(crate) uid: u32,
    pub(crate) created_at: i64,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) drains_itself: bool,
}

impl RecordsHeader {
    /// Returns the start of the definitions.
    pub(crate) fn definitions_offset(&self) -> u64 {
        HEADS_OFFSET + u64::from(self.rings) * RING_HEAD_BYTES
    }

    /// Returns the start of the slots of ring `ring`.
    pub(crate) fn slots_offset(&self, ring: u32) -> u64 {
        let first = self.definitions_offset() + self.definitions_bytes;
        first.next_multiple_of(4096) + u64::from(ring) * self.ring_bytes()
    }

    /// Returns the offset of the head of ring `ring`.
    pub(crate) fn head_offset(ring: u32) -> u64 {
        HEADS_OFFSET + u64::from(ring) * RING_HEAD_BYTES
    }

    /// Returns the length of the slots of a ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        u64::from(self.ring_records) * SLOT_BYTES
    }

    /// Returns the length of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.slots_offset(self.rings)
    }

    pub(crate) fn encode(&self) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &RECORDS_MAGIC);
        put(8, &RECORDS_VERSION.to_le_bytes());
        put(12, &(HEADER_BYTES as u32).to_le_bytes());
        put(16, &self.file_bytes().to_le_bytes());
        put(24, &self.rings.to_le_bytes());
        put(28, &self.ring_records.to_le_bytes());
        put(32, &self.definitions_offset().to_le_bytes());
        put(40, &self.definitions_bytes.to_le_bytes());
        put(48, &self.slots_offset(0).to_le_bytes());
        put(64, &self.process.boot_id);
        put(80, &self.process.pid.to_le_bytes());
        put(84, &self.uid.to_le_bytes());
        put(88, &self.process.start_ticks.to_le_bytes());
        put(96, &self.created_at.to_le_bytes());
        put(104, &(self.name.len() as u32).to_le_bytes());
        put(108, &(self.node.len() as u32).to_le_bytes());
        put(112, self.name.as_bytes());
        put(176, self.node.as_bytes());
        put(240, &u32::from(self.drains_itself).to_le_bytes());
        put(248, &self.process.pid_namespace.to_le_bytes());
        bytes
    }

    /// Decodes and checks every field against the file's real length.
    pub(crate) fn decode(bytes: &[u8; FIXED_BYTES], file_len: u64) -> Result<Self, Refusal> {
        let damaged = |why: &str| Err(Refusal::Damaged(why.to_owned()));
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if bytes[..8] != RECORDS_MAGIC {
            return damaged("wrong magic");
        }
        if u32_at(8) != RECORDS_VERSION {
            return Err(Refusal::Version(u32_at(8)));
        }
        let header = Self {
            rings: u32_at(24),
            ring_records: u32_at(28),
            definitions_bytes: u64_at(40),
            process: Identity {
                boot_id: std::array::from_fn(|i| bytes[64 + i]),
                pid: u32_at(80),
                pid_namespace: u64_at(248),
                start_ticks: u64_at(88),
            },
            uid: u32_at(84),
            created_at: u64_at(96).cast_signed(),
            name: service_name(text_at(bytes, 112, u32_at(104))?)?,
            node: text_at(bytes, 176, u32_at(108))?,
            drains_itself: u32_at(240) != 0,
        };
        let rings_fit = (1..=MAX_RINGS).contains(&header.rings)
            && (MIN_RING_RECORDS..=MAX_RING_RECORDS).contains(&header.ring_records)
            && header.ring_records.is_power_of_two();
        if !rings_fit || header.definitions_bytes > MAX_FILE_BYTES {
            return damaged("its rings have lengths that no recorder makes");
        }
        let places = [16, 32, 48].map(u64_at);
        if places != [header.file_bytes(), header.definitions_offset(), header.slots_offset(0)]
            || !header.definitions_bytes.is_multiple_of(8)
        {
            return damaged("its regions lie elsewhere than their lengths say");
        }
        if header.file_bytes() > file_len.min(MAX_FILE_BYTES) {
            return damaged("truncated, or longer than any segment");
        }
        Ok(header)
    }
}

/// Refuses a name that no recorder has: it becomes a part of the names of files.
fn service_name(name: String) -> Result<String, Refusal> {
    let is_one = name.len() <= MAX_SERVICE_NAME_BYTES && dir::check_name(&name).is_ok();
    let damaged =
        || Refusal::Damaged("the name of its service is not that of a recorder".to_owned());
    if is_one { Ok(name) } else { Err(damaged()) }
}

/// Returns the ASCII text of `len` bytes at `at`.
fn text_at(bytes: &[u8; FIXED_BYTES], at: usize, len: u32) -> Result<String, Refusal> {
    let text = usize::try_from(len)
        .ok()
        .filter(|&len| len <= MAX_NAME_BYTES)
        .and_then(|len| std::str::from_utf8(&bytes[at..at + len]).ok())
        .filter(|text| text.bytes().all(|b| b.is_ascii_graphic()));
    text.map(str::to_owned).ok_or_else(|| Refusal::Damaged("a name is not text".to_owned()))
}
