//! The start and the end of a job: what a batch system knows about it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::task::ExitType;

/// The most entries of each list or map of a start: nodes, tags, requested resources, details. A job of a large machine
/// has ten thousand nodes.
pub const MAX_DETAILS: usize = 16_384;

/// The longest text of a start or an end: a command line.
const MAX_TEXT_BYTES: usize = 32 * 1024;

/// The longest name by which jobs are found: of a user, a project, an application, a queue, a node or a tag. Indexes of
/// databases have no room for much more.
pub const MAX_FIELD_BYTES: usize = 1024;

/// The metadata of a job at its start. Every field may be empty, if the producer does not know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobStart {
    /// The user that owns the job.
    pub user: String,
    /// The project or account that the job is charged to.
    pub project: String,
    /// The name that the user gave the job.
    pub name: String,
    /// The application, such as `gromacs`: jobs of one application are compared with each other.
    pub application: String,
    /// The partition or queue.
    pub queue: String,
    /// The batch system: `slurm`, `skopos`.
    pub launcher: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The working directory.
    pub folder: String,
    /// The nodes on which the job runs.
    pub nodes: BTreeSet<String>,
    /// Words by which users find the job again.
    pub tags: BTreeSet<String>,
    /// The requested resources by the names of [`RESOURCES`](crate::task::RESOURCES), in their units.
    pub requested: BTreeMap<String, f64>,
    /// Time at which the job was submitted, in seconds of UNIX time.
    pub submit_seconds: Option<f64>,
    /// Time at which the job began, in seconds of UNIX time.
    pub start_seconds: Option<f64>,
    /// Anything else, by name.
    pub details: BTreeMap<String, String>,
}

/// The result of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobEnd {
    /// The state in which the job ended.
    pub state: JobState,
    /// The kind of the end of its first process.
    pub exit_type: Option<ExitType>,
    /// The exit status, if it exited normally.
    pub status: Option<i32>,
    /// The signal that ended it, if any.
    pub signal: Option<i32>,
    /// Time at which the job ended, in seconds of UNIX time.
    pub end_seconds: Option<f64>,
    /// The sums of what the job used, by the names of [`RESOURCES`](crate::task::RESOURCES), in their units.
    pub used: BTreeMap<String, f64>,
}

/// Records of a job that do not exist any more: a line of the job's ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobLoss {
    /// The reason, for people.
    pub why: String,
    /// Number of records.
    pub records: u64,
    /// Time of the first of them, in seconds of UNIX time, if it is known.
    #[serde(default)]
    pub from_seconds: Option<f64>,
    /// Time of the last of them, in seconds of UNIX time, if it is known.
    #[serde(default)]
    pub to_seconds: Option<f64>,
}

/// A change of the words by which users find a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobTags {
    /// Words that are added.
    pub add: BTreeSet<String>,
    /// Words that are removed.
    pub remove: BTreeSet<String>,
}

/// The state of a job.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job has begun and has not ended.
    Running,
    /// The job ended with status zero.
    Completed,
    /// The job ended with another status or by a signal.
    Failed,
    /// A user or an administrator cancelled the job.
    Cancelled,
    /// The job reached its limit on time.
    Timeout,
    /// The job reached its limit on memory.
    OutOfMemory,
    /// A node of the job failed.
    NodeFail,
    /// The batch system took the job's nodes for another one.
    Preempted,
    /// The start of the job has not arrived. No record has this state.
    Orphan,
    /// The result is not known.
    #[default]
    Unknown,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 10] = [
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
        Self::OutOfMemory,
        Self::NodeFail,
        Self::Preempted,
        Self::Orphan,
        Self::Unknown,
    ];

    /// Returns the name, as in records and in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "out_of_memory",
            Self::NodeFail => "node_fail",
            Self::Preempted => "preempted",
            Self::Orphan => "orphan",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the state of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// The reason why the metadata of a job are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// A list or map is too long.
    #[error("`{field}` has {count} entries; at most {MAX_DETAILS} are allowed")]
    Many {
        /// The field.
        field: &'static str,
        /// Number of entries.
        count: usize,
    },
    /// A text is too long.
    #[error("`{field}` has a text of {bytes} bytes; at most {most} are allowed")]
    Long {
        /// The field.
        field: &'static str,
        /// Length of the text.
        bytes: usize,
        /// The longest that is allowed.
        most: usize,
    },
    /// A text that is shown in lists has a control character.
    #[error("`{field}` has a control character")]
    Control {
        /// The field.
        field: &'static str,
    },
    /// A job cannot end in this state: a running job has not ended, and the start of an orphan has not arrived.
    #[error("a job does not end in the state `{0}`")]
    NotAnEnd(&'static str),
    /// A number is not finite.
    #[error("`{field}` has a number that is not finite")]
    NotFinite {
        /// The field.
        field: &'static str,
    },
}

