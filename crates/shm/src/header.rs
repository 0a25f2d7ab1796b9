//! The fixed part of a segment's header: written once, decoded and checked once, never read again. The
//! decoder takes bytes, so that tests and fuzzers can feed it any input.

use crate::layout::{
    ENTRY_BYTES, FIXED_BYTES, GROUP_BYTES, HEADER_BYTES, LAYOUT_VERSION, MAGIC, MAX_FILE_BYTES,
    MAX_NAME_BYTES,
};
use crate::process::Identity;

/// The fixed fields after their check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) file_bytes: u64,
    pub(crate) groups_offset: u64,
    pub(crate) groups_capacity: u32,
    pub(crate) directory_offset: u64,
    pub(crate) directory_capacity: u32,
    pub(crate) heap_offset: u64,
    pub(crate) publisher: Identity,
    pub(crate) uid: u32,
    pub(crate) created_at: i64,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) flags_id: i32,
    /// True if waiters make the fence that the publisher leaves out.
    pub(crate) is_quick: bool,
}

/// The reason for which bytes are not a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The layout has another version.
    Version(u32),
    /// Any other reason, in words.
    Damaged(String),
}

fn u32_at(bytes: &[u8; FIXED_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8; FIXED_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &LAYOUT_VERSION.to_le_bytes());
        put(12, &(HEADER_BYTES as u32).to_le_bytes());
        put(16, &self.file_bytes.to_le_bytes());
        put(24, &self.groups_offset.to_le_bytes());
        put(32, &self.groups_capacity.to_le_bytes());
        put(36, &(GROUP_BYTES as u32).to_le_bytes());
        put(40, &self.directory_offset.to_le_bytes());
        put(48, &self.directory_capacity.to_le_bytes());
        put(52, &(ENTRY_BYTES as u32).to_le_bytes());
        put(56, &self.heap_offset.to_le_bytes());
        put(64, &self.publisher.boot_id);
        put(80, &self.publisher.pid.to_le_bytes());
        put(84, &self.uid.to_le_bytes());
        put(88, &self.publisher.start_ticks.to_le_bytes());
        put(96, &self.created_at.to_le_bytes());
        put(104, &(self.name.len() as u32).to_le_bytes());
        put(108, &(self.node.len() as u32).to_le_bytes());
        put(112, self.name.as_bytes());
        put(176, self.node.as_bytes());
        put(240, &self.flags_id.to_le_bytes());
        put(244, &u32::from(self.is_quick).to_le_bytes());
        put(248, &self.publisher.pid_namespace.to_le_bytes());
        bytes
    }

    /// Decodes and checks every field against the file's real length.
    pub(crate) fn decode(bytes: &[u8; FIXED_BYTES], file_len: u64) -> Result<Self, Refusal> {
        let damaged = |why: &str| Err(Refusal::Damaged(why.to_owned()));
        if bytes[..8] != MAGIC {
            return damaged("wrong magic");
        }
        let version = u32_at(bytes, 8);
        if version != LAYOUT_VERSION {
            return Err(Refusal::Version(version));
        }
        if u32_at(bytes, 12) != HEADER_BYTES as u32
            || u32_at(bytes, 36) != GROUP_BYTES as u32
            || u32_at(bytes, 52) != ENTRY_BYTES as u32
        {
            return damaged("record lengths of another layout");
        }
        let header = Self {
            file_bytes: u64_at(bytes, 16),
            groups_offset: u64_at(bytes, 24),
            groups_capacity: u32_at(bytes, 32),
            directory_offset: u64_at(bytes, 40),
            directory_capacity: u32_at(bytes, 48),
            heap_offset: u64_at(bytes, 56),
            publisher: Identity {
                boot_id: std::array::from_fn(|i| bytes[64 + i]),
                pid: u32_at(bytes, 80),
                pid_namespace: u64_at(bytes, 248),
                start_ticks: u64_at(bytes, 88),
            },
            uid: u32_at(bytes, 84),
            created_at: u64_at(bytes, 96).cast_signed(),
            name: name_at(bytes, 112, u32_at(bytes, 104))?,
            node: name_at(bytes, 176, u32_at(bytes, 108))?,
            flags_id: u32_at(bytes, 240).cast_signed(),
            is_quick: u32_at(bytes, 244) != 0,
        };
        header.check(file_len)?;
        Ok(header)
    }

    fn check(&self, file_len: u64) -> Result<(), Refusal> {
        let damaged = |why: String| Err(Refusal::Damaged(why));
        if self.file_bytes > file_len {
            return damaged(format!(
                "truncated: the header says {} bytes, the file has {file_len}",
                self.file_bytes
            ));
        }
        if self.file_bytes > MAX_FILE_BYTES {
            return damaged(format!("{} bytes; the maximum is {MAX_FILE_BYTES}", self.file_bytes));
        }
        // The regions are in order, and each ends before the next begins. Lengths are u32 times a
        // constant, so the products fit; the sums are checked.
        let groups_bytes = u64::from(self.groups_capacity) * GROUP_BYTES as u64;
        let directory_bytes = u64::from(self.directory_capacity) * ENTRY_BYTES as u64;
        let in_order = self.groups_offset >= HEADER_BYTES as u64
            && self.groups_offset.is_multiple_of(GROUP_BYTES as u64)
            && self
                .groups_offset
                .checked_add(groups_bytes)
                .is_some_and(|end| end <= self.directory_offset)
            && self.directory_offset.is_multiple_of(64)
            && self
                .directory_offset
                .checked_add(directory_bytes)
                .is_some_and(|end| end <= self.heap_offset)
            && self.heap_offset.is_multiple_of(64)
            && self.heap_offset <= self.file_bytes;
        if in_order { Ok(()) } else { damaged("its regions overlap or exceed the file".to_owned()) }
    }
}

/// Returns the ASCII text of `len` bytes at `at`.
fn name_at(bytes: &[u8; FIXED_BYTES], at: usize, len: u32) -> Result<String, Refusal> {
    let text = usize::try_from(len)
        .ok()
        .filter(|&len| len <= MAX_NAME_BYTES)
        .and_then(|len| std::str::from_utf8(&bytes[at..at + len]).ok())
        .filter(|text| text.bytes().all(|b| b.is_ascii_graphic()));
    text.map(str::to_owned).ok_or_else(|| Refusal::Damaged("a name is not text".to_owned()))
}
