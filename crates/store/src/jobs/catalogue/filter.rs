//! The questions: conditions on jobs, and the jobs that the caller may see.

use std::collections::BTreeSet;

use skopos_model::Timestamp;
use skopos_model::job::JobState;
use skopos_model::task::{ExitType, Resource};

use super::words::{self, Word};

/// The most entries of each list of a filter: more than a person types.
pub const MAX_CONDITIONS: usize = 32;

/// The most projects that one user leads. A lead of more is support staff.
pub const MAX_LED: usize = 1024;

/// The longest text of a filter.
const MAX_TEXT_BYTES: usize = 4096;

/// The jobs that a caller may see, as the access policy decides it.
///
/// There is no default: whoever asks must say it. The hub makes it from the caller; `Visibility::Everything` is for its
/// own work, such as compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// No job.
    Nothing,
    /// The jobs of a user, and those of projects.
    Own {
        /// The user.
        user: String,
        /// Projects that the user leads.
        leads: BTreeSet<String>,
    },
    /// All jobs.
    Everything,
}

impl Visibility {
    /// Returns true if a job with this owner and project may be seen.
    pub fn shows(&self, owner: Option<&str>, project: Option<&str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Own { user, leads } => {
                owner == Some(user) || project.is_some_and(|project| leads.contains(project))
            }
        }
    }
}

/// Conditions on jobs, all of which must hold.
///
/// ```
/// use skopos_store::jobs::{Filter, Visibility};
///
/// let filter = Filter { user: Some("ann".to_owned()), ..Filter::new(Visibility::Everything) };
/// assert!(filter.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The jobs that the caller may see.
    pub visibility: Visibility,
    /// The site.
    pub site: Option<String>,
    /// The id that the batch system gave the job.
    pub job: Option<String>,
    /// Such ids, of which the job has one; empty for any.
    pub ids: BTreeSet<String>,
    /// The number of the job's run.
    pub generation: Option<u32>,
    /// The user that owns the job.
    pub user: Option<String>,
    /// The project or account.
    pub project: Option<String>,
    /// The application.
    pub application: Option<String>,
    /// The partition or queue.
    pub queue: Option<String>,
    /// A node of the job.
    pub host: Option<String>,
    /// A range of time, both ends included, in which the job ran. A job without an end runs until it is known.
    pub ran: Option<(Timestamp, Timestamp)>,
    /// A range of time, both ends included, in which the job began.
    pub started: Option<(Timestamp, Timestamp)>,
    /// A range of time, both ends included, in which the job ended. A job without an end is in no range.
    pub ended: Option<(Timestamp, Timestamp)>,
    /// States of which the job has one; empty for any.
    pub states: Vec<JobState>,
    /// Kinds of ends of which the job has one; empty for any.
    pub exit_types: Vec<ExitType>,
    /// Tags, all of which the job has.
    pub tags: BTreeSet<String>,
    /// Ranges of resources. A job with an unknown value is in no range.
    pub resources: Vec<ResourceRange>,
    /// Words of the name, command, tags, details and findings. `grom*` is the beginning of a word.
    pub text: String,
}

/// A range of the values of a resource, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceRange {
    /// The amount that is meant.
    pub amount: Amount,
    /// The resource.
    pub resource: &'static Resource,
    /// The least value, in the resource's unit.
    pub from: f64,
    /// The greatest value.
    pub to: f64,
}

/// An amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The amount that the job used.
    Used,
    /// The amount that the job requested.
    Requested,
}

/// The reason why a question is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A list is too long.
    #[error("the filter has {count} {what}; at most {most} are allowed")]
    Many {
        /// Kind of the entries.
        what: &'static str,
        /// Number of entries.
        count: usize,
        /// The most.
        most: usize,
    },
    /// A text is too long.
    #[error("the filter has a text of {0} bytes; at most {MAX_TEXT_BYTES} are allowed")]
    Long(usize),
    /// A bound of a range is not a number.
    #[error("a bound of `{0}` is not a number")]
    NotANumber(&'static str),
    /// The cursor is that of another order.
    #[error("the cursor belongs to another order; ask for the first page again")]
    Cursor,
}

impl Filter {
    /// Returns a filter that all visible jobs pass.
    pub fn new(visibility: Visibility) -> Self {
        Self {
            visibility,
            site: None,
            job: None,
            ids: BTreeSet::new(),
            generation: None,
            user: None,
            project: None,
            application: None,
            queue: None,
            host: None,
            ran: None,
            started: None,
            ended: None,
            states: Vec::new(),
            exit_types: Vec::new(),
            tags: BTreeSet::new(),
            resources: Vec::new(),
            text: String::new(),
        }
    }

    /// Checks that the filter is within its bounds.
    ///
    /// # Errors
    /// A list or text is too long, or a bound is not a number.
    pub fn check(&self) -> Result<(), FilterError> {
        let leads = match &self.visibility {
            Visibility::Own { leads, .. } => leads.len(),
            Visibility::Nothing | Visibility::Everything => 0,
        };
        let texts = self.texts().map(|(_, text)| text).chain([&self.text]);
        let texts = texts.chain(&self.tags).chain(&self.ids);
        if let Some(long) = texts.into_iter().find(|text| text.len() > MAX_TEXT_BYTES) {
            return Err(FilterError::Long(long.len()));
        }
        for (what, count, most) in [
            ("projects of the caller", leads, MAX_LED),
            ("ids", self.ids.len(), MAX_CONDITIONS),
            ("states", self.states.len(), MAX_CONDITIONS),
            ("kinds of ends", self.exit_types.len(), MAX_CONDITIONS),
            ("tags", self.tags.len(), MAX_CONDITIONS),
            ("ranges of resources", self.resources.len(), MAX_CONDITIONS),
            ("words", self.words().len(), MAX_CONDITIONS),
        ] {
            if count > most {
                return Err(FilterError::Many { what, count, most });
            }
        }
        let is_nan = |range: &&ResourceRange| range.from.is_nan() || range.to.is_nan();
        match self.resources.iter().find(is_nan) {
            Some(range) => Err(FilterError::NotANumber(range.resource.name)),
            None => Ok(()),
        }
    }

    /// Returns the words of the free text.
    pub(super) fn words(&self) -> BTreeSet<Word> {
        words::of_question(&self.text)
    }

    /// Returns the fields that must be equal to a column, with the names of the columns.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let fields = [
            ("site", &self.site),
            ("job", &self.job),
            ("owner", &self.user),
            ("project", &self.project),
            ("application", &self.application),
            ("queue", &self.queue),
            ("host", &self.host),
        ];
        fields.into_iter().filter_map(|(column, text)| Some((column, text.as_ref()?)))
    }
}
