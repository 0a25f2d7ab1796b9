//! A caller that floods fills its share of the room, whatever producers it names, and the others have the rest.

use std::path::Path;
use std::sync::Arc;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};

use super::jobs::SealedParts;
use super::limits::IntakeLimits;
use super::{Intake, PushOutcome, Pushed, Refusal};
use crate::jobs::entry::JobEntry;
use crate::jobs::part::{Mark, PartRef};
use crate::log::Error;
use crate::log::simulated::SimulatedDisk;

const NOW: Timestamp = Timestamp::from_nanos(1);

/// The others beside the flood.
const OTHERS: usize = 20;

/// A long-time storage without parts.
struct NoParts;

impl SealedParts for NoParts {
    fn of_job(&self, id: &JobId) -> Result<(u32, Vec<Mark>, JobEntry), Error> {
        Ok((0, Vec::new(), JobEntry::new("s", id.clone())))
    }
}

fn open(limits: IntakeLimits) -> Intake {
    let disk = Arc::new(SimulatedDisk::new(1));
    Intake::on(disk, Path::new("/sts"), limits, &NoParts, NOW).expect("opened")
}

/// Offers a record of a producer, as a hub does.
fn offer(
    intake: &mut Intake,
    (producer, sequence): (&str, i64),
    job: &str,
) -> Result<PushOutcome, Refusal> {
    let content = format!("[\"{}\"]", "x".repeat(1000));
    let (kind, content) = (Kind::Spans, content.as_bytes());
    let record = JobRecord { kind, job, generation: 0, node: "", time: NOW, content };
    let pushed = Pushed { producer, epoch: 1, sequence, record };
    intake.check_share(&pushed)?;
    let outcome = intake.push(&pushed, &NoParts, NOW);
    intake.commit().expect("committed");
    outcome
}

/// Offers records of floods until each is refused. Returns the number that each got in.
fn flood(intake: &mut Intake, floods: usize, job: &dyn Fn(usize, i64) -> String) -> Vec<i64> {
    let mut next = vec![0; floods];
    let mut is_held = vec![false; floods];
    while is_held.contains(&false) {
        for at in 0..floods {
            match offer(intake, (&format!("flood-{at}"), next[at]), &job(at, next[at])) {
                Ok(_) => next[at] += 1,
                Err(Refusal::Share(_)) => is_held[at] = true,
                Err(e) => panic!("{e}"),
            }
        }
    }
    next
}

/// Checks that each of the others gets `count` records in.
fn check_others(intake: &mut Intake, count: i64, job: &dyn Fn(usize, i64) -> String) {
    for sequence in 0..count {
        for at in 0..OTHERS {
            let name = format!("other-{at}");
            let offered = offer(intake, (&name, sequence), &job(at, sequence));
            assert_eq!(offered, Ok(PushOutcome::Accepted), "{name}, {sequence}");
            assert_eq!(intake.durable(&name, 1), Some(sequence));
        }
    }
}

#[test]
fn floods_leave_room_in_the_logs_and_go_on_when_their_records_are_sealed() {
    for floods in [1, 3] {
        let mut intake = open(IntakeLimits { max_bytes: 1 << 20, ..IntakeLimits::default() });
        let of_flood = |at: usize, _| format!("flood-{at}");
        let stored = flood(&mut intake, floods, &of_flood);
        assert!(stored.iter().max() <= stored.iter().min().map(|it| it + 1).as_ref(), "{stored:?}");
        check_others(&mut intake, 2, &|at, _| format!("job-{at}"));
        // A record that was sent comes again, and is known.
        assert_eq!(offer(&mut intake, ("flood-0", 0), "flood-0"), Ok(PushOutcome::Duplicate));
        let next = stored[0];
        assert!(offer(&mut intake, ("flood-0", next), "flood-0").is_err());
        let id = JobId::new("flood-0", 0).expect("an id");
        let part = intake.part(&id).expect("read").expect("a part").read().expect("read");
        assert_eq!(part.records.len() as i64, next, "the flood lost something");
        let mut entry = intake.entry_before(&part).expect("open");
        let place = PartRef { number: 0, segment: String::new(), rows: next as u64 };
        entry.add_part(&part, &place);
        intake.sealed(&part, entry).expect("sealed");
        assert_eq!(offer(&mut intake, ("flood-0", next), "flood-0"), Ok(PushOutcome::Accepted));
    }
}

/// Offers records of one user, each of another producer, until one is refused. Returns their number, and the reason.
fn flood_of_names(
    intake: &mut Intake,
    job: &dyn Fn(i64) -> String,
    count: i64,
) -> (i64, &'static str) {
    for at in 0..count {
        match offer(intake, (&format!("user/eve/{at}"), 0), &job(at)) {
            Ok(_) => {}
            Err(Refusal::Share(what)) => return (at, what),
            Err(e) => panic!("{e}"),
        }
    }
    panic!("the flood has no end");
}

#[test]
fn a_caller_that_names_many_producers_gets_no_more_room() {
    let of_eve = |at: i64| format!("job-of-eve-{}", at % 2);
    let limits = IntakeLimits { max_bytes: 1 << 20, ..IntakeLimits::default() };
    let alone = flood(&mut open(limits), 1, &|_, _| "flood".to_owned())[0];
    let mut intake = open(limits);
    let (stored, what) = flood_of_names(&mut intake, &of_eve, 10_000);
    // Each producer costs the log some bytes of its own.
    assert!(what == "records" && stored <= alone && stored > alone / 2, "{stored} of {alone}");
    check_others(&mut intake, 2, &|at, _| format!("job-{at}"));
    assert!(offer(&mut intake, ("user/eve/new", 0), "job-of-eve-0").is_err());
    // The account outlives the process.
    let id = JobId::new("job-of-eve-1", 0).expect("an id");
    intake.reopen(&NoParts, NOW).expect("opened");
    assert!(offer(&mut intake, ("user/eve/new", 0), "job-of-eve-0").is_err());
    let part = intake.part(&id).expect("read").expect("a part").read().expect("read");
    let mut entry = intake.entry_before(&part).expect("open");
    let place = PartRef { number: 0, segment: String::new(), rows: part.records.len() as u64 };
    entry.add_part(&part, &place);
    intake.sealed(&part, entry).expect("sealed");
    assert_eq!(offer(&mut intake, ("user/eve/new", 0), "job-of-eve-0"), Ok(PushOutcome::Accepted));

    let mut intake = open(IntakeLimits { max_jobs: 200, ..IntakeLimits::default() });
    let (stored, what) = flood_of_names(&mut intake, &|at| format!("eve-{at}"), 200);
    assert!(what == "jobs" && stored < 200 - OTHERS as i64, "{stored}, {what}");
    check_others(&mut intake, 1, &|at, _| format!("job-{at}"));
}

#[test]
fn floods_of_jobs_leave_room_for_the_jobs_of_others() {
    let mut intake = open(IntakeLimits { max_jobs: 200, ..IntakeLimits::default() });
    let stored = flood(&mut intake, 2, &|at, sequence| format!("flood-{at}-{sequence}"));
    assert!(stored.iter().sum::<i64>() < 200 - OTHERS as i64, "{stored:?}");
    check_others(&mut intake, 1, &|at, _| format!("job-{at}"));
    // A flood of jobs may go on with the jobs that it has.
    let known = offer(&mut intake, ("flood-0", stored[0]), "flood-0-0");
    assert_eq!(known, Ok(PushOutcome::Accepted));
}
