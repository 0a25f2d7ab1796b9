//! The tables of jobs over a storage in a scratch folder: who sees which rows, who may tag, and what findings say.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use skopos_access::{Action, Caller, Invitation, Names, Role, User, may};
use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_model::task::SUMMARY_VERSION;
use skopos_query::{Engine, Registry, Source};
use skopos_rpc::analysis::loader::Loader as _;

use super::tests::{World, block_on, rows_for};
use super::{InsightInfo, Stores, register};
use crate::estimates::EstimateQuestion;
use crate::jobs::{Jobs, JobsPlace};

/// Time that only ends a hang: a busy machine seals late.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

pub(super) fn engine(place: &Arc<JobsPlace>) -> Engine {
    let source: Arc<dyn Source> = Arc::new(World::new(&[]));
    let mut registry = Registry::new(source.clone());
    let insight = |_: &_| InsightInfo { formula: None, reason: None };
    let rules = crate::rules::RulesPlace::default();
    let stores = Stores { archive: None, traces: None, jobs: place.clone(), rules };
    register(&mut registry, &source, stores, Box::new(insight)).expect("registered");
    Engine::new(registry).expect("an engine")
}

pub(super) fn place(folder: &Path) -> Arc<JobsPlace> {
    let settings = crate::jobs::JobsSettings::default();
    Arc::new(JobsPlace::new(Some(folder.join("jobs")), "site", settings))
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    Timestamp::from_nanos(since.as_nanos() as i64)
}

/// Stores a record, and returns the reason if it is refused.
pub(super) fn store(
    jobs: &Jobs,
    caller: &Caller,
    (job, kind): (&str, Kind),
    content: &[u8],
    sequence: i64,
) -> Result<(), String> {
    let record = JobRecord { kind, job, generation: 0, node: "", time: now(), content };
    let stored = jobs.store(caller, ("p", 1), |visit| visit(sequence, record)).expect("stored");
    stored.refusals.into_iter().next().map_or(Ok(()), |(_, why)| Err(why))
}

fn callers() -> Vec<Caller> {
    let mut callers = vec![
        Caller::Owner,
        Caller::Anybody,
        Caller::Stranger,
        Caller::Invited(Invitation::default()),
    ];
    for is_hub in [false, true] {
        let (site, node) = ("site".to_owned(), "ann".to_owned());
        callers.push(Caller::Node(Names { site, node, is_hub }));
    }
    for role in Role::ALL {
        for name in ["ann", "bob", "bio"] {
            for leads in [&[][..], &["bio"], &["ann"]] {
                let leads = leads.iter().map(|project| (*project).to_owned()).collect();
                callers.push(Caller::User(User { name: name.to_owned(), role, leads }));
            }
        }
    }
    callers
}

/// Users and projects of the jobs, of which some are not known.
const JOBS: [(&str, &str, &str); 5] = [
    ("a/1", "ann", ""),
    ("a'2", "ann", "bio"),
    ("b.3", "bob", "bio"),
    ("4", "bob", "astro"),
    ("5", "", ""),
];

/// The files of a task: one, and the sum of two that are not listed.
fn files() -> Json {
    let of = |path: &str, bytes: u64| {
        json!({"path": path, "kind": "file", "device": 1, "inode": 7, "opens": 1, "closes": 1,
               "reads": 0, "writes": 2, "read_bytes": 0, "written_bytes": bytes,
               "stream_read_bytes": 0, "stream_written_bytes": 0, "read_sizes": [],
               "write_sizes": [0, 0, 2], "maps": 0, "mapped_bytes": 0})
    };
    json!({"class": "align", "rank": 3, "method": "bpf", "completeness": "at_least",
           "not_counted": ["closes", "write_sizes", "stream_read_bytes"],
           "files": [of("/data/secret", 5)], "files_left_out": 2, "left_out": of("", 1)})
}

fn with_jobs(folder: &Path) -> (Arc<JobsPlace>, Arc<Jobs>) {
    let place = place(folder);
    let jobs = place.open().expect("opened");
    for (sequence, (job, user, project)) in (0..).zip(JOBS) {
        let start = json!({"user": user, "project": project, "requested": {"wall_seconds": 60.0},
                           "tags": ["secret"]});
        let end = json!({"state": "timeout"});
        let contents = [(Kind::Start, start), (Kind::Files, files()), (Kind::End, end)];
        for (sequence, (kind, content)) in (3 * sequence..).zip(contents) {
            store(&jobs, &Caller::Owner, (job, kind), content.to_string().as_bytes(), sequence)
                .expect("stored");
        }
    }
    let begun = std::time::Instant::now();
    while rows_for(&engine(&place), &Caller::Owner, "SELECT job FROM jobs WHERE state = 'timeout'")
        .map_or(0, |rows| rows.len())
        < JOBS.len()
    {
        assert!(begun.elapsed() < PATIENCE, "gave up waiting for the jobs");
        std::thread::sleep(Duration::from_millis(20));
    }
    (place, jobs)
}

