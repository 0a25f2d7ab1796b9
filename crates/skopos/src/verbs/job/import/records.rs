//! The records of the job that a task of an archive becomes.
//!
//! Everything follows from the report: the id of the job, the name of its producer, the times and the sequences. A hub
//! that has the records takes them for duplicates, and stores those that it lacks.

use std::collections::BTreeSet;

use skopos_model::Timestamp;
use skopos_model::job::{
    IMPORTED_PREFIX, IMPORTED_TAG, JobRecord, JobStart, Kind, RecordError, SET_TAG,
};
use skopos_model::task::{Summary, TaskFiles, resource};
use skopos_store::archive::ArchivedTask;
use skopos_store::jobs::StoredRecord;
use skopos_store::jobs::spool::SpooledBatch;

use crate::verbs::task_job::{end_of, loss_of_files};

/// Bytes of the hash of a report that an id has: so many that two reports never have the same ones.
/// The hub finds a task in its own archive by them.
const ID_BYTES: usize = 16;

/// The epoch of each producer. Its records never change.
const EPOCH: i64 = 1;

/// Sequences of the records. The files come last: an archive may get them after a first import of the task.
const START: i64 = 0;
const REPORT: i64 = 1;
const END: i64 = 2;
const FILES: i64 = 3;
const LOSS: i64 = 4;

/// The records of a job.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) batch: SpooledBatch,
    /// The reason for which the files of the task are not among them, although they were counted.
    pub(super) without_files: Option<String>,
}

/// Returns the records of the job that a task becomes.
///
/// # Errors
/// The reason for which no hub would take them.
pub(super) fn records_of(task: &ArchivedTask) -> Result<Records, String> {
    let hash: String = task.hash.iter().take(ID_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let summary = &task.summary;
    let mut job = Job {
        id: format!("{IMPORTED_PREFIX}{hash}"),
        node: if summary.job.is_some() { "" } else { &summary.host.node },
        batch: SpooledBatch {
            producer: format!("import/{hash}"),
            epoch: EPOCH,
            records: Vec::new(),
        },
    };
    let (began, ended) = (time_of(summary.start_seconds), time_of(summary.end_seconds));
    let start = start_of(summary, &task.set);
    job.add(START, Kind::Start, began, &document(&start)).map_err(named("start"))?;
    job.add(REPORT, Kind::Report, ended, task.document.as_bytes()).map_err(named("report"))?;
    job.add(END, Kind::End, ended, &document(&end_of(summary))).map_err(named("end"))?;
    let without_files = match &task.files {
        None => None,
        Some(Err(why)) => Some(why.clone()),
        Some(Ok(files)) => job.add_files(summary, files, ended).map_err(named("files")).err(),
    };
    Ok(Records { batch: job.batch, without_files })
}

/// A job whose records are gathered.
struct Job<'a> {
    id: String,
    node: &'a str,
    batch: SpooledBatch,
}

impl Job<'_> {
    fn add(
        &mut self,
        sequence: i64,
        kind: Kind,
        time: Timestamp,
        content: &[u8],
    ) -> Result<(), RecordError> {
        let (job, node, generation) = (self.id.as_str(), self.node, 0);
        let record = JobRecord { kind, job, generation, node, time, content };
        record.check()?;
        self.batch.records.push((sequence, StoredRecord::of(&record)));
        Ok(())
    }

    fn add_files(
        &mut self,
        summary: &Summary,
        files: &TaskFiles,
        time: Timestamp,
    ) -> Result<(), RecordError> {
        self.add(FILES, Kind::Files, time, &document(files))?;
        match loss_of_files(summary, files) {
            Some(loss) => self.add(LOSS, Kind::Loss, time, &document(&loss)),
            None => Ok(()),
        }
    }
}

