//! Jobs as rows: what lists show, without the document of the entry.

use std::collections::BTreeMap;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobState};
use skopos_model::task::ExitType;

/// The columns of a row, in the order in which [`Columns`] has them.
pub(super) const COLUMNS: &str = "site, job, generation, owner, project, name, application, queue, state, exit, \
     started, ended, nodes, samples, lost, used, requested";

/// `ended` of a job that has not ended: later than every time.
pub(super) const NOT_ENDED: i64 = i64::MAX;

/// `started` and `ended` of a job without a record: no range of time has it.
pub(super) const NEVER: i64 = i64::MIN;

/// A job in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// The site that has the job.
    pub site: String,
    /// The job.
    pub id: JobId,
    /// The user that owns it, if the start names one.
    pub user: Option<String>,
    /// The project, if the start names one.
    pub project: Option<String>,
    /// The name that the user gave the job.
    pub name: String,
    /// The application.
    pub application: String,
    /// The partition or queue.
    pub queue: String,
    /// The state.
    pub state: JobState,
    /// The kind of the end, if it is known.
    pub exit_type: Option<ExitType>,
    /// Time at which the job began.
    pub started: Option<Timestamp>,
    /// Time at which the job ended, if it has.
    pub ended: Option<Timestamp>,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of measurements.
    pub samples: u64,
    /// Number of records that were lost, by the producers' own account.
    pub lost: u64,
    /// Amounts of resources that the job used, as far as they are known.
    pub used: BTreeMap<String, f64>,
    /// Amounts of resources that the job requested, as far as they are known.
    pub requested: BTreeMap<String, f64>,
}

/// The columns of a row as databases have them.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// The site.
    pub site: String,
    /// The id that the batch system gave the job.
    pub job: String,
    /// The number of the run.
    pub generation: i64,
    /// The user.
    pub owner: Option<String>,
    /// The project.
    pub project: Option<String>,
    /// The name.
    pub name: String,
    /// The application.
    pub application: String,
    /// The queue.
    pub queue: String,
    /// Name of the state.
    pub state: String,
    /// Name of the kind of the end.
    pub exit: Option<String>,
    /// The start, in nanoseconds of UNIX time.
    pub started: i64,
    /// The end, in nanoseconds of UNIX time.
    pub ended: i64,
    /// Number of nodes.
    pub nodes: i64,
    /// Number of measurements.
    pub samples: i64,
    /// Number of lost records.
    pub lost: i64,
    /// Used amounts by name, as JSON.
    pub used: String,
    /// Requested amounts by name, as JSON.
    pub requested: String,
}

impl Columns {
    /// Returns the row, or the kind and text of a column that is not valid.
    pub fn row(self) -> Result<JobRow, (&'static str, String)> {
        let amounts =
            |text: String| serde_json::from_str(&text).map_err(|_| ("set of resources", text));
        let (job, generation) = (self.job, self.generation);
        let generation = u32::try_from(generation).unwrap_or(u32::MAX);
        let id = JobId::new(job.clone(), generation).map_err(|_| ("id of a job", job))?;
        let state = JobState::of_name(&self.state).ok_or(("state", self.state))?;
        let exit_type = match self.exit {
            None => None,
            Some(name) => Some(exit_of_name(&name).ok_or(("kind of an end", name))?),
        };
        let time = |nanos: i64| Some(Timestamp::from_nanos(nanos));
        Ok(JobRow {
            site: self.site,
            id,
            user: self.owner,
            project: self.project,
            name: self.name,
            application: self.application,
            queue: self.queue,
            state,
            exit_type,
            started: time(self.started).filter(|_| self.started != NEVER),
            ended: time(self.ended).filter(|_| !matches!(self.ended, NEVER | NOT_ENDED)),
            nodes: self.nodes.unsigned_abs(),
            samples: self.samples.unsigned_abs(),
            lost: self.lost.unsigned_abs(),
            used: amounts(self.used)?,
            requested: amounts(self.requested)?,
        })
    }
}

const EXITS: [ExitType; 5] =
    [ExitType::Normal, ExitType::Signal, ExitType::Limit, ExitType::Running, ExitType::Unknown];

/// Returns the name of a kind of end, as in reports.
pub(super) fn exit_name(exit: ExitType) -> &'static str {
    match exit {
        ExitType::Normal => "normal",
        ExitType::Signal => "signal",
        ExitType::Limit => "limit",
        ExitType::Running => "running",
        ExitType::Unknown => "unknown",
    }
}

fn exit_of_name(name: &str) -> Option<ExitType> {
    EXITS.into_iter().find(|exit| exit_name(*exit) == name)
}