/// Every caller, job and table: rows are those of the jobs that the policy lets the caller read, in lists, counts and
/// questions that name a job.
#[test]
fn no_table_has_a_row_of_a_job_that_the_caller_may_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (place, jobs) = with_jobs(folder.path());
    let engine = engine(&place);
    let (mut allowed, mut denied) = (0, 0);
    for caller in callers() {
        let ask = |sql: &str| match rows_for(&engine, &caller, sql) {
            Ok(rows) => rows,
            // A stranger asks nothing at all.
            Err(_) if may(&caller, Action::ReadFacts).is_err() => Vec::new(),
            Err(e) => panic!("{caller}: {sql}: {e}"),
        };
        let may_read = |(_, user, project): &(&str, &str, &str)| {
            let known = |text: &'static str| Some(text).filter(|text| !text.is_empty());
            let (user, project) = (*user, *project);
            let find = |text: &str| JOBS.iter().flat_map(|j| [j.1, j.2]).find(|t| *t == text);
            let (owner, project) = (find(user).and_then(known), find(project).and_then(known));
            may(&caller, Action::ReadJob { owner, project }).is_ok()
        };
        let mut readable: Vec<String> =
            JOBS.iter().filter(|job| may_read(job)).map(|job| job.0.to_owned()).collect();
        readable.sort();
        let ids: BTreeSet<JobId> =
            JOBS.iter().map(|job| JobId::new(job.0, 0).expect("an id")).collect();
        let places = jobs.places(&caller, &ids, None).expect("found");
        let mut shown: Vec<String> =
            places.portions.iter().flat_map(|p| &p.jobs).map(|of| of.job.clone()).collect();
        shown.sort();
        shown.dedup();
        assert_eq!((places.jobs, &shown), (readable.len() as u64, &readable), "{caller}");
        let log = rows_for(&engine, &caller, "SELECT question FROM job_reads LIMIT 1");
        assert_eq!(log.is_ok(), may(&caller, Action::ReadLog).is_ok(), "{caller}");
        let found = ask("SELECT job FROM job_findings WHERE verdict = 'found'");
        assert_eq!(found, readable, "{caller}");
        let count = ask("SELECT count(DISTINCT job) FROM job_findings");
        if may(&caller, Action::ReadFacts).is_ok() {
            assert_eq!(count, [readable.len().to_string()], "{caller}");
        }
        for job in &JOBS {
            let expected = usize::from(may_read(job));
            let named = job.0.replace('\'', "''");
            for (table, condition) in [
                ("jobs", ""),
                ("job_findings", "AND finding = 'wall_time'"),
                ("job_metadata", "AND value = 'secret'"),
                ("job_files", "AND path = '/data/secret'"),
            ] {
                let sql = format!("SELECT job FROM {table} WHERE job = '{named}' {condition}");
                assert_eq!(ask(&sql).len(), expected, "{caller}: {sql}");
            }
            if expected == 1 { allowed += 1 } else { denied += 1 }
        }
    }
    assert!(allowed > 40 && denied > 40, "{allowed} {denied}");
}

/// The policy decides who may tag: the owner of the hub, admins and the job's user. A lead and support staff read jobs
/// and do not change them.
#[test]
fn tags_are_those_of_callers_that_may_store_records_of_the_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_place, jobs) = with_jobs(folder.path());
    let (mut allowed, mut denied) = (0, 0);
    for (number, caller) in callers().into_iter().enumerate() {
        for (at, (job, user, _)) in JOBS.iter().enumerate() {
            let tag = format!("by={number}");
            let content = json!({"add": [tag]}).to_string();
            let sequence = 100 + at as i64;
            let stored = store(
                &jobs,
                &caller,
                (job, Kind::Tags),
                content.as_bytes(),
                100 * number as i64 + sequence,
            );
            let owner = Some(*user).filter(|user| !user.is_empty());
            let action = Action::StoreJob { node: None, owner, is_elsewhere: false };
            assert_eq!(stored.is_ok(), may(&caller, action).is_ok(), "{caller}: {job}");
            let id = skopos_model::job::JobId::new(*job, 0).expect("an id");
            let entry = jobs.entry(&Caller::Owner, &id).expect("read").expect("known");
            let is_there = entry.all_tags().contains(tag.as_str());
            assert_eq!(is_there, stored.is_ok(), "{caller}: {job}");
            if is_there { allowed += 1 } else { denied += 1 }
        }
    }
    assert!(allowed > 20 && denied > 20, "{allowed} {denied}");
}

