//! `job_metadata`: what the start and the end of a job say, a row for each field.

use std::sync::Arc;

use skopos_model::job::JobId;
use skopos_model::task::RESOURCES;
use skopos_query::arrow::array::{ArrayRef, Int64Builder, StringBuilder};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_store::jobs::JobEntry;

use super::job_samples::{MAX_JOBS, runs};
use super::noted::{Noted, note_ids, note_refused};
use crate::jobs::{JobsPlace, Question};

/// The table `job_metadata`.
#[derive(Debug)]
pub(super) struct JobMetadata {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
}

impl JobMetadata {
    /// Returns the table of the metadata in a place.
    pub(super) fn new(place: Arc<JobsPlace>) -> Self {
        let columns = vec![
            Column::text("job", "Id that the batch system gave the job; a statement must name it"),
            Column::integer("generation", "Number of the job's run, from 0 on"),
            Column::text(
                "field",
                "`launcher`, `command`, `folder`, `node`, `tag`, `requested`, `used`, `detail`, `state`, `status`, `signal`, `report_finding`, `schema`, `reports` or `parts`",
            ),
            Column::text("name", "Of a resource or a detail: its name"),
            Column::text("value", "The value; a field with several values has several rows"),
        ];
        Self { place, columns }
    }
}

impl Table for JobMetadata {
    fn name(&self) -> &str {
        "job_metadata"
    }

    fn help(&self) -> &str {
        "Metadata of jobs, a row for each field, for statements that name the jobs"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let wanted = scan
            .texts("job")
            .ok_or("a statement about `job_metadata` must name its jobs: `WHERE job = '4711'`")?;
        if wanted.len() > MAX_JOBS {
            let most = format!("a statement can read the metadata of at most {MAX_JOBS} jobs");
            return Err(most.into());
        }
        let Some(jobs) = self.place.get()? else { return Ok(Rows::each([])) };
        let mut reading = jobs.reading(scan.caller(), Question::Metadata);
        note_ids(&mut reading, scan);
        let mut ids = Vec::new();
        for job in wanted {
            let runs = runs(&jobs, scan, job)?;
            if runs.is_empty() {
                note_refused(&mut reading);
            }
            ids.extend(runs);
        }
        reading.jobs(ids.len() as u64);
        let scan = scan.clone();
        let batches = ids.into_iter().filter_map(move |id| {
            let entry = jobs.entry(scan.caller(), &id).transpose()?;
            let batch = entry.map_err(BoxError::from);
            Some(batch.and_then(|entry| scan.select(&arrays(&id, &entry))))
        });
        Ok(Rows::each(Noted { batches, reading }))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// Returns the fields of a job: field, name and value.
fn fields(entry: &JobEntry) -> Vec<(&'static str, String, String)> {
    let mut all = Vec::new();
    let mut add = |field, name: &str, value: String| {
        if !value.is_empty() {
            all.push((field, name.to_owned(), value));
        }
    };
    if let Some(start) = &entry.start {
        let start = &start.value;
        add("launcher", "", start.launcher.clone());
        add("command", "", start.command.join(" "));
        add("folder", "", start.folder.clone());
        for (name, value) in &start.requested {
            add("requested", name, value.to_string());
        }
        for (name, value) in &start.details {
            add("detail", name, value.clone());
        }
    }
    entry.nodes.iter().for_each(|node| add("node", "", node.clone()));
    entry.all_tags().into_iter().for_each(|tag| add("tag", "", tag.to_owned()));
    add("state", "", entry.state().name().to_owned());
    for resource in RESOURCES {
        let used = entry.used(resource.name).map_or(String::new(), |used| used.to_string());
        add("used", resource.name, used);
    }
    if let Some(end) = &entry.end {
        let number = |number: Option<i32>| number.map_or(String::new(), |n| n.to_string());
        add("status", "", number(end.value.status));
        add("signal", "", number(end.value.signal));
    }
    entry.findings.iter().for_each(|finding| add("report_finding", "", finding.clone()));
    entry.schemas.iter().for_each(|schema| add("schema", "", schema.clone()));
    add("reports", "", entry.reports.to_string());
    add("parts", "", entry.parts.len().to_string());
    all
}

fn arrays(id: &JobId, entry: &JobEntry) -> Vec<ArrayRef> {
    let mut jobs = StringBuilder::new();
    let mut generations = Int64Builder::new();
    let [mut fields_of, mut names, mut values] = [(); 3].map(|()| StringBuilder::new());
    for (field, name, value) in fields(entry) {
        jobs.append_value(id.job());
        generations.append_value(id.generation().into());
        fields_of.append_value(field);
        names.append_option(Some(name).filter(|name| !name.is_empty()));
        values.append_value(value);
    }
    vec![
        Arc::new(jobs.finish()),
        Arc::new(generations.finish()),
        Arc::new(fields_of.finish()),
        Arc::new(names.finish()),
        Arc::new(values.finish()),
    ]
}
