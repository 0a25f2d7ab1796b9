//! Sizes for the next task of a class, for schedulers that ask: the estimator of `skopos estimate`, over the tasks and jobs that
//! the caller may see.
//!
//! The records are those of the archive of tasks, if the caller may read it and it has the class. Otherwise they are the jobs of
//! the application of that name, of which the caller sees its own and those that it may read.

use serde::Serialize;
use skopos_access::{Action, Caller, may};
use skopos_model::nearest_name;
use skopos_model::task::{RESOURCES, Resource};
use skopos_query::arrow::array::{Array as _, AsArray as _};
use skopos_query::arrow::compute::cast;
use skopos_query::arrow::datatypes::{DataType, Float64Type};
use skopos_query::{BoxError, Engine, Error, Limits};
use skopos_store::archive::{Archive, Conditions, Keeper, Records};
pub use skopos_store::estimate::Minimize;
use skopos_store::estimate::{CONFIDENCE, Estimate, Evidence, MAX_RISK, Record, estimate_from};
use thiserror::Error as ThisError;

use crate::backend::Backend;

/// Longest name of a class or user. Names of programs and jobs are shorter.
pub const MAX_NAME_BYTES: usize = 256;

/// Most tasks or jobs that are records, the latest ones: a task counts half after fifty newer ones, so older ones hardly count. If all
/// of them failed, so many older ones that did not are records, too.
const MAX_RECORDS: u32 = 1000;

/// The resource of which a limit counts more than one value, and the one that is a request in the table of jobs.
const MEMORY: &str = "resident_bytes_max";

/// A question about the next task.
#[derive(Clone, Debug)]
pub struct EstimateQuestion {
    /// Class of tasks, or application of jobs.
    pub class: String,
    /// Only jobs of this user, if it is given. Tasks of the archive name no user, so they are not used then.
    pub user: Option<String>,
    /// The resource.
    pub resource: &'static Resource,
    /// The goal.
    pub minimize: Minimize,
    /// Largest share of the records that may need more than the allocation.
    pub max_risk: f64,
}

/// The answer: `Estimate` in `docs/openapi.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Proposal {
    class: String,
    resource: &'static str,
    unit: &'static str,
    minimize: Minimize,
    /// The records: `tasks` of the archive, or `jobs`.
    source: &'static str,
    #[serde(flatten)]
    estimate: Estimate,
    confidence: f64,
    /// Number of records that are lower bounds.
    lower_bounds: u64,
    /// Number of tasks or jobs that did not succeed.
    unfinished: u64,
    /// Number of those of which the value is not known.
    unknown: u64,
    /// Parts of the site's jobs that were not read, for people.
    missing: Vec<String>,
}

/// The jobs that are records.
#[derive(Debug, Default)]
pub(crate) struct JobRecords {
    pub(crate) found: Records,
    /// Parts of the site's jobs that were not read, for people, sorted.
    pub(crate) missing: Vec<String>,
}