/// Each row of a job says how many parts of its traces are missing.
#[test]
fn calls_of_a_job_say_how_many_parts_of_its_traces_are_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let traces = tempfile::tempdir().expect("a folder");
    let service = skopos_rpc::synthetic::Service { requests: 5, ..Default::default() };
    let trace = service.trace();
    for (name, bytes) in trace.names().iter().zip(trace.files()) {
        std::fs::write(traces.path().join(name), bytes).expect("written");
    }
    let (parts, _) = skopos_rpc::parts::parts(traces.path(), u64::MAX).expect("readable");
    let (place, jobs) = with_jobs(folder.path());
    let store_part = |job: &str, at: i64, content: &[u8]| {
        store(&jobs, &Caller::Owner, (job, Kind::Spans), content, at).expect("stored");
    };
    for (at, part) in (1000..).zip(&parts) {
        let content = serde_json::to_vec(part).expect("JSON");
        store_part("4", at, &content);
        store_part("5", 100 + at, &content);
    }
    store_part("5", 1200, b"{\"spans\": []}");
    let sql = "SELECT DISTINCT job, missing_parts FROM job_spans WHERE job IN ('4', '5')";
    let engine = engine(&place);
    let begun = std::time::Instant::now();
    let mut found = Vec::new();
    // Records can be read a moment after they are stored.
    while found != ["4 | 0", "5 | 1"] {
        assert!(begun.elapsed() < PATIENCE, "gave up: {found:?}");
        found = rows_for(&engine, &Caller::Owner, sql).expect("an answer");
    }
}

fn report(wall: f64, bytes: f64, at: f64) -> Json {
    let reading = |value: f64, unit: &str| {
        json!({"value": value, "unit": unit, "method": "wait4", "completeness": "all",
               "error_bound": 0.0})
    };
    json!({
        "version": SUMMARY_VERSION,
        "task": {"class": "a", "command": ["a"], "folder": "", "monitor": "skopos"},
        "host": {"node": "n01", "kernel": "6", "cores": 2, "memory_bytes": 1},
        "start_seconds": at, "end_seconds": at + wall,
        "ended": {"exit_type": "normal", "status": 0, "signal": null, "limits": [], "guilty": null},
        "level": 1,
        "resources": {"wall_seconds": reading(wall, "seconds"),
                      "resident_bytes_max": reading(bytes, "bytes")},
        "mechanisms": [], "overhead": {"cpu_seconds": 0.0, "resident_bytes_max": 1, "stops": 0},
        "disturbed": [], "findings": [], "processes": [], "processes_left_out": 0
    })
}

#[test]
fn findings_stand_on_the_records_of_the_job_and_on_earlier_jobs_of_its_class() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    let jobs = place.open().expect("opened");
    let mut sequence = 0;
    let mut send = |job: &str, kind, content: &[u8], seconds: f64| {
        sequence += 1;
        let time = Timestamp::from_nanos((seconds * 1e9) as i64);
        let record = JobRecord { kind, job, generation: 0, node: "n01", time, content };
        let stored = jobs.store(&Caller::Owner, ("p", 1), |visit| visit(sequence, record));
        assert_eq!(stored.expect("stored").refused, 0);
    };
    let gib = 1_073_741_824.0;
    for number in 0..10 {
        let (job, at) = (format!("j{number}"), 1e9 + 1000.0 * f64::from(number));
        let start = json!({"user": "ann", "application": "a", "start_seconds": at,
                           "requested": {"resident_bytes_max": 16.0 * gib}});
        let bytes = if number == 9 { 8.0 * gib } else { gib };
        send(&job, Kind::Start, start.to_string().as_bytes(), at);
        send(&job, Kind::Report, report(100.0, bytes, at).to_string().as_bytes(), at + 100.0);
        let end = json!({"state": "completed", "end_seconds": at + 100.0});
        send(&job, Kind::End, end.to_string().as_bytes(), at + 100.0);
    }
    // A leak: the first measurements come before the names of its metrics.
    let names = json!({"schema": "task", "names": ["cpu_seconds", "resident_bytes"]});
    for at in 0..60 {
        let content = JobRecord::sample_content("task", &[1.0, 1e8 + 1e7 * f64::from(at)]);
        send("leak", Kind::Sample, &content, 1e9 + f64::from(at));
        if at == 5 {
            send("leak", Kind::Metrics, names.to_string().as_bytes(), 1e9);
        }
    }
    let engine = engine(&place);
    let begun = std::time::Instant::now();
    let ask = |sql: &str| rows_for(&engine, &Caller::Owner, sql).unwrap_or_else(|e| panic!("{e}"));
    while ask("SELECT job FROM jobs WHERE state = 'completed'").len() < 10
        || ask("SELECT job FROM jobs WHERE job = 'leak'").is_empty()
    {
        assert!(begun.elapsed() < PATIENCE, "gave up waiting for the jobs");
        std::thread::sleep(Duration::from_millis(20));
    }
    let found = |job: &str| {
        ask(&format!("SELECT finding FROM job_findings WHERE job = '{job}' AND verdict = 'found'"))
    };
    assert_eq!(found("j0"), ["memory_request"]);
    assert_eq!(found("j9"), ["unlike_class"]);
    assert_eq!(found("leak"), ["memory_leak"]);
    let why = "SELECT reason FROM job_findings WHERE job = 'j3' AND finding = 'unlike_class'";
    assert_eq!(
        ask(why),
        ["there are 3 earlier jobs of the same user and application, fewer than 8"]
    );
    let late = "SELECT DISTINCT job FROM job_findings WHERE started_at >= to_timestamp_seconds(1000008000) \
                AND verdict = 'found' AND application = 'a'";
    assert_eq!(ask(late), ["j8", "j9"]);
}