/// Returns the start of a job. A report does not name the user, the project and the queue.
fn start_of(summary: &Summary, set: &str) -> JobStart {
    let task = &summary.task;
    let limits = summary.limits_set.iter().filter(|limit| resource(&limit.name).is_some());
    let of_job = summary.job.as_ref().map(|job| (&job.id, &job.launcher));
    let parallel = of_job.or(task.rank.as_ref().map(|rank| (&rank.job, &rank.launcher)));
    let launcher = match parallel {
        Some((_, launcher)) => launcher.clone(),
        None if task.monitor.starts_with("skopos") => "skopos".to_owned(),
        None => String::new(),
    };
    let rank = task.rank.as_ref().map(|rank| rank.rank.to_string());
    let details = [
        ("monitor", Some(task.monitor.clone())),
        ("parallel_job", parallel.map(|(id, _)| id.clone())),
        ("rank", rank),
    ];
    let details = details.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let of_set = (!set.is_empty()).then(|| format!("{SET_TAG}{set}"));
    JobStart {
        name: task.class.clone(),
        application: task.class.clone(),
        launcher,
        command: task.command.clone(),
        folder: task.folder.clone(),
        nodes: nodes_of(summary),
        tags: of_set.into_iter().chain([IMPORTED_TAG.to_owned()]).collect(),
        requested: limits.map(|limit| (limit.name.clone(), limit.most)).collect(),
        start_seconds: Some(summary.start_seconds),
        details: details.filter(|(_, value)| !value.is_empty()).collect(),
        ..JobStart::default()
    }
}

/// Returns the nodes of a task. The joined report of a parallel job names those of its ranks.
fn nodes_of(summary: &Summary) -> BTreeSet<String> {
    let nodes: BTreeSet<&String> = match &summary.job {
        Some(job) => job.ranks.iter().map(|rank| &rank.node).collect(),
        None => [&summary.host.node].into(),
    };
    nodes.into_iter().filter(|node| !node.is_empty()).cloned().collect()
}

