//! The storage of a site in a scratch folder: who may store what, and what survives a restart and a step that fails.

use std::time::{Duration, Instant};

use skopos_access::{Caller, Names, Role, User};
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_store::jobs::{Change, IntakeLimits, JobPart, Retention, StoredRecord};

use super::chores::Chores;
use super::looked_up::LookedUp;
use super::segments::SegmentsPlace;
use super::shared::now;
use super::store::{Jobs, JobsLimits};
use super::stored::{StoreError, Stored};
use crate::catalogue::CataloguePlace;
use crate::turns::block_on;

pub(super) const LIMITS: IntakeLimits = IntakeLimits {
    max_bytes: 64 << 20,
    max_jobs: 1000,
    max_job_records: 1000,
    max_job_bytes: 8 << 20,
    settle: Duration::ZERO,
    seal_every: Duration::from_secs(3600),
    forget_after: Duration::from_secs(3600),
};

pub(super) fn limits(intake: IntakeLimits) -> JobsLimits {
    JobsLimits { intake, ..JobsLimits::default() }
}

fn open(folder: &std::path::Path) -> Jobs {
    let places = (&SegmentsPlace::new(folder, None), &CataloguePlace::new(folder, None));
    Jobs::open(folder, "s", limits(LIMITS), places).expect("opened")
}

fn node(name: &str) -> Caller {
    Caller::Node(Names { site: "s".to_owned(), node: name.to_owned(), is_hub: false })
}

fn user(name: &str) -> Caller {
    let name = name.to_owned();
    Caller::User(User { name, role: Role::Member, ..User::default() })
}

/// Stores one record of a job with the sequence `sequence`, and returns why it was refused.
fn store(
    jobs: &Jobs,
    caller: &Caller,
    (job, node): (&str, &str),
    (sequence, kind, document): (i64, Kind, &str),
) -> Result<(), String> {
    let record =
        JobRecord { kind, job, generation: 0, node, time: now(), content: document.as_bytes() };
    let stored = jobs.store(caller, ("p", 1), |visit| visit(sequence, record)).expect("stored");
    match stored {
        Stored { refusals, .. } if !refusals.is_empty() => Err(refusals[0].1.clone()),
        _ => Ok(()),
    }
}

pub(super) fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < Duration::from_secs(180), "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn id(job: &str) -> JobId {
    JobId::new(job, 0).expect("an id")
}