#[test]
fn the_files_of_a_job_are_rows_and_fields_that_were_not_counted_are_unknown() {
    let folder = tempfile::tempdir().expect("a folder");
    let (place, _jobs) = with_jobs(folder.path());
    let engine = engine(&place);
    let sql = "SELECT job, class, rank, path, kind, files, opens, closes, writes, written_bytes, \
               stream_written_bytes, write_sizes, read_sizes, inode, completeness \
               FROM job_files WHERE job = 'a''2'";
    assert_eq!(
        rows_for(&engine, &Caller::Owner, sql).expect("answered"),
        [
            "a'2 | align | 3 | /data/secret | file | 1 | 1 | NULL | 2 | 5.0 | 0.0 | NULL | [] | 7 | at_least",
            "a'2 | align | 3 | NULL | left out | 2 | 1 | NULL | 2 | 1.0 | 0.0 | NULL | [] | NULL | at_least",
        ]
    );
    let unnamed = rows_for(&engine, &Caller::Owner, "SELECT path FROM job_files");
    assert!(unnamed.expect_err("no job").to_string().contains("must name its jobs"));
}

/// Each question is in the log of reads, with its outcome; a job that the caller may not read looks like one that is not there.
#[test]
fn every_question_is_in_the_log_of_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let (place, jobs) = with_jobs(folder.path());
    let engine = engine(&place);
    let bob = Caller::User(User { name: "bob".to_owned(), ..User::default() });
    for sql in [
        "SELECT job FROM jobs",
        "SELECT job FROM jobs WHERE job = 'a/1'",
        "SELECT value FROM job_samples WHERE job = 'a/1'",
        "SELECT value FROM job_samples WHERE job = 'a/1' AND generation = 0",
        "SELECT value FROM job_samples WHERE job = 'none'",
        "SELECT value FROM job_metadata WHERE job IN ('b.3', 'a/1')",
        "SELECT finding FROM job_findings WHERE job = '4'",
        "SELECT finding FROM job_findings WHERE job = 'a/1'",
    ] {
        rows_for(&engine, &bob, sql).expect("answered");
    }
    let refused = "SELECT count(*) FROM job_reads";
    assert!(rows_for(&engine, &bob, refused).is_err());
    let mut entries = Vec::new();
    jobs.log_of_reads(&Caller::Owner, &mut |entry| {
        if entry.user == "bob" {
            entries.push(format!(
                "{} {} {} {} {}",
                entry.question,
                entry.outcome,
                entry.jobs,
                entry.ids.join(","),
                entry.role
            ));
        }
    })
    .expect("read");
    assert_eq!(
        entries,
        [
            "search granted 2  member",
            "search refused 0 a/1 member",
            "records refused 0 a/1 member",
            "records refused 0 a/1 member",
            "records refused 0 none member",
            "metadata refused 1 b.3,a/1 member",
            "findings granted 1 4 member",
            "findings refused 0 a/1 member",
        ]
    );
    assert!(jobs.log_of_reads(&bob, &mut |_| {}).is_err());
    let rows = "SELECT question, records FROM job_reads WHERE \"user\" = 'bob' AND outcome = 'granted' \
                ORDER BY time";
    let rows = rows_for(&engine, &Caller::Owner, rows).expect("answered");
    assert_eq!(rows.len(), 2, "{rows:?}");
}

