use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::rank::{MAX_CANDIDATES, MAX_METRICS, MAX_OUTCOME_SECONDS};

/// An error of a decision.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A profile has no metric or too many.
    #[error("the profile `{profile}` has {metrics} metrics; a profile has 1 to {MAX_METRICS}")]
    Metrics {
        /// Name of the profile.
        profile: String,
        /// Number of its metrics.
        metrics: usize,
    },
    /// A number of a profile is outside of its range.
    #[error("the profile `{profile}`: `{entry}` is {value}; it must be {range}")]
    Range {
        /// Name of the profile.
        profile: String,
        /// The entry with the number.
        entry: String,
        /// The number.
        value: f64,
        /// The range that is allowed, as a text.
        range: &'static str,
    },
    /// All weights of a profile are zero.
    #[error("the weights of the profile `{0}` sum to zero")]
    WeightsZero(String),
    /// Two metrics of a profile have one name.
    #[error("the profile `{profile}` has two metrics `{metric}`")]
    MetricTwice {
        /// Name of the profile.
        profile: String,
        /// Name of the metric.
        metric: String,
    },
    /// A ranking has too many candidates.
    #[error("{0} candidates; a ranking has at most {MAX_CANDIDATES}")]
    Candidates(usize),
    /// A candidate occurs twice in a ranking.
    #[error("the candidate `{0}` occurs twice")]
    CandidateTwice(String),
    /// The inputs are of another number of candidates or metrics than the ranking.
    #[error(
        "inputs of {inputs_candidates} candidates and {inputs_metrics} metrics; the ranking has {candidates} and {metrics}"
    )]
    Inputs {
        /// Candidates of the inputs.
        inputs_candidates: usize,
        /// Metrics of the inputs.
        inputs_metrics: usize,
        /// Candidates of the ranking.
        candidates: usize,
        /// Metrics of the profile.
        metrics: usize,
    },
    /// An outcome names a candidate that was not in the last ranking.
    #[error("`{0}` is not a candidate of the last ranking")]
    UnknownCandidate(String),
    /// An outcome has a cost that is not a number of seconds.
    #[error("an outcome of `{candidate}` costs {cost} s; a cost is 0 to {MAX_OUTCOME_SECONDS} s")]
    Cost {
        /// The candidate.
        candidate: String,
        /// The cost that was reported.
        cost: f64,
    },
    /// A number of a rule is outside of its range.
    #[error("`{entry}` is {value}; it must be {range}")]
    Term {
        /// The entry with the number.
        entry: &'static str,
        /// The number, of a duration in seconds.
        value: f64,
        /// The range that is allowed, as a text.
        range: &'static str,
    },
    /// Learned weights that were kept are not valid.
    #[error("the learned weights are not valid: {0}")]
    Experience(&'static str),
    /// A line of a recording is not valid.
    #[error("line {line} of the recording: {fault}")]
    Recording {
        /// Number of the line, from 1.
        line: usize,
        /// The fault.
        fault: String,
    },
    /// A recording is of a version that this program does not know.
    #[error("the recording has version {0}; this program reads version {known}", known = crate::rank::RECORDING_VERSION)]
    RecordingVersion(u32, u32),
    /// The tiers of a hierarchy are not valid.
    #[error("{0}")]
    Tiers(String),
    /// A name cannot be that of a file.
    #[error("`{name}` is not a name of a file: {fault}")]
    FileName {
        /// The name.
        name: String,
        /// The fault.
        fault: &'static str,
    },
    /// There is no file of this name.
    #[error("there is no file `{0}`")]
    NoSuchFile(String),
    /// There is a file of this name.
    #[error("the file `{0}` exists")]
    FileExists(String),
    /// A file was moved again and again before it could be opened.
    #[error("the file `{0}` was moved each time before it could be opened")]
    Unreadable(String),
    /// A file is larger than every tier.
    #[error("the file `{name}` has {bytes} bytes; the largest tier holds {largest}")]
    TooLarge {
        /// Its name.
        name: String,
        /// Its size.
        bytes: u64,
        /// Capacity of the largest tier.
        largest: u64,
    },
    /// No tier can take a file now.
    #[error("no tier can take the file `{name}` of {bytes} bytes")]
    NoRoom {
        /// Its name.
        name: String,
        /// Its size.
        bytes: u64,
        /// The last failure of a tier, if one failed.
        source: Option<io::Error>,
    },
    /// There are not enough tiers for the replicas of a file.
    #[error("{copies} replicas are not possible on {tiers} tiers")]
    Copies {
        /// Number of replicas.
        copies: usize,
        /// Number of tiers.
        tiers: usize,
    },
    /// A tier failed.
    #[error("the tier `{tier}` cannot {doing} in {path}")]
    TierFailed {
        /// Its name.
        tier: String,
        /// Its folder.
        path: PathBuf,
        /// The work that failed, as a verb and its object.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Another process uses a tier.
    #[error("another process has the tier `{tier}` in {path}")]
    TierInUse {
        /// Its name.
        tier: String,
        /// Its folder.
        path: PathBuf,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

impl Error {
    /// Returns a hint on how the user can mend the error.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Metrics { .. } => "list the metrics that differ between candidates",
            Self::Range { .. } | Self::Term { .. } => {
                "change the number, or leave the entry out to have its default"
            }
            Self::WeightsZero(_) => {
                "give a metric a weight above zero, or choose the method `equal`"
            }
            Self::MetricTwice { .. } => "remove one of them, or rename it",
            Self::Candidates(_) => "rank parts of them, such as the replicas of one range",
            Self::CandidateTwice(_) => "name each candidate once",
            Self::UnknownCandidate(_) => "report outcomes under the name that was ranked",
            Self::Cost { .. } => "report the latency in seconds, or a failure",
            Self::Recording { .. } => "`record` in `[[rank]]` names the file of an agent",
            Self::RecordingVersion(..) => "read it with the version of Skopos that recorded it",
            Self::FileName { .. } => {
                "name it by parts of up to 80 bytes in all, with `/` between them and without `..`"
            }
            Self::NoSuchFile(_) => "list the files of the engine",
            Self::FileExists(_) => "remove it first, or choose another name",
            Self::TooLarge { .. } => "write it in parts, or give a tier more capacity",
            Self::NoRoom { .. } => "remove files, or give the last tier more capacity",
            Self::Copies { .. } => {
                "each replica takes a tier in a domain of its own: add a tier, or write fewer"
            }
            Self::TierFailed { .. } => {
                "see whether its file system is mounted, writable and healthy; its files are found again when it is back"
            }
            Self::TierInUse { .. } => "end that process, or use another folder",
            Self::Unreadable(_) => "read it again, and give the tiers more capacity",
            Self::Inputs { .. } | Self::Experience(_) | Self::Tiers(_) | Self::Thread(_) => {
                return None;
            }
        })
    }
}
