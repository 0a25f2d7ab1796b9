//! An intake on a disk that fails and forgets: what was acknowledged is in a part or in a log, exactly once.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};

use super::jobs::SealedParts;
use super::limits::IntakeLimits;
use super::{Intake, PushOutcome, Pushed, Refusal};
use crate::jobs::entry::JobEntry;
use crate::jobs::part::{JobPart, Mark, PartRef, StoredRecord};
use crate::log::Error;
use crate::log::simulated::{Failures, Random, SimulatedDisk};
use crate::rounds::{rounds, rounds_in};

const FOLDER: &str = "/sts";

/// Seeds that run by default; `SKOPOS_CRASH_SEEDS` has another number.
const SEEDS: u64 = 2000;

/// The longest step of the clock: four days, in nanoseconds.
const MOST_CLOCK_STEP: u64 = 4 * 86_400_000_000_000;

/// A long-time storage that never fails.
#[derive(Debug, Default)]
struct Parts(RefCell<BTreeMap<JobId, Vec<JobPart>>>);

impl SealedParts for Parts {
    fn of_job(&self, id: &JobId) -> Result<(u32, Vec<Mark>, JobEntry), Error> {
        let parts = self.0.borrow();
        let parts = parts.get(id).map_or(&[][..], Vec::as_slice);
        let mut entry = JobEntry::new("s", id.clone());
        let records = parts.iter().flat_map(|part| &part.records);
        records.filter_map(StoredRecord::get).for_each(|record| entry.add(&record));
        let mut marks: Vec<Mark> = Vec::new();
        for mark in parts.iter().flat_map(|part| &part.marks) {
            match marks.iter_mut().find(|known| known.producer == mark.producer) {
                Some(known) => *known = known.clone().max(mark.clone()),
                None => marks.push(mark.clone()),
            }
        }
        Ok((parts.len() as u32, marks, entry))
    }
}

const JOBS: [&str; 4] = ["1", "2", "a/b", "it's"];

fn id(job: &str) -> JobId {
    JobId::new(job, 0).expect("an id")
}

/// The content names the record, so that each can be told from all others.
fn name(producer: usize, epoch: i64, sequence: i64) -> String {
    format!("[\"p{producer}\",{epoch},{sequence}]")
}

/// A pushed record, and whether it was acknowledged as durable.
#[derive(Debug)]
struct Known {
    job: usize,
    producer: usize,
    epoch: i64,
    sequence: i64,
    is_durable: bool,
}