/// Every caller sees the samples of the jobs that the policy lets the caller read, though the statement names no job.
#[test]
fn samples_of_all_jobs_are_those_of_the_jobs_that_the_caller_may_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    let (jobs, engine) = (place.open().expect("opened"), engine(&place));
    let metrics = br#"{"schema":"s","names":["load"]}"#.to_vec();
    for (sequence, (job, user, project)) in (0..).zip(JOBS) {
        let start = json!({"user": user, "project": project}).to_string().into_bytes();
        let end = json!({"state": "completed"}).to_string().into_bytes();
        let sample = JobRecord::sample_content("s", &[1.5]);
        let records = [
            (Kind::Start, &start),
            (Kind::Metrics, &metrics),
            (Kind::Sample, &sample),
            (Kind::End, &end),
        ];
        for (at, (kind, content)) in (4 * sequence..).zip(records) {
            store(&jobs, &Caller::Owner, (job, kind), content, at).expect("stored");
        }
    }
    let waiting = jobs.await_sealed();
    let all = "SELECT job FROM sealed_samples WHERE metric = 'load' AND value = 1.5";
    let begun = std::time::Instant::now();
    while rows_for(&engine, &Caller::Owner, all).expect("answered").len() < JOBS.len() {
        assert!(begun.elapsed() < PATIENCE, "gave up waiting for the segments");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(waiting);
    let (mut some, mut none) = (false, false);
    for caller in callers() {
        let mut readable: Vec<String> = JOBS
            .iter()
            .filter(|(_, user, project)| {
                let known = |text: &'static str| Some(text).filter(|text| !text.is_empty());
                let (owner, project) = (known(user), known(project));
                may(&caller, Action::ReadJob { owner, project }).is_ok()
            })
            .map(|job| job.0.to_owned())
            .collect();
        readable.sort();
        let found = match rows_for(&engine, &caller, all) {
            Ok(found) => found,
            Err(_) if may(&caller, Action::ReadFacts).is_err() => continue,
            Err(e) => panic!("{caller}: {e}"),
        };
        assert_eq!(found, readable, "{caller}");
        let count = rows_for(&engine, &caller, "SELECT count(*) FROM sealed_samples");
        assert_eq!(count.expect("answered"), [readable.len().to_string()], "{caller}");
        some |= !found.is_empty();
        none |= found.is_empty();
    }
    assert!(some && none);
}

