//! The identity of a job.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest id. Batch systems have numbers of ten digits, with an array index and a step; grids have URLs.
pub const MAX_JOB_ID_BYTES: usize = 256;

/// A job of a site: the id of the batch system, and a generation.
///
/// A batch system may run one id again: after a requeue, or once its numbers begin anew. Each run is a generation of
/// its own, counted from zero. The id is any text without control characters; it never becomes a path.
///
/// ```
/// use skopos_model::job::JobId;
///
/// let id = JobId::new("4711_3", 1)?;
/// assert_eq!((id.job(), id.generation(), id.to_string()), ("4711_3", 1, "4711_3.g1".to_owned()));
/// assert!(JobId::new("", 0).is_err());
/// # Ok::<(), skopos_model::job::IdError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId {
    job: String,
    generation: u32,
}

/// The beginning of the ids of jobs that were tasks of an archive.
pub const IMPORTED_PREFIX: &str = "task-";

/// A tag of these jobs.
pub const IMPORTED_TAG: &str = "imported";

/// The beginning of a tag of these jobs, before the name of the set with which a task was archived.
pub const SET_TAG: &str = "set=";

/// The reason why a text cannot be the id of a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    /// The id is empty.
    #[error("the id of the job is empty")]
    Empty,
    /// The id is too long.
    #[error("the id of the job has {0} bytes; at most {MAX_JOB_ID_BYTES} are allowed")]
    Long(usize),
    /// The id has a control character.
    #[error("the id of the job has a control character")]
    Control,
}

impl JobId {
    /// Returns the id of a run of a job.
    ///
    /// # Errors
    /// The text is empty, too long, or has a control character.
    pub fn new(job: impl Into<String>, generation: u32) -> Result<Self, IdError> {
        let job = job.into();
        check_text(&job)?;
        Ok(Self { job, generation })
    }

    /// Returns the id that the batch system gave the job.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Returns the number of the run, from zero on.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

/// Checks that a text can be the id of a job.
pub(super) fn check_text(job: &str) -> Result<(), IdError> {
    match job.len() {
        0 => Err(IdError::Empty),
        length if length > MAX_JOB_ID_BYTES => Err(IdError::Long(length)),
        _ if job.chars().any(char::is_control) => Err(IdError::Control),
        _ => Ok(()),
    }
}

/// Formats as the id of the batch system, and the generation unless it is the first.
impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.job)?;
        if self.generation > 0 {
            write!(f, ".g{}", self.generation)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_any_printable_text() {
        for job in ["1", "a/../b", "it's \"quoted\"", "https://grid/job?x=1", "übung", "-rf"] {
            assert_eq!(JobId::new(job, 0).map(|id| id.to_string()).as_deref(), Ok(job));
        }
        assert_eq!(JobId::new("", 0), Err(IdError::Empty));
        assert_eq!(JobId::new("x".repeat(257), 0), Err(IdError::Long(257)));
        for job in ["a\nb", "a\0", "\u{7f}", "a\u{85}b"] {
            assert_eq!(JobId::new(job, 0), Err(IdError::Control), "{job:?}");
        }
    }
}
