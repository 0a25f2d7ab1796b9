//! Streams that flood beside streams that send little.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_store::jobs::IntakeLimits;

use super::looked_up::LookedUp;
use super::segments::SegmentsPlace;
use super::shared::now;
use super::store::Jobs;
use super::stored::StoreError;
use super::tests::{eventually, limits};
use super::turn::TURN_BYTES;
use crate::catalogue::CataloguePlace;
use crate::turns::block_on;

const OWNER: Caller = Caller::Owner;

/// Streams that send one record each.
const OTHERS: usize = 20;

/// Streams that flood.
const FLOODS: usize = 2;

/// Length of a record of a flood.
const RECORD_BYTES: usize = 4096;

/// The most records of a flood: four times the room before a commit.
const MOST: i64 = (64 << 20) / RECORD_BYTES as i64;

/// Time that ends a test which hangs.
const PATIENCE: Duration = Duration::from_secs(180);

fn open(folder: &std::path::Path) -> Jobs {
    let places = (&SegmentsPlace::new(folder, None), &CataloguePlace::new(folder, None));
    Jobs::open(folder, "s", limits(IntakeLimits::default()), places).expect("opened")
}

fn record<'r>(job: &'r str, content: &'r [u8]) -> JobRecord<'r> {
    JobRecord { kind: Kind::Spans, job, generation: 0, node: "", time: now(), content }
}

/// Ends the floods, also when a test fails.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends a batch of [`MOST`] records, or until `is_done`, and counts them. A storage that is full is tried again at once.
fn flood(jobs: &Jobs, producer: &str, sent: &AtomicI64, is_done: &AtomicBool) {
    let content = format!("[\"{}\"]", "x".repeat(RECORD_BYTES));
    let stored = jobs.store(&OWNER, (producer, 1), |visit| {
        let (mut sequence, begun) = (0, Instant::now());
        while sequence < MOST && !is_done.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < PATIENCE, "the others wait for as long as the flood goes on");
            match visit(sequence, record(producer, content.as_bytes())) {
                Ok(()) => {
                    sequence += 1;
                    sent.store(sequence, Ordering::Relaxed);
                }
                Err(StoreError::Busy(_)) => thread::yield_now(),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    });
    stored.expect("stored");
}

/// Checks that all records of a producer are there, once.
fn check_all(jobs: &Jobs, producer: &str, count: i64) {
    assert!(count > 0, "{producer} sent nothing");
    assert!(jobs.wait_durable(&OWNER, (producer, 1), count - 1, PATIENCE), "{producer}");
    let id = JobId::new(producer, 0).expect("an id");
    let pieces = jobs.pieces(&OWNER, &id).expect("found").into_iter();
    let records: usize = pieces.map(|piece| jobs.read(&id, piece).expect("read").len()).sum();
    assert_eq!(records as i64, count, "{producer}");
}

#[test]
fn a_batch_that_fills_the_room_of_a_commit_leaves_some_to_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let (sent, is_done) = (AtomicI64::new(0), AtomicBool::new(false));
    let store = |at: usize| {
        let producer = format!("other-{at}");
        let is_stored = || {
            let stored = jobs.store(&OWNER, (&producer, 1), |visit| visit(0, record("7", b"[]")));
            stored.is_ok()
        };
        eventually("the storage takes a record beside the flood", is_stored);
        assert!(jobs.wait_durable(&OWNER, (&producer, 1), 0, PATIENCE), "{producer}");
    };
    let store = &store;
    thread::scope(|scope| {
        let done = Done(&is_done);
        scope.spawn(|| flood(&jobs, "flood", &sent, &is_done));
        // A commit writes 16 MiB at most.
        let filled = (15 << 20) / RECORD_BYTES as i64;
        eventually("the flood has begun", || sent.load(Ordering::Relaxed) > filled);
        let others: Vec<_> = (0..OTHERS).map(|at| scope.spawn(move || store(at))).collect();
        let ended: Vec<_> = others.into_iter().map(|other| other.join().is_ok()).collect();
        drop(done);
        assert!(ended.iter().all(|is_ok| *is_ok), "{ended:?}");
    });
    check_all(&jobs, "flood", sent.load(Ordering::Relaxed));
}