struct Run {
    disk: SimulatedDisk,
    random: Random,
    intake: Option<Intake>,
    parts: Parts,
    now: i64,
    /// The epoch and the next sequence of each producer.
    producers: Vec<(i64, i64)>,
    pushed: Vec<Known>,
    /// Parts that could not be sealed.
    stuck: Vec<JobPart>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x0107);
        let producers = vec![(1, 0); 1 + random.below(4) as usize];
        let (disk, parts, pushed) = (SimulatedDisk::new(seed), Parts::default(), Vec::new());
        let stuck = Vec::new();
        let mut run = Self { disk, random, intake: None, parts, now: 1, producers, pushed, stuck };
        run.open();
        run
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    fn open(&mut self) {
        self.stuck.clear();
        self.disk.fail(Failures::default());
        self.disk.leave_space(1 << 40);
        let disk = Arc::new(self.disk.clone());
        let limits = IntakeLimits { settle: Duration::ZERO, ..IntakeLimits::default() };
        let opened = Intake::on(disk, Path::new(FOLDER), limits, &self.parts, self.now());
        self.intake = Some(opened.expect("opened"));
    }

    fn intake(&mut self) -> &mut Intake {
        self.intake.as_mut().expect("opened")
    }

    fn push(&mut self) {
        self.now += 1;
        let producer = self.random.below(self.producers.len() as u64) as usize;
        if self.random.once_in(60) {
            self.producers[producer] = (self.producers[producer].0 + 1, 0);
        }
        let job = self.random.below(JOBS.len() as u64) as usize;
        let (epoch, next) = self.producers[producer];
        let sequence = next + self.random.below(3) as i64;
        let (text, content) = (format!("p{producer}"), name(producer, epoch, sequence));
        let is_end = self.random.once_in(10);
        let (kind, content) =
            if is_end { (Kind::End, "{}") } else { (Kind::Spans, content.as_str()) };
        let (job_name, time) = (JOBS[job], Timestamp::from_nanos(self.now));
        let content = content.as_bytes();
        let record = JobRecord { kind, job: job_name, generation: 0, node: "", time, content };
        let pushed = Pushed { producer: &text, epoch, sequence, record };
        let now = self.now();
        let Self { intake: Some(intake), parts, .. } = self else { return };
        match intake.push(&pushed, parts, now) {
            Ok(PushOutcome::Accepted) => {
                let again = intake.push(&pushed, parts, now);
                assert_eq!(again, Ok(PushOutcome::Duplicate));
                self.producers[producer].1 = sequence + 1;
                if !is_end {
                    let is_durable = false;
                    self.pushed.push(Known { job, producer, epoch, sequence, is_durable });
                }
            }
            Err(Refusal::Full(_) | Refusal::Uncommitted) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Notes what the intake acknowledges.
    fn note(&mut self) {
        let intake = self.intake.as_ref().expect("opened");
        for known in &mut self.pushed {
            let producer = format!("p{}", known.producer);
            let up_to = intake.durable(&producer, known.epoch);
            known.is_durable |= up_to.is_some_and(|up_to| known.sequence <= up_to);
        }
    }

    fn seal(&mut self) {
        let now = self.now();
        let mut parts = std::mem::take(&mut self.stuck);
        for id in self.intake().due(now, 2, u64::MAX) {
            // The logs of a disk that fails may be unreadable for now.
            let Ok(Some(part)) = self.intake().part(&id) else { continue };
            match part.read() {
                Ok(part) => parts.push(part),
                Err(_) => self.intake().release(&id),
            }
        }
        for (at, part) in parts.iter().enumerate() {
            if self.random.once_in(5) {
                // It cannot be sealed, and is tried again.
                self.stuck.push(part.clone());
                continue;
            }
            let (segment, rows) = (String::new(), part.records.len() as u64);
            let place = PartRef { number: part.number, segment, rows };
            let mut entry = self.intake().entry_before(part).expect("an open job");
            entry.add_part(part, &place);
            {
                let mut all = self.parts.0.borrow_mut();
                let known = all.entry(part.id.clone()).or_default();
                match known.get(part.number as usize) {
                    Some(sealed) => assert_eq!(sealed, part),
                    None => {
                        assert_eq!(part.number as usize, known.len());
                        known.push(part.clone());
                    }
                }
            }
            // The process may end here.
            if self.random.once_in(4) {
                self.restart();
                return;
            }
            if self.intake().sealed(part, entry).is_err() {
                self.stuck.extend_from_slice(&parts[at..]);
                let open = self.intake.as_ref().expect("opened");
                // Of a part that was sealed, a log could not be removed.
                self.stuck.retain(|part| {
                    open.job(&part.id).is_some_and(|job| job.next_part() == part.number)
                });
                return;
            }
        }
    }

    /// Checks that a part has each record that is acknowledged as sealed.
    fn check_sealed(&mut self) {
        let parts = self.parts.0.borrow();
        let records = parts.values().flatten().flat_map(|part| &part.records);
        let sealed: BTreeSet<&[u8]> =
            records.map(|record| record.get().expect("a record").content).collect();
        let intake = self.intake.as_ref().expect("opened");
        for known in &self.pushed {
            let Some(progress) = intake.progress(&format!("p{}", known.producer)) else { continue };
            let reached = progress.get();
            if known.epoch == reached.epoch && known.sequence <= reached.sealed {
                let name = name(known.producer, known.epoch, known.sequence);
                assert!(sealed.contains(name.as_bytes()), "{name} of {reached:?}");
            }
            let is_open = intake.jobs().next().is_some();
            assert!(is_open || reached.sealed == reached.durable, "{reached:?}");
        }
    }

    fn step(&mut self) {
        match self.random.below(41) {
            0..20 => (0..self.random.below(30)).for_each(|_| self.push()),
            20..28 => {
                let _ = self.intake().commit();
            }
            28..30 => {
                let now = self.now();
                let _ = self.intake().rotate_now(now);
            }
            30..34 => self.seal(),
            34 => self.disk.fail(Failures { writes: 5, syncs: 5, names: 9 }),
            35 => self.disk.fail(Failures::default()),
            36 => {
                let space = self.random.below(2000);
                self.disk.leave_space(space);
            }
            37 => self.disk.leave_space(1 << 40),
            38 => self.restart(),
            39 => self.step_clock(),
            _ => {
                self.note();
                self.intake = None;
                self.disk.crash();
                self.restart();
            }
        }
        self.note();
        self.check_shares();
        if self.random.once_in(8) {
            self.check_sealed();
        }
        if self.intake().is_lost() {
            match self.random.once_in(2) {
                true => self.restart(),
                false => self.reopen(),
            }
        }
    }

    /// Sets the clock forward or back: by nanoseconds, or by days.
    fn step_clock(&mut self) {
        let most = if self.random.once_in(2) { 50 } else { MOST_CLOCK_STEP };
        let by = self.random.below(most) as i64;
        self.now += if self.random.once_in(2) { by } else { -by };
    }

    /// Opens the intake anew without another process.
    fn reopen(&mut self) {
        self.stuck.clear();
        self.disk.fail(Failures::default());
        self.disk.leave_space(1 << 40);
        let now = self.now();
        let intake = self.intake.as_mut().expect("opened");
        intake.reopen(&self.parts, now).expect("opened anew");
        assert!(!intake.is_lost());
        self.check();
    }

    /// Ends the process, and begins another one.
    fn restart(&mut self) {
        if self.intake.is_some() {
            self.note();
        }
        self.intake = None;
        self.open();
        self.check();
    }

    /// Returns the names of the unsealed records.
    fn stored(&mut self) -> BTreeSet<String> {
        let mut stored = BTreeSet::new();
        for job in JOBS {
            for record in self.intake().unsealed(&id(job)).and_then(|it| it.read()).expect("read") {
                let record = record.get().expect("a record");
                stored.insert(String::from_utf8_lossy(record.content).into_owned());
            }
        }
        stored.remove("{}");
        stored
    }

    /// Checks that every durable record is stored, and that each stored record was pushed and is stored once. Producers
    /// go on after their last stored record, as those with a spool do.
    fn check(&mut self) {
        let mut stored: BTreeMap<String, usize> = BTreeMap::new();
        for (at, job) in JOBS.iter().enumerate() {
            let open = self.intake().unsealed(&id(job)).and_then(|it| it.read()).expect("read");
            let parts = self.parts.0.borrow();
            let sealed = parts.get(&id(job)).into_iter().flatten().flat_map(|part| &part.records);
            for record in sealed.chain(&open).filter_map(StoredRecord::get) {
                if record.kind == Kind::Spans {
                    let name = String::from_utf8_lossy(record.content).into_owned();
                    assert_eq!(record.job, *job);
                    assert_eq!(stored.insert(name.clone(), at), None, "{name} is stored twice");
                }
            }
        }
        self.pushed.retain(|known| {
            let name = name(known.producer, known.epoch, known.sequence);
            let is_stored = stored.remove(&name) == Some(known.job);
            assert!(is_stored || !known.is_durable, "{name} was acknowledged and is lost");
            is_stored
        });
        assert_eq!(stored, BTreeMap::new(), "records that no producer sent");
        self.check_shares();
    }
}

impl Run {
    /// Checks that each producer, which has an account of its own here, holds its unsealed records and jobs.
    fn check_shares(&mut self) {
        let intake = self.intake();
        let mut held: BTreeMap<u32, u64> = BTreeMap::new();
        for place in intake.jobs.values().flat_map(|job| &job.places) {
            *held.entry(place.producer).or_default() += u64::from(place.length);
        }
        for producer in intake.producers.iter() {
            let slot = intake.producers.find(&producer.name).expect("a slot");
            let account = intake.producers.accounts().held(&producer.name);
            let jobs = producer.unsealed.len() as u64;
            assert_eq!(account.bytes, held.get(&slot).copied().unwrap_or_default());
            assert_eq!((account.jobs, account.producers), (jobs, u64::from(jobs > 0)));
        }
    }
}

#[test]
fn acknowledged_records_are_stored_once_after_every_crash() {
    for seed in rounds("SKOPOS_CRASH_SEEDS", SEEDS) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            let steps = 10 + run.random.below(80);
            (0..steps).for_each(|_| run.step());
            run.intake = None;
            run.disk.crash();
            run.open();
            run.check();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_damaged_log_is_named_and_what_can_be_read_of_it_is_kept() {
    let mut damaged_bits = 0;
    for seed in rounds_in("SKOPOS_CRASH_SEEDS", SEEDS, 4) {
        let mut run = Run::new(seed);
        for _ in 0..3 {
            (0..20).for_each(|_| run.push());
            run.intake().commit().expect("committed");
        }
        let everything = run.stored();
        // The last frame is written and its sync fails, as before a restart.
        (0..20).for_each(|_| run.push());
        run.disk.fail(Failures { syncs: 1, ..Failures::default() });
        run.intake().commit().expect_err("the sync fails");
        run.intake = None;
        let (path, _) = run.disk.flip(Path::new(FOLDER)).expect("a file");
        run.open();
        let named = run.intake().damaged().to_vec();
        damaged_bits += named.len();
        let kept = run.stored();
        if named.is_empty() {
            // The bit was one of the torn tail.
            assert!(kept.is_superset(&everything), "seed {seed}: {}", path.display());
        } else {
            assert!(path.ends_with(&named[0].file), "seed {seed}: {named:?}");
        }
        run.intake = None;
        run.disk.crash();
        run.open();
        assert_eq!(run.stored(), kept, "seed {seed}: a record was kept and is lost");
    }
    assert!(damaged_bits > 0);
}
