//! The messages of downloads of jobs, which the listener and the client share. `docs/reference/flight.md` has their form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skopos_hub::jobs::{OfJob, Wanted};

/// The version of the messages.
pub const VERSION: u32 = 1;

/// The location of Flight for the hub that was asked.
pub const SAME_HUB: &str = "arrow-flight-reuse-connection://?";

/// The command of a descriptor that asks where jobs lie. One of `jobs` and `where` is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacesCommand {
    /// The version.
    pub skopos_jobs: u32,
    /// The jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobName>,
    /// A condition on the table `jobs`.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The records that are wanted; all by default.
    #[serde(default)]
    pub records: Wanted,
    /// The last job of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<JobName>,
    /// True if the client takes whole segments as files, for all records of their jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub segments: bool,
    /// True if the client takes such a file also if it wants some kinds of records, and leaves out the others itself. The file of a
    /// segment is sent if at least half of its records are wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filters: bool,
    /// True if the client takes an answer that lacks parts of the site's jobs, and reads which ones in
    /// [`PlacesMetadata::missing`]. Without it such an answer is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobName {
    /// The id that the batch system gave the job.
    pub job: String,
    /// The number of the job's run; every run if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

/// The metadata of an answer about places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacesMetadata {
    /// The site that answers.
    pub site: String,
    /// Number of jobs in this answer.
    pub jobs: u64,
    /// The last of these jobs, if others follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<JobName>,
    /// Parts of the site's jobs that this answer lacks, for people: copies of the jobs of hubs that are away, and parts that the
    /// statement with the condition could not read. Empty if the command has no `partial`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Addresses of other sites, by name. The client asks them itself, with its rights there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sites: BTreeMap<String, String>,
}

/// The metadata of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointMetadata {
    /// Number of records, before the conditions on them.
    pub records: u64,
    /// True if they never change.
    pub sealed: bool,
    /// The jobs with their parts.
    pub jobs: Vec<OfJob>,
    /// The file of a segment that has these parts and no others. It is sent as it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<FileMetadata>,
}

/// The file of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMetadata {
    /// The name, which has a checksum of the metadata in the file.
    pub name: String,
    /// The length.
    pub bytes: u64,
}

/// The metadata of the last message of a download.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    /// Number of records.
    pub records: u64,
    /// CRC-32 of the records, in hexadecimal.
    pub crc: String,
}