impl JobStart {
    /// Checks that every field is within its bounds.
    ///
    /// # Errors
    /// A list, map or text is too long, or a number is not finite.
    pub fn check(&self) -> Result<(), MetadataError> {
        let texts = [
            ("user", &self.user, MAX_FIELD_BYTES),
            ("project", &self.project, MAX_FIELD_BYTES),
            ("name", &self.name, MAX_TEXT_BYTES),
            ("application", &self.application, MAX_FIELD_BYTES),
            ("queue", &self.queue, MAX_FIELD_BYTES),
            ("launcher", &self.launcher, MAX_TEXT_BYTES),
            ("folder", &self.folder, MAX_TEXT_BYTES),
        ];
        texts.into_iter().try_for_each(|(field, text, most)| check_name(field, text, most))?;
        check_all("command", &self.command)?;
        check_names("nodes", &self.nodes)?;
        check_names("tags", &self.tags)?;
        check_all("requested", self.requested.keys())?;
        check_all("details", self.details.keys())?;
        check_all("details", self.details.values())?;
        check_finite("requested", self.requested.values().copied())?;
        check_finite("submit_seconds", self.submit_seconds)?;
        check_finite("start_seconds", self.start_seconds)
    }
}

impl JobEnd {
    /// Checks that every field is within its bounds.
    ///
    /// # Errors
    /// The state is not one of an end, a map or text is too long, or a number is not finite.
    pub fn check(&self) -> Result<(), MetadataError> {
        if matches!(self.state, JobState::Running | JobState::Orphan) {
            return Err(MetadataError::NotAnEnd(self.state.name()));
        }
        check_all("used", self.used.keys())?;
        check_finite("used", self.used.values().copied())?;
        check_finite("end_seconds", self.end_seconds)
    }
}

impl JobLoss {
    /// Checks that every field is within its bounds.
    ///
    /// # Errors
    /// The reason is too long or has a control character, or a number is not finite.
    pub fn check(&self) -> Result<(), MetadataError> {
        check_name("why", &self.why, MAX_TEXT_BYTES)?;
        check_finite("from_seconds", self.from_seconds)?;
        check_finite("to_seconds", self.to_seconds)
    }
}

impl JobTags {
    /// Checks that every field is within its bounds.
    ///
    /// # Errors
    /// A list or text is too long.
    pub fn check(&self) -> Result<(), MetadataError> {
        check_names("add", &self.add)?;
        check_names("remove", &self.remove)
    }
}

/// Checks a text that is shown in lists.
fn check_name(field: &'static str, text: &str, most: usize) -> Result<(), MetadataError> {
    match text.chars().any(char::is_control) {
        true => Err(MetadataError::Control { field }),
        false => check_text(field, text, most),
    }
}

fn check_text(field: &'static str, text: &str, most: usize) -> Result<(), MetadataError> {
    match text.len() {
        bytes if bytes > most => Err(MetadataError::Long { field, bytes, most }),
        _ => Ok(()),
    }
}

