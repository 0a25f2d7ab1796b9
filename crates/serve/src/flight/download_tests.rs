//! Places of jobs beside a copy of another hub's jobs.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_hub::counts::Counts;
use skopos_hub::jobs::{JobsPlace, JobsSettings};
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_query::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use skopos_query::{Described, Engine, Node, Registry, Row, Source, Wanted};
use tonic::Code;

use super::download::{Downloads, Matching, ids_of};
use crate::downloads::{JobName, PlacesCommand, PlacesMetadata, VERSION};

/// Time that ends a test which hangs.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug)]
struct Empty;

impl Source for Empty {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(0)
    }
    fn latest(&self, _: &Wanted, _: &mut dyn FnMut(&Row<'_>)) {}
    fn samples(&self, _: &Wanted, _: RangeInclusive<Timestamp>, _: &mut dyn FnMut(&Row<'_>)) {}
    fn topics(&self, _: &Wanted, _: &mut dyn FnMut(&Described<'_>)) {}
    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

fn place(folder: PathBuf) -> JobsPlace {
    JobsPlace::new(Some(folder), "s", JobsSettings::default())
}

/// Stores the start of a job.
fn store(place: &JobsPlace, job: &str) {
    let (jobs, content) = (place.open().expect("opened"), br#"{"user":"ann"}"#);
    let (kind, time) = (Kind::Start, Timestamp::from_nanos(1));
    let record = JobRecord { kind, job, generation: 0, node: "", time, content };
    let stored = jobs.store(&Caller::Owner, ("p", 1), |visit| visit(0, record)).expect("stored");
    assert_eq!(stored.accepted, 1, "{stored:?}");
    assert!(jobs.wait_durable(&Caller::Owner, ("p", 1), 0, PATIENCE));
}

/// Makes the copy of a hub's jobs with one job.
fn make_copy(folder: &Path, job: &str) {
    // A copy has the folders of a hub's jobs, and a file beside them.
    store(&place(folder.to_owned()), job);
    std::fs::write(folder.join("replica"), format!("{:016x}\n{:016x}\n", 7, 8)).expect("written");
}

#[test]
fn places_of_own_jobs_are_told_while_a_copy_is_read_and_the_copy_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    make_copy(&folder.path().join("replicas/hub1"), "ann/1");
    let place = Arc::new(place(folder.path().join("jobs")));
    store(&place, "ann/2");
    let engine = Arc::new(Engine::new(Registry::new(Arc::new(Empty))).expect("an engine"));
    let downloads = Downloads::new((engine, place), Arc::new(Counts::default()), None);
    let name = |job: &str| JobName { job: job.to_owned(), generation: Some(0) };
    let jobs = vec![name("ann/1"), name("ann/2")];
    let command =
        PlacesCommand { skopos_jobs: VERSION, jobs, partial: true, ..PlacesCommand::default() };
    let ask = || {
        let answer = downloads.0.answer(&Caller::Owner, command.clone(), None).expect("an answer");
        let metadata: PlacesMetadata =
            serde_json::from_slice(&answer.app_metadata).expect("metadata");
        (metadata.jobs, answer.endpoint.len(), metadata.missing)
    };
    // The first question has the copy read on another thread.
    let missing = "the copy of the jobs of hub1, which is still being read".to_owned();
    assert_eq!(ask(), (1, 1, vec![missing.clone()]));
    let begun = Instant::now();
    let mut answer = ask();
    while answer.2 == [missing.clone()] {
        assert!(begun.elapsed() < PATIENCE, "the copy is not read");
        std::thread::sleep(Duration::from_millis(20));
        answer = ask();
    }
    assert_eq!(answer, (2, 2, Vec::new()));
}

#[test]
fn an_answer_that_lacks_parts_is_refused_unless_the_client_takes_it() {
    let folder = tempfile::tempdir().expect("a folder");
    // A copy that cannot be read is missing in each answer.
    let copy = folder.path().join("replicas/hub1");
    std::fs::create_dir_all(&copy).expect("a folder");
    std::fs::write(copy.join("replica"), "torn").expect("written");
    let with_copy = place(folder.path().join("jobs"));
    let apart = tempfile::tempdir().expect("a folder");
    let alone = place(apart.path().join("jobs"));
    let of_copy = "the copy of the jobs of hub1";
    let of_statement = "samples of n02";
    for (place, lacks) in [(with_copy, of_copy), (alone, of_statement)] {
        store(&place, "ann/2");
        let engine = Arc::new(Engine::new(Registry::new(Arc::new(Empty))).expect("an engine"));
        let parts = (engine, Arc::new(place));
        let downloads = Downloads::new(parts, Arc::new(Counts::default()), None);
        let answer = |partial| {
            let condition = Some("true".to_owned());
            let skopos_jobs = VERSION;
            let command =
                PlacesCommand { skopos_jobs, condition, partial, ..PlacesCommand::default() };
            let ids = [JobId::new("ann/2", 0).expect("an id")].into();
            let missing = vec![of_statement.to_owned(); usize::from(lacks == of_statement)];
            downloads.0.answer(&Caller::Owner, command, Some(Matching { ids, missing }))
        };
        let refused = answer(false).expect_err("refused");
        assert_eq!(refused.code(), Code::Unavailable);
        let why = refused.message();
        assert!(why.contains(lacks) && why.contains("\"partial\": true"), "{why}");
        let metadata = answer(true).expect("an answer").app_metadata;
        let metadata: PlacesMetadata = serde_json::from_slice(&metadata).expect("metadata");
        assert_eq!((metadata.jobs, metadata.missing.len()), (1, 1));
        assert!(metadata.missing[0].starts_with(lacks), "{:?}", metadata.missing);
    }
}

#[test]
fn a_row_that_a_condition_adds_is_refused_and_no_job_is_made_of_it() {
    let rows = |job: Option<&str>, run: Option<i64>| {
        let jobs: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), job]));
        let runs: ArrayRef = Arc::new(Int64Array::from(vec![Some(0), run]));
        let columns = [("job", jobs, true), ("generation", runs, true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("a batch");
        ids_of(&[batch]).map(|ids| ids.len())
    };
    assert_eq!(rows(Some("b"), Some(i64::from(u32::MAX))).expect("jobs"), 2);
    for (job, run) in [
        (Some("b"), None),
        (Some("b"), Some(-1)),
        (Some("b"), Some(i64::from(u32::MAX) + 1)),
        (None, Some(0)),
        (Some(""), Some(0)),
    ] {
        let refused = rows(job, run).expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{job:?} {run:?}");
        assert!(refused.message().contains("is not in the table `jobs`"), "{refused:?}");
    }
}