/// The reason why there is no proposal.
#[derive(Debug, ThisError)]
pub enum EstimateError {
    /// The name of the resource is not known.
    #[error("there is no resource `{name}`")]
    Resource {
        /// The name.
        name: String,
        /// The most similar one.
        nearest: Option<String>,
    },
    /// The caller may see no record.
    #[error("there is no record of `{resource}` for `{class}` that the caller may see")]
    NoRecord {
        /// The resource.
        resource: &'static str,
        /// The class.
        class: String,
    },
    /// No record was found, and a part of the jobs was not read.
    #[error(
        "there is no record of `{resource}` for `{class}` in the jobs that were read, and these lack {}",
        .missing.join(", ")
    )]
    Incomplete {
        /// The resource.
        resource: &'static str,
        /// The class.
        class: String,
        /// The parts that were not read, for people.
        missing: Vec<String>,
    },
    /// The statement about jobs failed.
    #[error(transparent)]
    Query(#[from] Error),
    /// The archive cannot be read.
    #[error("the archive of tasks cannot be read")]
    Archive(#[source] BoxError),
}

impl EstimateQuestion {
    /// Returns the question about the memory of a class, with the risk of the estimator.
    ///
    /// # Errors
    /// The resource is not known.
    pub fn new(class: String, resource: &str) -> Result<Self, EstimateError> {
        let is_it =
            |of: &&Resource| of.name == resource || (!resource.is_empty() && of.alias == resource);
        let found = RESOURCES.iter().find(is_it).ok_or_else(|| {
            let names = RESOURCES.iter().flat_map(|of| [of.name, of.alias]);
            let nearest = nearest_name(resource, names.filter(|name| !name.is_empty()));
            EstimateError::Resource {
                name: resource.to_owned(),
                nearest: nearest.map(str::to_owned),
            }
        })?;
        let minimize = Minimize::Waste;
        Ok(Self { class, user: None, resource: found, minimize, max_risk: MAX_RISK })
    }

    /// Answers from what the caller may see.
    ///
    /// # Errors
    /// There is no record, records cannot be read, or a part of the jobs was not read and the others have no record.
    pub async fn answer(
        self,
        backend: &Backend,
        caller: &Caller,
    ) -> Result<Proposal, EstimateError> {
        let is_allowed = may(caller, Action::ReadJob { owner: None, project: None }).is_ok();
        let archive = backend.source.archive_file().filter(|_| is_allowed && self.user.is_none());
        if let Some(archive) = archive.filter(|file| file.exists()) {
            let (archive, question) = (archive.to_path_buf(), self.clone());
            // The estimate is made on the thread that reads, which has the place of the caller.
            let read = move || question.tasks(&archive).map(|found| question.of_tasks(&found));
            let proposal = backend.engine.reading(caller, read).await?;
            if let Some(proposal) = proposal.map_err(EstimateError::Archive)? {
                return Ok(proposal);
            }
        }
        self.of_jobs(self.jobs(&backend.engine, caller, MAX_RECORDS).await?)
    }

    fn of_tasks(&self, found: &Records) -> Option<Proposal> {
        self.proposal("tasks", found, Vec::new())
    }

    fn of_jobs(&self, jobs: JobRecords) -> Result<Proposal, EstimateError> {
        let JobRecords { found, missing } = jobs;
        let (resource, class) = (self.resource.name, self.class.clone());
        match self.proposal("jobs", &found, missing.clone()) {
            Some(proposal) => Ok(proposal),
            None if missing.is_empty() => Err(EstimateError::NoRecord { resource, class }),
            None => Err(EstimateError::Incomplete { resource, class, missing }),
        }
    }

    fn proposal(
        &self,
        source: &'static str,
        found: &Records,
        missing: Vec<String>,
    ) -> Option<Proposal> {
        let estimate = estimate_from(&found.evidence, self.minimize, self.max_risk)?;
        Some(Proposal {
            class: self.class.clone(),
            resource: self.resource.name,
            unit: self.resource.unit,
            minimize: self.minimize,
            source,
            estimate,
            confidence: CONFIDENCE,
            lower_bounds: found.lower_bounds,
            unfinished: found.unfinished,
            unknown: found.unknown,
            missing,
        })
    }

    fn tasks(&self, archive: &std::path::Path) -> Result<Records, BoxError> {
        let (archive, all) = (Archive::read(archive)?, Conditions::default());
        let most = Some(MAX_RECORDS);
        Ok(match self.resource.name {
            // Schedulers that limit memory do it by control groups.
            MEMORY => archive.memory_records(&self.class, Keeper::Kernel, &all, most)?,
            _ => archive.records(&self.class, self.resource, &all, most)?,
        })
    }

    /// Reads the latest `most` jobs, by statements of the caller. If none of them completed, the latest `most` that did are
    /// records, too.
    pub(crate) async fn jobs(
        &self,
        engine: &Engine,
        caller: &Caller,
        most: u32,
    ) -> Result<JobRecords, Error> {
        let mut jobs = self.latest_jobs(engine, caller, ("", most)).await?;
        if jobs.found.records.is_empty() {
            let completed = " AND state = 'completed'";
            let older = self.latest_jobs(engine, caller, (completed, most)).await?;
            jobs.found.add_older(older.found);
            jobs.missing.extend(older.missing);
        }
        jobs.missing.sort_unstable();
        jobs.missing.dedup();
        Ok(jobs)
    }

    /// Reads the latest jobs that meet a further condition.
    async fn latest_jobs(
        &self,
        engine: &Engine,
        caller: &Caller,
        (further, most): (&str, u32),
    ) -> Result<JobRecords, Error> {
        let quoted = |text: &str| text.replace('\'', "''");
        let user = self.user.as_ref().map(|user| format!(" AND \"user\" = '{}'", quoted(user)));
        // The table has this order, so the statement reads no more jobs than it needs.
        let sql = format!(
            "SELECT {} AS amount, wall_seconds AS held, CASE state WHEN 'completed' THEN 0.0 \
             WHEN 'out_of_memory' THEN 1.0 ELSE 2.0 END AS ended, requested_bytes AS requested FROM jobs WHERE application = '{}'{}{further} AND ended_at IS NOT NULL \
             ORDER BY started_at DESC NULLS LAST LIMIT {most}",
            self.resource.name,
            quoted(&self.class),
            user.unwrap_or_default(),
        );
        let limits = Limits { rows: most as usize, threads: 1, ..Limits::default() };
        let answer = engine.query(caller, &sql, &limits).await?;
        let mut found = Records::default();
        for batch in &answer.batches {
            let number = |at: usize| cast(batch.column(at), &DataType::Float64);
            let columns = [0, 1, 2, 3].map(number).into_iter().collect::<Result<Vec<_>, _>>();
            let columns = columns.map_err(|e| Error::Query { message: e.to_string() })?;
            for row in 0..batch.num_rows() {
                let cell = |at: usize| {
                    let numbers = columns[at].as_primitive::<Float64Type>();
                    numbers.is_valid(row).then(|| numbers.value(row))
                };
                self.add_job([cell(0), cell(1), cell(2), cell(3)], &mut found);
            }
        }
        // The oldest first.
        found.records.reverse();
        found.evidence.reverse();
        Ok(JobRecords { found, missing: answer.missing })
    }

    /// Adds a job: its value, its wall time, 0 if it completed and 1 if it ran out of memory, and its requested memory.
    fn add_job(&self, [value, wall, ended, requested]: [Option<f64>; 4], found: &mut Records) {
        // A time is not held for a time.
        let seconds = if self.resource.unit == "seconds" { Some(1.0) } else { wall };
        let is_complete = ended == Some(0.0);
        let is_censored = ended == Some(1.0) && self.resource.name == MEMORY;
        found.unfinished += u64::from(!is_complete);
        let value = if is_censored { requested.or(value) } else { value };
        match (value, seconds) {
            (Some(value), Some(seconds)) if is_complete || is_censored => {
                let record = Record { value, seconds };
                found.evidence.push(Evidence { record, is_censored });
                if is_complete {
                    found.records.push(record);
                }
            }
            (_, _) if is_complete => found.unknown += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skopos_model::task::SUMMARY_VERSION;

    use super::*;

    #[test]
    fn an_estimate_reads_the_latest_tasks_of_the_archive_alone() {
        /// Tasks that are too many.
        const OLDER: u32 = 7;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("archive.sqlite");
        let mut archive = Archive::create(&path).expect("an archive");
        for at in 0..MAX_RECORDS + OLDER {
            let memory = json!({"value": 1000 + at, "unit": "bytes", "method": "procfs",
                                "completeness": "sampled", "error_bound": null});
            let report = json!({
                "version": SUMMARY_VERSION,
                "task": {"class": "align", "command": ["align"], "folder": "", "monitor": "skopos"},
                "host": {"node": "n01", "kernel": "6", "cores": 2, "memory_bytes": 1},
                "start_seconds": at, "end_seconds": at + 2, "level": 1,
                "ended": {"exit_type": "normal", "status": 0, "signal": null, "limits": [], "guilty": null},
                "resources": {"resident_bytes_max": memory}, "mechanisms": [],
                "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
                "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0,
            });
            let document = report.to_string();
            assert!(archive.add_document(document.as_bytes(), "", None).expect("added"));
        }
        drop(archive);
        let question = EstimateQuestion::new("align".to_owned(), "memory").expect("a resource");
        let found = question.tasks(&path).expect("read");
        assert_eq!(found.evidence.len(), MAX_RECORDS as usize);
        assert_eq!(found.evidence[0].record.value, 1000.0 + f64::from(OLDER));
        let proposal = question.of_tasks(&found).expect("a proposal");
        assert_eq!(proposal.estimate.count, MAX_RECORDS as usize);
    }

    #[test]
    fn an_estimate_names_the_jobs_that_it_lacks_and_without_a_record_it_is_not_a_404() {
        let question = EstimateQuestion::new("solve".to_owned(), "cpu_seconds").expect("known");
        let jobs = |values: &[f64], missing: &[&str]| {
            let mut jobs = JobRecords::default();
            for value in values {
                let job = [Some(*value), Some(1.0), Some(0.0), None];
                question.add_job(job, &mut jobs.found);
            }
            jobs.missing.extend(missing.iter().map(|part| (*part).to_owned()));
            question.of_jobs(jobs)
        };
        let missing = |values: &[f64], missing: &[&str]| {
            let proposal = jobs(values, missing).expect("a proposal");
            serde_json::to_value(proposal).expect("JSON")["missing"].clone()
        };
        assert_eq!(missing(&[5.0], &["the copy of hub1"]), json!(["the copy of hub1"]));
        assert_eq!(missing(&[5.0], &[]), json!([]));
        let none = jobs(&[], &[]).expect_err("no record");
        assert!(matches!(none, EstimateError::NoRecord { .. }), "{none}");
        let lacking = jobs(&[], &["the copy of hub1"]).expect_err("no record");
        assert!(matches!(lacking, EstimateError::Incomplete { .. }), "{lacking}");
        assert!(lacking.to_string().contains("the copy of hub1"), "{lacking}");
    }
}
