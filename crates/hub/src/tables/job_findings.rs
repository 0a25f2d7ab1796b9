//! `job_findings`: the findings of jobs, a row for each job and rule.

use std::sync::Arc;

use skopos_model::Timestamp;
use skopos_query::arrow::array::{
    ArrayRef, Int64Builder, RecordBatch, StringBuilder, TimestampNanosecondBuilder,
};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_score::finding::{Judged, Verdict};
use skopos_store::jobs::{JobRow, PageRequest};

use super::jobs::filter_of;
use super::noted::{Noted, note_ids, note_refused};
use crate::jobs::{Jobs, JobsPlace, Question};

/// The most jobs of one statement. All records of a job are read to judge it.
const MAX_JOBS: usize = 1_000;

/// Jobs that are judged at once: a statement that is cancelled ends within this many.
const STEP: usize = 16;

/// The table `job_findings`.
#[derive(Debug)]
pub(super) struct JobFindings {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
}

impl JobFindings {
    /// Returns the table of the findings in a place.
    pub(super) fn new(place: Arc<JobsPlace>) -> Self {
        let columns = vec![
            Column::text("job", "Id that the batch system gave the job"),
            Column::integer("generation", "Number of the job's run, from 0 on"),
            Column::text("user", "User that owns the job"),
            Column::text("project", "Project that the job is charged to"),
            Column::text("application", "Application"),
            Column::text("state", "State of the job, as in the table `jobs`"),
            Column::time("started_at", "Time at which the job began"),
            Column::text("finding", "Name of the rule"),
            Column::text("verdict", "`found`, `absent`, or `unknown` with a reason"),
            Column::text("severity", "Of a finding: `note`, `warning` or `serious`"),
            Column::text("what", "Of a finding: the condition in a sentence"),
            Column::text(
                "evidence",
                "Of a finding: the numbers on which it stands, as JSON: name, value and unit of each",
            ),
            Column::text("advice", "Of a finding: what to request or to change next time"),
            Column::text("reason", "Of an unknown verdict: the reason"),
        ];
        Self { place, columns }
    }
}

impl Table for JobFindings {
    fn name(&self) -> &str {
        "job_findings"
    }

    fn help(&self) -> &str {
        "Findings of jobs: idle cores, leaks, limits and others, a row for each job and rule"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let Some(jobs) = self.place.get()? else { return Ok(Rows::each([])) };
        scan.lacks(jobs.unlisted());
        let mut reading = jobs.reading(scan.caller(), Question::Findings);
        note_ids(&mut reading, scan);
        let mut filter = filter_of(scan);
        // A job runs when it begins. The engine checks the exact condition.
        filter.ran = scan.times("started_at").map(|times| (*times.start(), *times.end()));
        let request = PageRequest { most: MAX_JOBS, ..PageRequest::default() };
        let page = jobs.search(scan.caller(), filter, &request)?;
        if page.next.is_some() {
            reading.fail("too many jobs");
            return Err(format!(
                "a statement can judge at most {MAX_JOBS} jobs; name them by `job`, `user`, \
                 `application`, `state` or `started_at`"
            )
            .into());
        }
        if page.items.is_empty() && scan.texts("job").is_some() {
            note_refused(&mut reading);
        }
        reading.jobs(page.items.len() as u64);
        let batches = Steps { jobs, scan: scan.clone(), rows: page.items.into_iter() };
        Ok(Rows::each(Noted { batches, reading }))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// The jobs, judged a few at a time.
struct Steps {
    jobs: Arc<Jobs>,
    scan: Scan,
    rows: std::vec::IntoIter<JobRow>,
}

impl Steps {
    fn step(&self, rows: &[JobRow]) -> Result<RecordBatch, BoxError> {
        let mut batch = Batch::default();
        for row in rows {
            match self.jobs.judge(self.scan.caller(), &row.id) {
                // A job may have gone since it was listed.
                Ok(judged) => judged.iter().flatten().for_each(|judged| batch.push(row, judged)),
                Err(e) => self.scan.lacks_damaged(&format!("the job {}", row.id), e)?,
            }
        }
        self.scan.select(&batch.finish())
    }
}

impl Iterator for Steps {
    type Item = Result<RecordBatch, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows: Vec<JobRow> = self.rows.by_ref().take(STEP).collect();
        (!rows.is_empty()).then(|| self.step(&rows))
    }
}

/// Builders of the columns.
#[derive(Default)]
struct Batch {
    jobs: StringBuilder,
    generations: Int64Builder,
    users: StringBuilder,
    projects: StringBuilder,
    applications: StringBuilder,
    states: StringBuilder,
    starts: TimestampNanosecondBuilder,
    findings: StringBuilder,
    verdicts: StringBuilder,
    severities: StringBuilder,
    texts: StringBuilder,
    evidence: StringBuilder,
    advice: StringBuilder,
    reasons: StringBuilder,
}

impl Batch {
    fn push(&mut self, row: &JobRow, judged: &Judged) {
        self.jobs.append_value(row.id.job());
        self.generations.append_value(row.id.generation().into());
        self.users.append_option(row.user.as_deref());
        self.projects.append_option(row.project.as_deref());
        let application = Some(row.application.as_str()).filter(|text| !text.is_empty());
        self.applications.append_option(application);
        self.states.append_value(row.state.name());
        self.starts.append_option(row.started.map(Timestamp::as_nanos));
        self.findings.append_value(judged.finding);
        self.verdicts.append_value(judged.verdict.name());
        let found = match &judged.verdict {
            Verdict::Found(found) => Some(found),
            Verdict::Absent | Verdict::Unknown(_) => None,
        };
        let reason = match &judged.verdict {
            Verdict::Unknown(reason) => Some(reason),
            Verdict::Found(_) | Verdict::Absent => None,
        };
        self.severities.append_option(found.map(|found| found.severity.name()));
        self.texts.append_option(found.map(|found| &found.what));
        let evidence = found.and_then(|found| serde_json::to_string(&found.evidence).ok());
        self.evidence.append_option(evidence);
        self.advice.append_option(found.map(|_| judged.advice));
        self.reasons.append_option(reason);
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.jobs.finish()),
            Arc::new(self.generations.finish()),
            Arc::new(self.users.finish()),
            Arc::new(self.projects.finish()),
            Arc::new(self.applications.finish()),
            Arc::new(self.states.finish()),
            Arc::new(self.starts.finish().with_timezone("UTC")),
            Arc::new(self.findings.finish()),
            Arc::new(self.verdicts.finish()),
            Arc::new(self.severities.finish()),
            Arc::new(self.texts.finish()),
            Arc::new(self.evidence.finish()),
            Arc::new(self.advice.finish()),
            Arc::new(self.reasons.finish()),
        ]
    }
}