#[test]
fn a_job_stays_that_of_its_user_and_nodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let start = |user: &str, nodes: &str| format!(r#"{{"user":"{user}","nodes":[{nodes}]}}"#);
    let (ann, eve) = (start("ann", r#""n01""#), start("eve", r#""n01""#));
    let begin = |caller: &Caller, job, at, document: &str| {
        store(&jobs, caller, job, (at, Kind::Start, document))
    };
    // A user begins own ids alone, so a number of the batch system cannot be taken before its prolog.
    begin(&user("eve"), ("7", ""), 0, &eve).expect_err("not her id");
    begin(&user("eve"), ("ann/1", ""), 1, &eve).expect_err("not her id");
    begin(&user("eve"), ("eve/1", ""), 2, &ann).expect_err("not her name");
    begin(&user("eve"), ("eve/1", ""), 3, &eve).expect("her own");
    begin(&node("n02"), ("7", "n02"), 0, &ann).expect_err("the job does not run there");
    begin(&node("n01"), ("7", "n01"), 0, &ann).expect("the prolog");
    // A later start changes neither the user nor the project.
    begin(&node("n01"), ("7", "n01"), 1, &eve).expect_err("another user");
    begin(&user("ann"), ("7", ""), 0, r#"{"user":"ann","project":"x"}"#).expect_err("a project");
    begin(&user("ann"), ("7", ""), 1, &ann).expect("the same again");
    // Records about a job come from its nodes, its user, or the owner of the hub.
    let end = |caller: &Caller, at: (&str, &str), n| {
        store(&jobs, caller, at, (n, Kind::End, r#"{"state":"failed"}"#))
    };
    end(&user("eve"), ("7", ""), 9).expect_err("not her job");
    end(&node("n02"), ("7", "n02"), 9).expect_err("not on its nodes");
    end(&node("n02"), ("7", "n01"), 10).expect_err("about another node");
    end(&Caller::Anybody, ("7", ""), 9).expect_err("nobody");
    end(&node("n01"), ("7", "n01"), 9).expect("its node");
    // It is the same after the job was sealed.
    eventually("the job is sealed", || {
        let entry = jobs.entry(&Caller::Owner, &id("7")).expect("read").expect("known");
        !entry.parts.is_empty()
    });
    begin(&node("n01"), ("7", "n01"), 20, &eve).expect_err("another user");
    end(&user("eve"), ("7", ""), 20).expect_err("not her job");
    assert!(jobs.entry(&user("ann"), &id("7")).expect("read").is_some());
    assert!(jobs.entry(&user("eve"), &id("7")).expect("read").is_none());
    assert!(jobs.pieces(&user("eve"), &id("7")).expect("read").is_empty());
    assert!(jobs.entry(&node("n01"), &id("7")).expect("read").is_none(), "a node reads no job");
}

#[test]
fn a_catalogue_that_is_gone_is_made_again_from_the_segments() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let owner = Caller::Owner;
    for (at, (kind, document)) in
        (0..).zip([(Kind::Start, r#"{"user":"ann"}"#), (Kind::End, r#"{"state":"completed"}"#)])
    {
        store(&jobs, &owner, ("7", ""), (at, kind, document)).expect("stored");
    }
    let is_sealed = |jobs: &Jobs| {
        let entry = jobs.entry(&owner, &id("7")).expect("read");
        entry.is_some_and(|entry| entry.parts.len() == 1 && entry.user() == Some("ann"))
    };
    eventually("the job is sealed", || is_sealed(&jobs));
    drop(jobs);
    for name in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    let jobs = open(folder.path());
    assert!(is_sealed(&jobs));
    // A record that was acknowledged is a duplicate, although its log is gone.
    let again = jobs.store(&owner, ("p", 1), |visit| {
        let (kind, content) = (Kind::Start, &br#"{"user":"ann"}"#[..]);
        visit(0, JobRecord { kind, job: "7", generation: 0, node: "", time: now(), content })
    });
    assert_eq!(again.expect("known").duplicates, 1);
    drop(jobs);
    let segments = SegmentsPlace::new(folder.path(), None);
    let places = (&segments, &CataloguePlace::new(folder.path(), None));
    let other =
        Jobs::open(folder.path(), "other", limits(LIMITS), places).expect_err("another site");
    assert!(other.to_string().contains("belong to the site `s`"), "{other}");
}

#[test]
fn chores_merge_and_remove_segments_and_the_catalogue_follows() {
    /// More small segments than are left alone.
    const SEGMENTS: usize = 66;
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let shared = &jobs.shared;
    let seal = |job: &str, number: u32| {
        let (id, node) = (id(job), "n01");
        let record = |kind, content: &[u8]| {
            let time = now();
            StoredRecord::of(&JobRecord { kind, job, generation: 0, node, time, content })
        };
        let records = vec![record(Kind::Start, br#"{"user":"ann"}"#), record(Kind::End, b"{}")];
        let part = JobPart { id, number, records, marks: Vec::new() };
        let placed = shared.lts.seal(std::slice::from_ref(&part), now()).expect("sealed");
        let mut entry = shared.lts.entry("s", &part.id).expect("an entry");
        assert_eq!(entry.parts.last(), Some(&placed[0].part));
        entry.end = None;
        let segments = [placed[0].part.segment.clone()];
        let entries = [entry];
        let change = Change { entries: &entries, segments: &segments, ..Change::default() };
        shared.catalogue.apply(&change).expect("applied");
    };
    (0..SEGMENTS).for_each(|at| seal(&at.to_string(), 0));
    let mut chores = Chores::new();
    chores.run(shared).expect("merged");
    let (segments, parts, _) = shared.lts.size();
    assert_eq!((segments, parts), (1, SEGMENTS));
    let known = shared.catalogue.segments("").expect("read");
    assert_eq!(known.len(), 1, "{known:?}");
    for at in 0..SEGMENTS {
        let entry = jobs.entry(&Caller::Owner, &id(&at.to_string())).expect("read").expect("known");
        assert_eq!(entry.parts[0].segment, known[0]);
    }

    // Of a job with parts in two segments, the older part is removed.
    seal("0", 1);
    let (_, _, bytes) = shared.lts.size();
    let limits = Retention { max_age: Duration::MAX, max_bytes: bytes - 1 };
    chores.follow(shared, shared.lts.retain(&limits, now())).expect("removed");
    let known = shared.catalogue.segments("").expect("read");
    let left = jobs.entry(&Caller::Owner, &id("0")).expect("read").expect("its last part is left");
    assert_eq!(left.parts.iter().map(|part| &part.segment).collect::<Vec<_>>(), [&known[0]]);
    assert_eq!(jobs.entry(&Caller::Owner, &id("1")).expect("read"), None);
    assert_eq!(shared.lts.size().0, known.len());
    let removed = Jobs::numbers(Some(&jobs)).into_iter();
    let removed = removed.filter(|(metric, _)| metric.name == "removed_parts_total");
    assert_eq!(removed.map(|(_, count)| count).collect::<Vec<_>>(), [SEGMENTS as u64]);
}

#[test]
fn a_stream_ends_when_the_storage_has_lost_records_that_were_not_durable() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let session = jobs.session();
    let store = |session, sequence| {
        let turn = block_on(jobs.turn(&Caller::Owner, 0));
        let (stream, looked_up) = ((session, &Caller::Owner), &mut LookedUp::default());
        let (stored, rest) = jobs.store_in(turn, stream, ("p", 1), looked_up, |visit| {
            let (job, content) = ("7", &br#"{"user":"ann"}"#[..]);
            let (kind, node, time) = (Kind::Start, "", now());
            visit(sequence, JobRecord { kind, job, generation: 0, node, time, content })
        });
        rest.map_or(Ok(stored), Err)
    };
    assert_eq!(store(session, 0).expect("stored").accepted, 1);
    jobs.shared.reopened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(store(session, 1), Err(StoreError::Lost)));
    assert_eq!(store(jobs.session(), 1).expect("a new stream").accepted, 1);
}

/// Stores one record of the node `n01` in a turn of its stream. Returns the effect and the reason why it was not taken.
fn push(
    jobs: &Jobs,
    looked_up: &mut LookedUp,
    job: &str,
    (sequence, kind, document): (i64, Kind, &str),
) -> (Stored, Option<StoreError>) {
    let (caller, content) = (node("n01"), document.as_bytes());
    let turn = block_on(jobs.turn(&caller, 0));
    let record = JobRecord { kind, job, generation: 0, node: "n01", time: now(), content };
    jobs.store_in(turn, (jobs.session(), &caller), ("p", 1), looked_up, |visit| {
        visit(sequence, record)
    })
}

#[test]
fn a_start_that_came_since_a_look_up_decides_who_may_store_records_of_its_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let looked_up = &mut LookedUp::default();
    let end = (Kind::End, r#"{"state":"failed"}"#);
    let own = (Kind::Start, r#"{"user":"eve","nodes":["n01"]}"#);
    let other = |job: &str, sequence, (kind, document)| {
        store(&jobs, &node("n02"), (job, "n02"), (sequence, kind, document)).expect("its node");
    };
    let start = (Kind::Start, r#"{"user":"ann","nodes":["n02"]}"#);
    let look_up = |looked_up: &mut LookedUp, job: &str, (kind, document)| {
        let (_, rest) = push(&jobs, looked_up, job, (0, kind, document));
        let Some(StoreError::Lookup(lookup)) = rest else { panic!("{job} is known: {rest:?}") };
        jobs.look_up(&lookup, looked_up).expect("looked up");
    };
    let counts = |looked_up: &mut LookedUp, job: &str, (sequence, kind, document)| {
        let (stored, rest) = push(&jobs, looked_up, job, (sequence, kind, document));
        assert!(rest.is_none(), "{job}: {rest:?}");
        (stored.accepted, stored.refused)
    };

    // The other node stores the start between the look-up and the next turn.
    look_up(looked_up, "7", end);
    other("7", 0, start);
    assert_eq!(counts(looked_up, "7", (0, end.0, end.1)), (0, 1));

    // It stores the start after a record that the look-up allowed.
    look_up(looked_up, "8", end);
    assert_eq!(counts(looked_up, "8", (1, end.0, end.1)), (1, 0));
    other("8", 1, start);
    assert_eq!(counts(looked_up, "8", (2, own.0, own.1)), (0, 1));

    // The job has started, ended and left the intake.
    look_up(looked_up, "9", own);
    let _awaiting = jobs.await_sealed();
    other("9", 2, start);
    other("9", 3, end);
    eventually("the job is sealed", || jobs.shared.intake().job(&id("9")).is_none());
    look_up(looked_up, "9", own);
    assert_eq!(counts(looked_up, "9", (3, own.0, own.1)), (0, 1));
    let entry = jobs.entry(&Caller::Owner, &id("9")).expect("read").expect("known");
    assert_eq!(entry.user(), Some("ann"));
}
