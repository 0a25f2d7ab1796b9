//! Parts: pieces of a job that are sealed at once.

use skopos_model::job::{JobId, JobRecord};

/// A record that owns its bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StoredRecord(Box<[u8]>);

impl StoredRecord {
    /// Copies a record.
    pub fn of(record: &JobRecord<'_>) -> Self {
        let mut bytes = Vec::with_capacity(32 + record.job.len() + record.content.len());
        record.write(&mut bytes);
        Self(bytes.into())
    }

    /// Reads the binary form; `None` if the bytes are not one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        JobRecord::read(bytes).map(|_| Self(bytes.into()))
    }

    /// Returns the record; `None` never happens.
    pub fn get(&self) -> Option<JobRecord<'_>> {
        JobRecord::read(&self.0)
    }

    /// Returns the binary form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for StoredRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// The last record of a producer that a part may contain.
///
/// All records of the part's job that the producer sent up to this one are in this part or in an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The producer's name.
    pub producer: String,
    /// The run of the producer, in which its sequences ascend.
    pub epoch: i64,
    /// The sequence of the record.
    pub sequence: i64,
}

/// A piece of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPart {
    /// The job.
    pub id: JobId,
    /// The number of the part in its job, from zero on.
    pub number: u32,
    /// The records, in the order in which they arrived.
    pub records: Vec<StoredRecord>,
    /// The last record of each producer of these records.
    pub marks: Vec<Mark>,
}

/// The place of a part.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct PartRef {
    /// The number of the part in its job.
    pub number: u32,
    /// The name of the segment that has it.
    pub segment: String,
    /// Number of its rows.
    pub rows: u64,
}