fn document(value: &impl serde::Serialize) -> Vec<u8> {
    // Only maps with keys that are not texts cannot be written.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Returns the text of an error, with the name of the record that has it.
fn named(record: &'static str) -> impl Fn(RecordError) -> String {
    move |e| {
        let cause =
            std::error::Error::source(&e).map_or(String::new(), |cause| format!(": {cause}"));
        format!("the record `{record}` of the job is not valid: {e}{cause}")
    }
}

/// Turns seconds of UNIX time into a time. Seconds beyond the range of times become its ends.
pub(super) fn time_of(seconds: f64) -> Timestamp {
    Timestamp::from_nanos((seconds * 1e9) as i64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn task() -> ArchivedTask {
        let summary = json!({
            "version": skopos_model::task::SUMMARY_VERSION,
            "task": {"class": "align", "command": ["align", "-x"], "folder": "/data",
                "monitor": "skopos 0.1.0",
                "rank": {"job": "4711", "rank": 3, "size": 4, "launcher": "slurm"}},
            "host": {"node": "n01", "kernel": "6", "cores": 2, "memory_bytes": 1},
            "start_seconds": 1.5, "end_seconds": 3.0,
            "ended": {"exit_type": "limit", "status": null, "signal": 9,
                "limits": ["memory: 5.1 GiB > 4 GiB"], "guilty": null},
            "limits_set": [{"name": "resident_bytes_max", "most": 4.0, "unit": "bytes"},
                {"name": "magic", "most": 1.0, "unit": ""}],
            "level": 1, "resources": {},
            "mechanisms": [], "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
            "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0
        });
        ArchivedTask {
            number: 7,
            hash: [0xab; 32],
            set: "autumn".to_owned(),
            document: summary.to_string(),
            summary: serde_json::from_value(summary).expect("a report"),
            files: None,
        }
    }

    fn files(left_out: u64) -> TaskFiles {
        let file = json!({"path": "/data/in", "kind": "file", "device": 1, "inode": 1, "opens": 1,
            "closes": 1, "reads": 2, "writes": 0, "read_bytes": 9, "written_bytes": 0,
            "stream_read_bytes": 0, "stream_written_bytes": 0, "read_sizes": [], "write_sizes": [],
            "maps": 0, "mapped_bytes": 0});
        let files = json!({"class": "align", "method": "preload", "completeness": "all",
            "files": [file], "files_left_out": left_out, "left_out": file});
        serde_json::from_value(files).expect("files")
    }

    fn sequences(records: &Records) -> Vec<(i64, Kind)> {
        let records = records.batch.records.iter();
        records.map(|(at, record)| (*at, record.get().expect("a record").kind)).collect()
    }

    #[test]
    fn a_job_follows_from_its_report_alone() {
        let records = records_of(&task()).expect("valid");
        assert_eq!(records.batch, records_of(&task()).expect("valid").batch);
        assert_eq!(records.batch.producer, format!("import/{}", "ab".repeat(16)));
        let first = records.batch.records[0].1.get().expect("a record");
        assert_eq!((first.job, first.node), (&*format!("task-{}", "ab".repeat(16)), "n01"));
        assert_eq!(first.time, Timestamp::from_nanos(1_500_000_000));
        let start = first.start().expect("a start");
        assert_eq!((&*start.user, &*start.application, &*start.launcher), ("", "align", "slurm"));
        assert_eq!(start.nodes, BTreeSet::from(["n01".to_owned()]));
        assert_eq!(start.tags, BTreeSet::from(["imported", "set=autumn"].map(str::to_owned)));
        let requested = BTreeMap::from([("resident_bytes_max".to_owned(), 4.0)]);
        assert_eq!(start.requested, requested);
        let details: Vec<(&str, &str)> =
            start.details.iter().map(|(name, value)| (&**name, &**value)).collect();
        let expected = [("monitor", "skopos 0.1.0"), ("parallel_job", "4711"), ("rank", "3")];
        assert_eq!(details, expected);
        let end = records.batch.records[2].1.get().expect("a record");
        let of_end = end.end().expect("an end");
        assert_eq!(of_end.state, skopos_model::job::JobState::OutOfMemory);
        assert_eq!((of_end.signal, of_end.end_seconds), (Some(9), Some(3.0)));
        assert_eq!(end.time, Timestamp::from_nanos(3_000_000_000));
    }

    /// A hub that has the task without its files takes them from a later import.
    #[test]
    fn files_come_after_all_other_records() {
        let usual = [(START, Kind::Start), (REPORT, Kind::Report), (END, Kind::End)];
        let check = |files, more: &[(i64, Kind)], why: Option<&str>| {
            let records = records_of(&ArchivedTask { files, ..task() }).expect("valid");
            assert_eq!(sequences(&records), [&usual[..], more].concat());
            assert_eq!(records.without_files.as_deref(), why);
        };
        check(None, &[], None);
        check(Some(Ok(files(0))), &[(FILES, Kind::Files)], None);
        check(Some(Ok(files(2))), &[(FILES, Kind::Files), (LOSS, Kind::Loss)], None);
        check(Some(Err("damaged".to_owned())), &[], Some("damaged"));
        let mut long = files(0);
        long.files[0].path = "p".repeat(10_000);
        let why = "the record `files` of the job is not valid: a path has 10000 bytes; at most 8192 are allowed";
        check(Some(Ok(long)), &[], Some(why));
    }

    #[test]
    fn a_task_that_no_hub_takes_is_named_with_the_reason() {
        let mut long = task();
        long.summary.task.class = "x".repeat(2_000);
        let why = records_of(&long).expect_err("refused");
        assert!(
            why.starts_with("the record `start` of the job is not valid: `application`"),
            "{why}"
        );
    }

    #[test]
    fn the_joined_report_of_a_parallel_job_has_the_nodes_of_its_ranks() {
        let mut joined = task();
        joined.summary.host.node = "n01,n02".to_owned();
        joined.summary.task.rank = None;
        let rank = |rank: u32, node: &str| {
            json!({"rank": rank, "node": node,
            "exit_type": "normal", "status": 0, "signal": null, "start_seconds": 1.0,
            "wall_seconds": null, "cpu_seconds": null, "resident_bytes_max": null,
            "read_bytes": null, "written_bytes": null})
        };
        let job = json!({"id": "4711", "launcher": "pmi", "ranks_total": 2,
            "ranks": [rank(0, "n01"), rank(1, "n02")], "ranks_left_out": 0, "missing": [],
            "missing_total": 0});
        joined.summary.job = Some(serde_json::from_value(job).expect("a job"));
        let records = records_of(&joined).expect("valid");
        let first = records.batch.records[0].1.get().expect("a record");
        let start = first.start().expect("a start");
        assert_eq!((first.node, &*start.launcher), ("", "pmi"));
        assert_eq!(start.nodes, BTreeSet::from(["n01", "n02"].map(str::to_owned)));
    }
}