/// A list of names is about the measurements after it, whatever is sealed in between.
#[test]
fn a_schema_that_changes_in_mid_job_renames_no_earlier_measurement() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    let (jobs, engine) = (place.open().expect("opened"), engine(&place));
    let mut sequence = 0;
    let mut send = |kind, node: &str, content: &[u8]| {
        sequence += 1;
        let time = Timestamp::from_nanos(1_000_000_000 * sequence);
        let record = JobRecord { kind, job: "1", generation: 0, node, time, content };
        let stored = jobs.store(&Caller::Owner, ("p", 1), |visit| visit(sequence, record));
        assert_eq!(stored.expect("stored").refused, 0);
    };
    let names = |names: &[&str]| json!({"schema": "s", "names": names}).to_string().into_bytes();
    let sample = |value: f64| JobRecord::sample_content("s", &[value, -value]);
    let ask = |table: &str| {
        let sql = format!(
            "SELECT concat(CAST(value AS BIGINT), ' ', node, ' ', metric) FROM {table} \
             WHERE job = '1' AND value > 0 ORDER BY value"
        );
        rows_for(&engine, &Caller::Owner, &sql).expect("answered")
    };
    let await_parts = |parts: &str| {
        let waiting = jobs.await_sealed();
        let sql = "SELECT value FROM job_metadata WHERE job = '1' AND field = 'parts'";
        let begun = std::time::Instant::now();
        while rows_for(&engine, &Caller::Owner, sql).expect("answered") != [parts] {
            assert!(begun.elapsed() < PATIENCE, "gave up waiting for a segment");
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(waiting);
    };
    send(Kind::Start, "", br#"{"user":"ann"}"#);
    send(Kind::Sample, "n1", &sample(1.0));
    send(Kind::Metrics, "", &names(&["a", "b"]));
    send(Kind::Sample, "n1", &sample(2.0));
    send(Kind::Metrics, "n1", &names(&["c", "d"]));
    send(Kind::Sample, "n1", &sample(3.0));
    send(Kind::Sample, "n2", &sample(4.0));
    let begun = std::time::Instant::now();
    while ask("job_samples").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "gave up waiting for the job");
        std::thread::sleep(Duration::from_millis(20));
    }
    let first = ["1 n1 value_0", "2 n1 a", "3 n1 c", "4 n2 a"];
    assert_eq!(ask("job_samples"), first, "not sealed");
    send(Kind::End, "", br#"{"state":"completed"}"#);
    await_parts("1");
    assert_eq!(
        (ask("job_samples"), ask("sealed_samples")),
        (first.map(str::to_owned).to_vec(), ask("job_samples"))
    );
    // The lists of the first part hold on.
    send(Kind::Sample, "n1", &sample(5.0));
    send(Kind::Metrics, "", &names(&["b", "a"]));
    send(Kind::Sample, "n1", &sample(6.0));
    send(Kind::Sample, "n2", &sample(7.0));
    let all: Vec<&str> = first.into_iter().chain(["5 n1 c", "6 n1 b", "7 n2 b"]).collect();
    assert_eq!(ask("job_samples"), all, "the second part is not sealed");
    send(Kind::End, "", br#"{"state":"completed"}"#);
    await_parts("2");
    assert_eq!(ask("job_samples"), all);
    assert_eq!(ask("sealed_samples"), all);
    let late = "SELECT metric FROM sealed_samples WHERE job = '1' AND value > 0 \
                AND time >= to_timestamp_seconds(9) ORDER BY value";
    assert_eq!(rows_for(&engine, &Caller::Owner, late).expect("answered"), ["b", "b", "c"]);
}

/// A list that changes the places of metrics makes no finding, and hides none.
#[test]
fn a_finding_about_a_metric_follows_it_to_another_place_in_its_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    let (jobs, engine) = (place.open().expect("opened"), engine(&place));
    let mut sequence = 0;
    let mut send = |job: &str, kind, content: &[u8], seconds: i64| {
        sequence += 1;
        let time = Timestamp::from_nanos((1_000_000_000 + seconds) * 1_000_000_000);
        let record = JobRecord { kind, job, generation: 0, node: "n01", time, content };
        let stored = jobs.store(&Caller::Owner, ("p", 1), |visit| visit(sequence, record));
        assert_eq!(stored.expect("stored").refused, 0);
    };
    for (job, leaks) in [("leak", true), ("steady", false)] {
        for at in 0..60 {
            let resident = if leaks { 1e8 + 1e7 * at as f64 } else { 1e8 };
            // The other metric grows in the job that does not leak.
            let other = if leaks { 1.0 } else { 1e8 + 1e7 * at as f64 };
            let (names, values) = match at < 30 {
                true => (["resident_bytes", "other"], [resident, other]),
                false => (["other", "resident_bytes"], [other, resident]),
            };
            if at % 30 == 0 {
                let names = json!({"schema": "task", "names": names}).to_string();
                send(job, Kind::Metrics, names.as_bytes(), at);
            }
            send(job, Kind::Sample, &JobRecord::sample_content("task", &values), at);
        }
    }
    let begun = std::time::Instant::now();
    let ask = |sql: &str| rows_for(&engine, &Caller::Owner, sql).expect("answered");
    while ask("SELECT job FROM jobs").len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "gave up waiting for the jobs");
        std::thread::sleep(Duration::from_millis(20));
    }
    let verdict = "SELECT concat(job, ' ', verdict) FROM job_findings \
                   WHERE finding = 'memory_leak' ORDER BY job";
    assert_eq!(ask(verdict), ["leak found", "steady absent"]);
}

/// Stores jobs of which one has tags, a command, and an end, and an orphan.
fn store_many(jobs: &Jobs, count: i64) {
    let mut sequence = 0;
    let mut send = |job: &str, kind, content: &Json, seconds: i64| {
        sequence += 1;
        let (time, content) =
            (Timestamp::from_nanos(seconds * 1_000_000_000), content.to_string().into_bytes());
        let record = JobRecord { kind, job, generation: 0, node: "", time, content: &content };
        let stored = jobs.store(&Caller::Owner, ("p", 1), |visit| visit(sequence, record));
        assert_eq!(stored.expect("stored").refused, 0);
    };
    for number in 0..count {
        let mut start =
            json!({"user": "ann", "start_seconds": number, "nodes": [format!("n{number}")]});
        if number == 7 {
            start["tags"] = json!(["slow", "it's \"odd\""]);
            start["command"] = json!(["/opt/Gromacs/mdrun", "-v"]);
            start["requested"] = json!({"resident_bytes_max": 1024.0});
        }
        send(&format!("j{number:04}"), Kind::Start, &start, number);
    }
    let end = json!({"state": "failed", "exit_type": "limit", "end_seconds": 9.5,
                     "used": {"resident_bytes_max": 4e9, "cpu_seconds": 30.0}});
    send("j0007", Kind::End, &end, 10);
    send("lost", Kind::Loss, &json!({"why": "full", "records": 2}), 5000);
}

