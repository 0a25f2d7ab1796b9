//! The sum of a stream of records, by which a reader knows that it has got all of them.

use crc32fast::Hasher;

use super::part::StoredRecord;

/// Number, bytes and CRC-32 of records, in their order.
///
/// ```
/// use skopos_store::jobs::RecordSum;
///
/// let sum = RecordSum::default();
/// assert_eq!((sum.records(), sum.crc()), (0, 0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RecordSum {
    hasher: Hasher,
    records: u64,
    bytes: u64,
}

impl RecordSum {
    /// Adds a record: its length in eight bytes, little-endian, and its binary form.
    pub fn add(&mut self, record: &StoredRecord) {
        let bytes = record.as_bytes();
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
        self.records += 1;
        self.bytes += bytes.len() as u64;
    }

    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the bytes of their binary forms.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the CRC-32.
    pub fn crc(&self) -> u32 {
        self.hasher.clone().finalize()
    }
}