fn check_all<'t>(
    field: &'static str,
    texts: impl IntoIterator<Item = &'t String>,
) -> Result<(), MetadataError> {
    check_each(field, texts, MAX_TEXT_BYTES)
}

/// Checks names by which jobs are found.
fn check_names<'t>(
    field: &'static str,
    names: impl IntoIterator<Item = &'t String>,
) -> Result<(), MetadataError> {
    check_each(field, names, MAX_FIELD_BYTES)
}

fn check_each<'t>(
    field: &'static str,
    texts: impl IntoIterator<Item = &'t String>,
    most: usize,
) -> Result<(), MetadataError> {
    let mut count = 0;
    for text in texts {
        check_text(field, text, most)?;
        count += 1;
    }
    if count > MAX_DETAILS { Err(MetadataError::Many { field, count }) } else { Ok(()) }
}

fn check_finite(
    field: &'static str,
    numbers: impl IntoIterator<Item = f64>,
) -> Result<(), MetadataError> {
    let is_finite = numbers.into_iter().all(f64::is_finite);
    if is_finite { Ok(()) } else { Err(MetadataError::NotFinite { field }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_names_of_their_documents() {
        for state in JobState::ALL {
            let name = serde_json::to_value(state).expect("a document");
            assert_eq!(name, state.name());
            assert_eq!(JobState::of_name(state.name()), Some(state));
        }
        assert_eq!(JobState::of_name("Running"), None);
    }

    #[test]
    fn metadata_out_of_bounds_are_refused() {
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        let check = |change: &dyn Fn(&mut JobStart), expected: Option<MetadataError>| {
            let mut start = JobStart::default();
            change(&mut start);
            assert_eq!(start.check().err(), expected);
        };
        check(&|start| start.user = "ann".to_owned(), None);
        let too_long = |field, most| Some(MetadataError::Long { field, bytes: most + 1, most });
        check(&|start| start.folder.clone_from(&long), too_long("folder", MAX_TEXT_BYTES));
        let name = || "x".repeat(MAX_FIELD_BYTES + 1);
        check(&|start| start.user = name(), too_long("user", MAX_FIELD_BYTES));
        check(&|start| start.tags = [name()].into(), too_long("tags", MAX_FIELD_BYTES));
        check(&|start| start.nodes = [name()].into(), too_long("nodes", MAX_FIELD_BYTES));
        let add = JobTags { add: [name()].into(), ..JobTags::default() };
        assert_eq!(add.check().err(), too_long("add", MAX_FIELD_BYTES));
        let control = MetadataError::Control { field: "application" };
        check(&|start| start.application = "\u{1b}[2J".to_owned(), Some(control));
        let many = MetadataError::Many { field: "tags", count: MAX_DETAILS + 1 };
        check(&|start| start.tags = (0..=MAX_DETAILS).map(|n| n.to_string()).collect(), Some(many));
        let infinite = MetadataError::NotFinite { field: "start_seconds" };
        check(&|start| start.start_seconds = Some(f64::INFINITY), Some(infinite));
        let used = [("cpu_seconds".to_owned(), f64::NAN)].into();
        let end = JobEnd { used, ..JobEnd::default() };
        assert_eq!(end.check(), Err(MetadataError::NotFinite { field: "used" }));
        for state in [JobState::Running, JobState::Orphan] {
            let end = JobEnd { state, ..JobEnd::default() };
            assert_eq!(end.check(), Err(MetadataError::NotAnEnd(state.name())));
        }
    }

    #[test]
    fn an_empty_document_is_a_start_of_which_nothing_is_known() {
        assert_eq!(serde_json::from_str::<JobStart>("{}").expect("a start"), JobStart::default());
        assert_eq!(serde_json::from_str::<JobEnd>("{}").expect("an end").state, JobState::Unknown);
    }
}