/// Conditions of SQL choose the jobs that the catalogue reads: the log of reads has their number.
#[test]
fn conditions_reach_the_catalogue_and_an_order_by_the_start_reads_few_jobs() {
    const JOBS: i64 = 3000;
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    let (jobs, engine) = (place.open().expect("opened"), engine(&place));
    store_many(&jobs, JOBS);
    let begun = std::time::Instant::now();
    let ask = |sql: &str| rows_for(&engine, &Caller::Owner, sql).unwrap_or_else(|e| panic!("{e}"));
    while ask("SELECT count(*) FROM jobs WHERE state IN ('running', 'failed', 'orphan')")
        != [(JOBS + 1).to_string()]
        || ask("SELECT job FROM jobs WHERE state = 'failed'").is_empty()
    {
        assert!(begun.elapsed().as_secs() < 120, "gave up waiting for the jobs");
        std::thread::sleep(Duration::from_millis(50));
    }
    // A reader of the log of reads waits for it, so each question has a caller of its own.
    let admin = |name: &str| {
        Caller::User(User { name: name.to_owned(), role: Role::Admin, ..User::default() })
    };
    let questions = [
        ("has(hosts, 'n7')", "j0007", 1),
        ("has(tags, 'slow') AND has(tags, 'it''s \"odd\"')", "j0007", 1),
        ("has_words(text, 'GROM* mdrun')", "j0007", 1),
        ("exit = 'limit'", "j0007", 1),
        ("exit IN ('limit', 'signal') AND generation = 0", "j0007", 1),
        ("resident_bytes_max > 1e9", "j0007", 1),
        ("cpu_seconds BETWEEN 1 AND 30", "j0007", 1),
        ("requested_bytes >= 1024", "j0007", 1),
        ("started_at > to_timestamp_seconds(2998) AND state = 'running'", "j2999", 2),
        ("ended_at <= to_timestamp_seconds(10)", "j0007", 1),
        ("state = 'orphan'", "lost", 1),
        // A condition that the catalogue does not apply is applied by the engine.
        ("has(tags, 'slow') OR state = 'orphan'", "j0007,lost", JOBS + 1),
        ("NOT has(tags, 'slow') AND ended_at IS NOT NULL", "", JOBS + 1),
    ];
    for (at, (condition, expected, _)) in questions.iter().enumerate() {
        let sql = format!("SELECT job FROM jobs WHERE {condition}");
        let found = rows_for(&engine, &admin(&format!("u{at}")), &sql);
        assert_eq!(found.expect("answered").join(","), *expected, "{condition}");
    }
    let latest = "SELECT job FROM jobs ORDER BY started_at DESC NULLS LAST, job LIMIT 3";
    let found = rows_for(&engine, &admin("latest"), latest).expect("answered");
    assert_eq!(found, ["j2998", "j2999", "lost"]);
    // Conditions that the table applies exactly leave the limit to it.
    let running = "SELECT job FROM jobs WHERE \"user\" = 'ann' AND state IN ('running', 'x') \
                   AND started_at <= to_timestamp_seconds(2000) \
                   ORDER BY started_at DESC NULLS LAST LIMIT 3";
    let found = rows_for(&engine, &admin("running"), running).expect("answered");
    assert_eq!(found, ["j1998", "j1999", "j2000"]);
    let any = "SELECT job FROM jobs WHERE \"user\" IN ('ann', 'bob') LIMIT 3";
    assert_eq!(rows_for(&engine, &admin("any"), any).expect("answered").len(), 3);
    let mut read = std::collections::BTreeMap::new();
    jobs.log_of_reads(&Caller::Owner, &mut |entry| {
        read.insert(entry.user.clone(), entry.jobs);
    })
    .expect("read");
    for (at, (condition, _, jobs)) in questions.iter().enumerate() {
        assert_eq!(read.get(&format!("u{at}")).copied(), Some(*jobs as u64), "{condition}");
    }
    for name in ["latest", "running", "any"] {
        assert!(read[name] < JOBS as u64 / 2, "{name}: {} jobs were read for three", read[name]);
    }
    let columns = "SELECT concat(hosts, ' ', tags, ' ', text) FROM jobs WHERE job = 'j0007'";
    assert_eq!(
        ask(columns),
        ["[\"n7\"] [\"it's \\\"odd\\\"\",\"slow\"] gromacs it mdrun odd opt s slow v"]
    );
}