#[test]
fn each_stream_beside_a_flood_has_its_turn_after_a_bounded_number_of_commits() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let is_done = AtomicBool::new(false);
    let sent: [AtomicI64; FLOODS] = Default::default();
    let commits = || *jobs.commits().borrow();
    let commits = &commits;
    let store = |at: usize| {
        let producer = format!("other-{at}");
        let mut came = 0;
        let stored = jobs.store(&OWNER, (&producer, 1), |visit| {
            // The turn has come, and is not over yet.
            came = commits();
            visit(0, record("7", b"[]"))
        });
        assert_eq!(stored.expect("taken at once").accepted, 1);
        assert!(jobs.wait_durable(&OWNER, (&producer, 1), 0, PATIENCE), "{producer}");
        came
    };
    let store = &store;
    thread::scope(|scope| {
        let done = Done(&is_done);
        let held = block_on(jobs.turn(&OWNER, 0));
        for (at, sent) in sent.iter().enumerate() {
            let (jobs, is_done) = (&jobs, &is_done);
            scope.spawn(move || flood(jobs, &format!("flood-{at}"), sent, is_done));
        }
        let others: Vec<_> = (0..OTHERS).map(|at| scope.spawn(move || store(at))).collect();
        eventually("all streams wait", || jobs.shared.turns.count(&OWNER) == 1 + FLOODS + OTHERS);
        let before = commits();
        drop(held);
        let ended: Vec<_> = others.into_iter().map(thread::ScopedJoinHandle::join).collect();
        drop(done);
        for came in ended {
            let waited = came.expect("stored") - before;
            assert!(waited <= (FLOODS + OTHERS) as u64, "{waited} commits before its turn");
        }
    });
    for (at, sent) in sent.iter().enumerate() {
        check_all(&jobs, &format!("flood-{at}"), sent.load(Ordering::Relaxed));
    }
    let turns = Jobs::numbers(Some(&jobs)).into_iter().find(|(it, _)| it.name == "turns_total");
    assert!(turns.is_some_and(|(_, count)| count > (FLOODS + OTHERS) as u64), "{turns:?}");
}

#[test]
fn a_long_record_is_paid_for_with_later_turns() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let content = format!("[\"{}\"]", "x".repeat(3 * TURN_BYTES as usize));
    let turns = || {
        let counted = Jobs::numbers(Some(&jobs));
        counted.into_iter().find(|(it, _)| it.name == "turns_total").map_or(0, |(_, count)| count)
    };
    let store = |owed, from: usize| {
        let turn = block_on(jobs.turn(&OWNER, owed));
        let (stream, looked_up) = ((jobs.session(), &OWNER), &mut LookedUp::default());
        jobs.store_in(turn, stream, ("p", 1), looked_up, |visit| {
            (from..2).try_for_each(|at| visit(at as i64, record("7", content.as_bytes())))
        })
    };
    let (first, rest) = store(0, 0);
    assert!(matches!(rest, Some(StoreError::TurnOver)), "{rest:?}");
    assert_eq!((first.passed, first.accepted, first.owed / TURN_BYTES), (1, 1, 2));
    let before = turns();
    let (second, rest) = store(first.owed, first.passed);
    assert!(rest.is_none(), "{rest:?}");
    assert_eq!((second.passed, second.accepted), (1, 1));
    assert_eq!(turns() - before, 3, "two turns are passed over");
    let mut all = first;
    all.add(second);
    assert_eq!((all.passed, all.accepted, all.last), (2, 2, Some(1)));
}

#[test]
fn bytes_that_wait_are_counted_until_they_are_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = open(folder.path());
    let waiting = || {
        let counted = Jobs::numbers(Some(&jobs));
        counted.into_iter().find(|(it, _)| it.name == "waiting_bytes").map_or(0, |(_, count)| count)
    };
    let (one, other) = (jobs.waiting(1000), jobs.waiting(24));
    assert_eq!(waiting(), 1024);
    drop(one);
    assert_eq!(waiting(), 24);
    drop(other);
    assert_eq!(waiting(), 0);
}
