//! The tables that this program registers with the query engine, a file each.
//!
//! To add a table, write a type that implements [`skopos_query::Table`] in a file of its own here, and
//! register it in [`register`].

mod insights;
mod anomalies;
mod imported;
mod ranks;
mod tasks;
mod task_files;
mod task_stats;
mod jobs;
mod with_copies;
mod job_samples;
mod sealed_samples;
mod job_findings;
mod job_metadata;
mod noted;
mod job_reads;
mod traces;
mod spans;
mod job_spans;
mod job_files;
mod rules;
mod rule_events;
mod callpaths;
#[cfg(test)]
mod job_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use skopos_query::{Error, Registry, Source};

use crate::jobs::JobsPlace;
use crate::rules::RulesPlace;

use self::anomalies::Anomalies;
use self::callpaths::Callpaths;
use self::insights::Insights;
pub use self::insights::{InsightInfo, LookUp};
use self::job_files::JobFiles;
use self::job_findings::JobFindings;
use self::job_metadata::JobMetadata;
use self::job_reads::JobReads;
use self::job_samples::JobSamples;
use self::job_spans::JobSpans;
use self::jobs::JobsTable;
use self::ranks::Ranks;
use self::rule_events::RuleEvents;
use self::rules::RulesTable;
use self::sealed_samples::SealedSamples;
use self::spans::Spans;
use self::task_files::FilesOfTasks;
use self::task_stats::OfClasses;
use self::tasks::Tasks;
use self::with_copies::WithCopies;

/// The files and stores of the tables that do not read samples.
pub struct Stores {
    /// File of the archive of tasks.
    pub archive: Option<PathBuf>,
    /// Folder of the traces that the agent of this machine collects.
    pub traces: Option<PathBuf>,
    /// The jobs of the site.
    pub jobs: Arc<JobsPlace>,
    /// The rules, once a hub evaluates them.
    pub rules: RulesPlace,
}

/// Registers all tables: over `source`, over the files and jobs of `stores`, and with descriptions of insights from
/// `insight`.
///
/// # Errors
/// A name is taken.
pub fn register(
    registry: &mut Registry,
    source: &Arc<dyn Source>,
    stores: Stores,
    insight: LookUp,
) -> Result<(), Error> {
    let Stores { archive, traces, jobs, rules } = stores;
    registry.register(Insights::new(source.clone(), insight))?;
    registry.register(Anomalies::new(source.clone()))?;
    registry.register(Ranks::new(source.clone()))?;
    registry.register(Tasks::all(archive.clone(), jobs.clone()))?;
    registry.register(OfClasses::stats(archive.clone()))?;
    registry.register(OfClasses::estimates(archive.clone()))?;
    registry.register(FilesOfTasks::new(archive.clone(), jobs.clone()))?;
    registry.register(Tasks::of_jobs(archive, jobs.clone()))?;
    registry.register(Spans::new(traces.clone()))?;
    registry.register(Callpaths::new(traces))?;
    registry.register(RulesTable::new(rules.clone()))?;
    registry.register(RuleEvents::new(rules))?;
    registry.register(JobsTable::new(jobs.clone()))?;
    registry.register(SealedSamples::new(jobs.clone()))?;
    registry.register(WithCopies::new(jobs.clone(), JobSamples::new))?;
    registry.register(WithCopies::new(jobs.clone(), JobSpans::new))?;
    registry.register(WithCopies::new(jobs.clone(), JobFiles::new))?;
    registry.register(WithCopies::new(jobs.clone(), JobMetadata::new))?;
    registry.register(WithCopies::new(jobs.clone(), JobFindings::new))?;
    registry.register(WithCopies::new(jobs, JobReads::new))
}