#[test]
fn jobs_that_completed_before_a_row_of_failures_are_still_records_of_an_estimate() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    let jobs = place.open().expect("opened");
    let states = [["completed"; 2].as_slice(), &["out_of_memory"; 5]].concat();
    for (at, state) in (0..).zip(&states) {
        let begin = 1e9 + 10.0 * at as f64;
        let start = json!({"application": "solve", "start_seconds": begin,
                           "requested": {"resident_bytes_max": 50.0}});
        let used = json!({"resident_bytes_max": 30 + at, "wall_seconds": 5.0});
        let end = json!({"state": state, "end_seconds": begin + 5.0, "used": used});
        let job = format!("solve/{at}");
        for (sequence, (kind, content)) in (2 * at..).zip([(Kind::Start, start), (Kind::End, end)])
        {
            store(
                &jobs,
                &Caller::Owner,
                (job.as_str(), kind),
                content.to_string().as_bytes(),
                sequence,
            )
            .expect("stored");
        }
    }
    let engine = engine(&place);
    let begun = std::time::Instant::now();
    let ended = "SELECT job FROM jobs WHERE ended_at IS NOT NULL";
    while rows_for(&engine, &Caller::Owner, ended).map_or(0, |rows| rows.len()) < states.len() {
        assert!(begun.elapsed().as_secs() < 180, "gave up waiting for the jobs");
        std::thread::sleep(Duration::from_millis(20));
    }
    let question = EstimateQuestion::new("solve".to_owned(), "memory").expect("a resource");
    let evidence = |most| {
        let found = block_on(question.jobs(&engine, &Caller::Owner, most)).expect("read").found;
        let all = found.evidence.iter().map(|one| (one.record.value, one.is_censored));
        (all.collect::<Vec<_>>(), found.records.len(), found.unfinished)
    };
    let ended_by_limit = (50.0, true);
    let older = [vec![(30.0, false), (31.0, false)], vec![ended_by_limit; 3]].concat();
    assert_eq!(evidence(3), (older, 2, 3));
    let latest = [vec![(31.0, false)], vec![ended_by_limit; 5]].concat();
    assert_eq!(evidence(6), (latest, 1, 5), "the older one does not count");
}

#[test]
fn an_estimate_reads_few_of_the_jobs_of_an_application() {
    const JOBS: i64 = 3000;
    const BEGIN: i64 = 1_000_000_000;
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(folder.path());
    let (jobs, engine) = (place.open().expect("opened"), engine(&place));
    let start = |at: i64| json!({"application": "solve", "start_seconds": BEGIN + at});
    let starts = (0..JOBS).map(|at| (at, Kind::Start, start(at)));
    let end = |at: i64| {
        json!({"state": "completed", "end_seconds": BEGIN + at + 5,
               "used": {"resident_bytes_max": 30.0, "wall_seconds": 5.0}})
    };
    let ends = (JOBS - 3..JOBS).map(|at| (at, Kind::End, end(at)));
    for (sequence, (at, kind, content)) in (0..).zip(starts.chain(ends)) {
        let (job, content) = (format!("solve/{at}"), content.to_string());
        store(&jobs, &Caller::Owner, (job.as_str(), kind), content.as_bytes(), sequence)
            .expect("stored");
    }
    let count = |condition: &str| {
        let sql = format!("SELECT count(*) FROM jobs WHERE {condition}");
        rows_for(&engine, &Caller::Owner, &sql).unwrap_or_else(|e| panic!("{e}"))
    };
    let begun = std::time::Instant::now();
    while count("started_at IS NOT NULL") != [JOBS.to_string()]
        || count("state = 'completed'") != ["3"]
    {
        assert!(begun.elapsed().as_secs() < 180, "gave up waiting for the jobs");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (name, role) = ("scheduler".to_owned(), Role::Admin);
    let scheduler = Caller::User(User { name, role, ..User::default() });
    let question = EstimateQuestion::new("solve".to_owned(), "memory").expect("a resource");
    let answer = block_on(question.jobs(&engine, &scheduler, 3)).expect("read");
    assert_eq!((answer.found.records.len(), answer.missing.len()), (3, 0));
    let mut read = 0;
    jobs.log_of_reads(&Caller::Owner, &mut |entry| {
        if entry.user == "scheduler" {
            read += entry.jobs;
        }
    })
    .expect("read");
    assert!((3..JOBS as u64 / 2).contains(&read), "{read} jobs were read for three");
}

#[test]
fn an_estimate_names_the_copy_that_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("replicas/hub1");
    std::fs::create_dir_all(&copy).expect("a folder");
    std::fs::write(copy.join("replica"), "torn").expect("written");
    let place = place(folder.path());
    let question = EstimateQuestion::new("solve".to_owned(), "memory").expect("a resource");
    let answer = block_on(question.jobs(&engine(&place), &Caller::Owner, 3)).expect("read");
    // Both statements lack it, and the answer names it once, or twice if the hub has tried to read it between them.
    let lacks = "the copy of the jobs of hub1, which ";
    assert!(answer.missing.iter().all(|part| part.starts_with(lacks)), "{:?}", answer.missing);
    assert!(matches!(answer.missing.len(), 1 | 2), "{:?}", answer.missing);
}
