//! Downloads of jobs over a storage in a scratch folder: whole, exactly once, whatever is sealed meanwhile, and in bounds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use skopos_access::{Caller, Role, User};
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_store::jobs::catalogue::MAX_LOOKED_UP;
use skopos_store::jobs::{Change, IntakeLimits, JobEntry, JobPart, RecordSum, StoredRecord};

use super::columns::records_of;
use super::download::{MAX_FOUND, Places, Wanted};
use super::segments::SegmentsPlace;
use super::store::Jobs;
use super::tests::{LIMITS, eventually, limits};
use crate::catalogue::CataloguePlace;

fn open(folder: &std::path::Path, intake: IntakeLimits) -> Arc<Jobs> {
    let places = (&SegmentsPlace::new(folder, None), &CataloguePlace::new(folder, None));
    Arc::new(Jobs::open(folder, "s", limits(intake), places).expect("opened"))
}

fn id(job: &str) -> JobId {
    JobId::new(job, 0).expect("an id")
}

fn record<'r>(job: &'r str, kind: Kind, time: i64, content: &'r [u8]) -> JobRecord<'r> {
    JobRecord { kind, job, generation: 0, node: "n01", time: Timestamp::from_nanos(time), content }
}

fn places(jobs: &Jobs, ids: &[&str]) -> Places {
    let ids: BTreeSet<JobId> = ids.iter().map(|job| id(job)).collect();
    jobs.places(&Caller::Owner, &ids, None).expect("found")
}

/// Downloads all portions, and checks their sums and positions.
fn download(jobs: &Arc<Jobs>, places: &Places, wanted: &Wanted) -> Vec<StoredRecord> {
    let mut all = Vec::new();
    for portion in &places.portions {
        let mut download = jobs.download(portion.jobs.clone(), wanted.clone());
        let (mut sum, mut last) = (RecordSum::default(), None);
        while let Some(batch) = download.next_batch().expect("read") {
            for placed in records_of(&batch).expect("records") {
                let job = placed.record.get().expect("a record").job.to_owned();
                let key = (job, placed.part);
                let expected = match &last {
                    Some((before, position)) if *before == key => position + 1,
                    _ => 0,
                };
                assert_eq!(placed.position, expected);
                last = Some((key, placed.position));
                sum.add(&placed.record);
                all.push(placed.record);
            }
        }
        let told = download.sum();
        assert_eq!((sum.records(), sum.crc()), (told.records(), told.crc()));
    }
    all
}

#[test]
fn records_come_exactly_once_although_they_are_sealed_after_their_places_were_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let intake = IntakeLimits { max_job_records: 8, ..LIMITS };
    let jobs = open(folder.path(), intake);
    let sample = JobRecord::sample_content("node", &[1.0]);
    let start = record("7", Kind::Start, 0, b"{\"user\":\"ann\"}");
    let mut sent = Vec::new();
    let store = |from: i64, to: i64, sent: &mut Vec<StoredRecord>| {
        for at in from..to {
            let record = if at == 0 { start } else { record("7", Kind::Sample, at, &sample) };
            eventually("there is room", || {
                jobs.store(&Caller::Owner, ("p", 1), |visit| visit(at, record)).is_ok()
            });
            sent.push(StoredRecord::of(&record));
        }
        let durable = jobs.wait_durable(&Caller::Owner, ("p", 1), to - 1, Duration::from_secs(60));
        assert!(durable);
    };
    let number_of_parts = || jobs.shared.lts.find(&id("7")).expect("found").len();
    store(0, 3, &mut sent);
    let before = places(&jobs, &["7", "none"]);
    assert_eq!((before.jobs, before.portions.len()), (1, 1));
    assert!(!before.portions[0].is_sealed);
    assert_eq!(download(&jobs, &before, &Wanted::default()), sent);
    // A part is due once it has half of the records that a job may have.
    let _awaiting = jobs.await_sealed();
    for (more, parts) in [(9, 1), (17, 2)] {
        store(sent.len() as i64, more, &mut sent);
        eventually("a part is sealed", || number_of_parts() >= parts);
    }
    assert_eq!(download(&jobs, &before, &Wanted::default()), sent, "with the first places");
    let now = places(&jobs, &["7"]);
    let sealed: u64 = now.portions.iter().filter(|p| p.is_sealed).map(|p| p.records).sum();
    assert!(sealed >= 8, "{now:?}");
    assert_eq!(now.portions.iter().map(|portion| portion.records).sum::<u64>(), sent.len() as u64);
    assert_eq!(download(&jobs, &now, &Wanted::default()), sent, "with new places");
    let only = |wanted: Wanted| download(&jobs, &now, &wanted).len();
    let kinds = BTreeSet::from(["start".to_owned()]);
    assert_eq!(only(Wanted { kinds, ..Wanted::default() }), 1);
    let (from_ns, to_ns) = (Some(5), Some(6));
    assert_eq!(
        only(Wanted { from_ns, to_ns, ..Wanted::default() }),
        3,
        "the start says what they mean"
    );
    let schemas = BTreeSet::from(["other".to_owned()]);
    assert_eq!(only(Wanted { schemas, ..Wanted::default() }), 1);
}

#[test]
fn a_part_that_is_gone_is_a_failure_and_not_an_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path(), LIMITS);
    let mut of = places(&jobs, &["7"]);
    assert_eq!((of.jobs, of.portions.len()), (0, 0));
    let gone =
        super::OfJob { job: "7".to_owned(), generation: 0, parts: vec![(0, 0)], open_from: None };
    let mut download = jobs.download(vec![gone], Wanted::default());
    let error = download.next_batch().expect_err("it is gone").to_string();
    assert!(error.contains("was removed meanwhile"), "{error}");
    of.portions.clear();
}

#[test]
fn an_answer_has_a_bounded_number_of_jobs_and_the_next_one_has_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path(), IntakeLimits { max_jobs: 4 * MAX_FOUND, ..LIMITS });
    let count = 2 * MAX_FOUND + 7;
    let names: Vec<String> = (0..count).map(|at| format!("job-{at:05}")).collect();
    jobs.store(&Caller::Owner, ("p", 1), |visit| {
        names.iter().zip(0..).try_for_each(|(job, at)| {
            visit(at, record(job, Kind::Start, at, b"{\"user\":\"ann\"}"))
        })
    })
    .expect("stored");
    let mut left: BTreeSet<JobId> = names.iter().map(|job| id(job)).collect();
    let (mut shown, mut answers) = (Vec::new(), 0);
    loop {
        let places = jobs.places(&Caller::Owner, &left, None).expect("found");
        answers += 1;
        assert!(usize::try_from(places.jobs).expect("few") <= MAX_FOUND);
        let of_answer = places.portions.iter().flat_map(|portion| &portion.jobs);
        shown.extend(of_answer.map(|of| of.job.clone()));
        let Some(after) = places.after else { break };
        left = left.split_off(&after);
        left.remove(&after);
    }
    assert_eq!((shown, answers), (names, 3));
}

/// Seals jobs with a start of a user, and tells the catalogue about them.
fn seal(jobs: &Jobs, names: &[String], user: &str) {
    let document = format!("{{\"user\":\"{user}\"}}");
    let part = |name: &String| {
        let start = StoredRecord::of(&record(name, Kind::Start, 0, document.as_bytes()));
        JobPart { id: id(name), number: 0, records: vec![start], marks: Vec::new() }
    };
    let parts: Vec<JobPart> = names.iter().map(part).collect();
    jobs.shared.lts.seal(&parts, Timestamp::from_nanos(1)).expect("sealed");
    let entry = |part: &JobPart| {
        let mut entry = JobEntry::new("s", part.id.clone());
        part.records[0].get().into_iter().for_each(|record| entry.add(&record));
        entry
    };
    let entries: Vec<JobEntry> = parts.iter().map(entry).collect();
    let change = Change { entries: &entries, ..Change::default() };
    jobs.shared.catalogue.apply(&change).expect("a change");
}

#[test]
fn the_names_of_sealed_jobs_in_an_answer_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path(), LIMITS);
    let names: Vec<String> = (0..4096).map(|at| format!("{at:0>256}")).collect();
    seal(&jobs, &names, "ann");
    let mut left: BTreeSet<JobId> = names.iter().map(|job| id(job)).collect();
    let (mut shown, mut answers) = (Vec::new(), 0);
    loop {
        let places = jobs.places(&Caller::Owner, &left, None).expect("found");
        assert_eq!(jobs.places_of(&left, None).expect("found"), places);
        answers += 1;
        let of_answer: Vec<String> = places
            .portions
            .iter()
            .flat_map(|portion| &portion.jobs)
            .map(|of| of.job.clone())
            .collect();
        let bytes: usize = of_answer.iter().map(String::len).sum();
        assert!(bytes < 768 << 10, "{bytes}");
        shown.extend(of_answer);
        let Some(after) = places.after else { break };
        left = left.split_off(&after);
        left.remove(&after);
    }
    shown.sort();
    assert_eq!((shown, answers), (names, 2));
}

#[test]
fn jobs_that_are_looked_up_together_are_those_that_a_caller_reads_one_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path(), LIMITS);
    let documents: [(&str, &[u8]); 3] =
        [("1", br#"{"user":"ann"}"#), ("2", br#"{"user":"bob"}"#), ("3", b"{}")];
    jobs.store(&Caller::Owner, ("p", 1), |visit| {
        documents
            .iter()
            .zip(0..)
            .try_for_each(|((job, document), at)| visit(at, record(job, Kind::Start, at, document)))
    })
    .expect("stored");
    seal(&jobs, &["4".to_owned(), "5".to_owned()], "ann");
    seal(&jobs, &["6".to_owned()], "bob");
    let all: Vec<JobId> = (1..9).map(|job: u32| id(&job.to_string())).collect();
    let user = |name: &str| {
        let name = name.to_owned();
        Caller::User(User { name, role: Role::Member, ..User::default() })
    };
    for (caller, expected) in [
        (Caller::Owner, vec!["1", "2", "3", "4", "5", "6"]),
        (user("ann"), vec!["1", "4", "5"]),
        (user("bob"), vec!["2", "6"]),
        (user("kim"), Vec::new()),
        (Caller::Stranger, Vec::new()),
    ] {
        let visible = jobs.visible(&caller, &all).expect("readable");
        assert_eq!(visible.iter().map(JobId::job).collect::<Vec<_>>(), expected, "{caller:?}");
        for job in &all {
            let entry = jobs.entry(&caller, job).expect("readable");
            assert_eq!(entry.is_some(), visible.contains(job), "{caller:?} {job}");
        }
    }
    // More than the catalogue takes at once.
    let many = vec![id("4"); MAX_LOOKED_UP + 1];
    assert_eq!(jobs.visible(&Caller::Owner, &many).expect("readable"), [id("4")].into());
}

#[test]
fn numbers_of_records_that_another_hub_invents_do_not_overflow() {
    let kinds = ["end", "sample"].map(|kind| (kind.to_owned(), u64::MAX)).into();
    for of in [&["sample"][..], &["end", "sample"], &["start"]] {
        let wanted = of.iter().map(|kind| (*kind).to_owned()).collect();
        let wanted = Wanted { kinds: wanted, ..Wanted::default() };
        assert_eq!(wanted.has_most(&kinds), of != ["start"], "{of:?}");
    }
}
