//! The long-time storage on a disk that fails, forgets and flips bits: a sealed part is readable, exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::Timestamp;
use skopos_model::job::{JobId, JobRecord, Kind};

use super::{Changes, Lts, Placed, Retention};
use crate::jobs::part::{JobPart, Mark, StoredRecord};
use crate::log::simulated::{Failures, Random, SimulatedDisk};
use crate::log::{Disk as _, Error};
use crate::rounds::rounds;

const FOLDER: &str = "/lts";

/// Seeds that run by default; `SKOPOS_CRASH_SEEDS` has another number.
const SEEDS: u64 = 400;

fn at(time: i64) -> Timestamp {
    Timestamp::from_nanos(time)
}

fn job(number: u64) -> JobId {
    let odd = ["7", "a/../b", "it's \"7\"", "übung", "-rf *", "x.parquet"];
    JobId::new(odd[number as usize % odd.len()], (number / 6) as u32).expect("an id")
}

fn part(id: &JobId, number: u32, time: i64, size: u64) -> JobPart {
    let record = |kind, offset: u64, content: &[u8]| {
        let (job, generation, time) = (id.job(), id.generation(), at(time + offset as i64));
        StoredRecord::of(&JobRecord { kind, job, generation, node: "n01", time, content })
    };
    let mut records = vec![record(Kind::Start, 0, br#"{"user":"ann","tags":["a"]}"#)];
    for sample in 0..size {
        let values = [sample as f64, time as f64, -0.0];
        records.push(record(Kind::Sample, sample, &JobRecord::sample_content("node", &values)));
    }
    let mark = Mark { producer: "p".to_owned(), epoch: 1, sequence: time };
    JobPart { id: id.clone(), number, records, marks: vec![mark] }
}

fn open(disk: &SimulatedDisk) -> Lts {
    Lts::on(Arc::new(disk.clone()), Path::new(FOLDER)).expect("opened")
}

type Key = (JobId, u32);

struct Run {
    disk: SimulatedDisk,
    random: Random,
    lts: Option<Lts>,
    time: i64,
    /// Parts that were returned as sealed, and not as removed.
    sealed: BTreeMap<Key, JobPart>,
    /// Parts that may exist, because sealing or removing them failed.
    unsure: BTreeMap<Key, JobPart>,
    /// The next number of each job.
    numbers: BTreeMap<JobId, u32>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed);
        let lts = Some(open(&disk));
        let random = Random::new(seed ^ 0x5EED);
        let (sealed, unsure, numbers) = Default::default();
        Self { disk, random, lts, time: 1, sealed, unsure, numbers }
    }

    fn lts(&self) -> &Lts {
        self.lts.as_ref().expect("opened")
    }

    fn seal(&mut self) {
        let mut parts: Vec<JobPart> = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let id = job(self.random.below(12));
            // A part that failed is sealed again first, as the intake does.
            let known = self.unsure.values().chain(self.sealed.values());
            let again = known.filter(|part| part.id == id).nth(self.random.below(4) as usize);
            let again = again.cloned();
            self.time += 100;
            let number = self.numbers.entry(id.clone()).or_default();
            parts.push(again.unwrap_or_else(|| {
                *number += 1;
                part(&id, *number, self.time, self.time as u64 % 7)
            }));
        }
        match self.lts().seal(&parts, at(self.time)) {
            Ok(placed) => {
                assert_eq!(placed.len(), parts.len());
                for (part, place) in parts.into_iter().zip(placed) {
                    assert_eq!((&place.id, place.part.number), (&part.id, part.number));
                    let key = (part.id.clone(), part.number);
                    self.unsure.remove(&key);
                    self.sealed.insert(key, part);
                }
            }
            Err(e) => {
                assert!(matches!(e, Error::Io { .. }), "{e}");
                for part in parts {
                    let key = (part.id.clone(), part.number);
                    if !self.sealed.contains_key(&key) {
                        self.unsure.insert(key, part);
                    }
                }
            }
        }
    }

    /// Notes what chores changed.
    fn note(&mut self, changes: Changes) {
        assert_eq!(changes.damaged, []);
        for place in changes.removed {
            let key = (place.id, place.part.number);
            // A removal whose sync failed may be undone by a crash.
            if let Some(part) = self.sealed.remove(&key) {
                self.unsure.insert(key, part);
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..24 => self.seal(),
            24..28 => {
                // Each pair of small segments is merged.
                let slots: Vec<u64> = self.lts().state().segments.keys().copied().collect();
                let first = self.random.below(slots.len() as u64 + 1) as usize;
                let slots: Vec<u64> = slots.into_iter().skip(first).take(3).collect();
                let mut changes = Changes::default();
                let writing = self.lts().writing.lock().expect("not poisoned");
                let caught_up = self.lts().catch_up();
                if caught_up.is_ok() {
                    let _ = self.lts().rewrite(&slots, at(self.time), &mut changes);
                }
                drop(writing);
                self.note(changes);
            }
            28 => {
                let bytes = self.lts().size().2;
                let max_bytes = bytes - bytes.min(self.random.below(12_000));
                let limits = Retention { max_age: Duration::MAX, max_bytes };
                let changes = self.lts().retain(&limits, at(self.time));
                self.note(changes);
            }
            29..31 => self.disk.fail(Failures { writes: 9, syncs: 5, names: 9 }),
            31..33 => self.disk.fail(Failures::default()),
            33 => {
                let space = self.random.below(9000);
                self.disk.leave_space(space);
            }
            34 => self.disk.leave_space(1 << 40),
            35 => {
                self.check();
                self.lts = None;
                self.reopen();
            }
            _ => {
                self.lts = None;
                self.disk.crash();
                self.reopen();
            }
        }
    }

    fn reopen(&mut self) {
        self.disk.fail(Failures::default());
        self.disk.leave_space(1 << 40);
        self.lts = Some(open(&self.disk));
        assert_eq!(self.lts().damaged(), []);
        // The intake forgets the records of parts that it finds here.
        for key in self.check() {
            if let Some(part) = self.unsure.remove(&key) {
                self.sealed.insert(key, part);
            }
        }
    }

    /// Checks that every sealed part is readable once, and that nothing else is there than parts that may be. Returns all.
    fn check(&self) -> BTreeSet<Key> {
        let lts = self.lts();
        let mut found = BTreeSet::new();
        for (id, last) in &self.numbers {
            let places = lts.find(id).expect("found");
            let mut parts_rows = 0;
            for place in &places {
                let key = (id.clone(), place.number);
                let known = self.sealed.get(&key).or_else(|| self.unsure.get(&key));
                let read = lts.read_part(id, place.number).expect("read");
                assert_eq!(read.as_ref(), known, "{id} {}", place.number);
                parts_rows += read.map_or(0, |part| part.records.len());
                assert!(found.insert(key), "{id} has part {} twice", place.number);
            }
            let all: usize = places.iter().map(|place| place.rows as usize).sum();
            assert_eq!(parts_rows, all);
            assert!(places.iter().all(|place| place.number <= *last));
        }
        for key in self.sealed.keys() {
            assert!(found.contains(key), "part {} of {} is lost", key.1, key.0);
        }
        assert_eq!(lts.ids().expect("ids"), found.iter().map(|(id, _)| id.clone()).collect());
        found
    }

    /// Checks that each job has one entry, with its parts in their order.
    fn check_entries(&self) {
        let mut ids = BTreeSet::new();
        self.lts()
            .entries("site", |entry| {
                let places: Vec<u32> = entry.parts.iter().map(|part| part.number).collect();
                assert!(places.is_sorted_by(|a, b| a < b) && ids.insert(entry.id.clone()));
                Ok(())
            })
            .expect("read");
        assert_eq!(ids, self.lts().ids().expect("ids"));
    }
}

#[test]
fn sealed_parts_are_readable_exactly_once_after_every_crash() {
    for seed in rounds("SKOPOS_CRASH_SEEDS", SEEDS) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            let steps = 10 + run.random.below(50);
            (0..steps).for_each(|_| run.step());
            run.lts = None;
            run.disk.crash();
            run.reopen();
            run.check_entries();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

/// Makes a folder with segments of one part each.
fn filled(segments: u64) -> (SimulatedDisk, Lts, Vec<JobPart>) {
    let disk = SimulatedDisk::new(1);
    let lts = open(&disk);
    let parts: Vec<JobPart> =
        (0..segments).map(|at| part(&job(at), 0, at as i64 * 100, 9)).collect();
    for part in &parts {
        lts.seal(std::slice::from_ref(part), part_time(part)).expect("sealed");
    }
    (disk, lts, parts)
}

fn part_time(part: &JobPart) -> Timestamp {
    at(part.marks[0].sequence + 50)
}

fn keys(placed: &[Placed]) -> Vec<Key> {
    placed.iter().map(|place| (place.id.clone(), place.part.number)).collect()
}

#[test]
fn sealing_again_changes_nothing_and_other_records_are_refused() {
    let (disk, lts, parts) = filled(3);
    let size = lts.size();
    let twice = [parts[2].clone(), parts[0].clone(), parts[2].clone()];
    let placed = lts.seal(&twice, at(999)).expect("sealed");
    assert_eq!(keys(&placed), [(job(2), 0), (job(0), 0), (job(2), 0)]);
    assert_eq!((placed[0].part.rows, lts.size()), (10, size));
    let new = part(&job(9), 0, 5, 1);
    let placed = lts.seal(&[new.clone(), new.clone()], at(999)).expect("sealed");
    assert_eq!(placed[0], placed[1]);
    for other in [part(&job(0), 0, 7, 2), JobPart { marks: Vec::new(), ..parts[0].clone() }] {
        let e = lts.seal(&[part(&job(10), 0, 5, 1), other], at(999)).expect_err("refused");
        assert!(matches!(e, Error::Refused { .. }), "{e}");
    }
    assert_eq!(lts.find(&job(10)).expect("found"), []);
    drop(lts);
    let lts = open(&disk);
    assert_eq!(lts.read(&job(0)).expect("read"), parts[0].records);
    assert_eq!(lts.marks(&job(2)).expect("marks"), parts[2].marks);
}

#[test]
fn marks_are_the_last_ones_of_all_parts() {
    let lts = open(&SimulatedDisk::new(1));
    let mark =
        |producer: &str, epoch, sequence| Mark { producer: producer.to_owned(), epoch, sequence };
    let first = JobPart { marks: vec![mark("a", 1, 9), mark("b", 1, 3)], ..part(&job(0), 0, 1, 1) };
    let second =
        JobPart { marks: vec![mark("a", 1, 4), mark("a", 2, 1)], ..part(&job(0), 1, 1, 1) };
    lts.seal(&[second, first], at(1)).expect("sealed");
    let expected = [mark("a", 1, 9), mark("a", 2, 1), mark("b", 1, 3)];
    assert_eq!(lts.marks(&job(0)).expect("marks"), expected);
    assert_eq!(lts.marks(&job(1)).expect("marks"), []);
}

#[test]
fn small_segments_become_one_and_entries_stay_the_same() {
    let entries = |lts: &Lts| {
        let mut all = Vec::new();
        let gathered = lts.entries("site", |mut entry| {
            entry.parts.iter_mut().for_each(|part| part.segment.clear());
            all.push(serde_json::to_string(&entry).expect("a document"));
            Ok(())
        });
        gathered.expect("entries");
        all
    };
    let (disk, lts, parts) = filled(64);
    assert_eq!(lts.compact(at(9)), Changes::default(), "64 small segments are not too many");
    let later = part(&job(0), 1, 700, 3);
    lts.seal(std::slice::from_ref(&later), at(9)).expect("sealed");
    let before = entries(&lts);
    let changes = lts.compact(at(9));
    assert_eq!((changes.moved.len(), changes.errors.len(), lts.size().0), (65, 0, 1));
    assert_eq!(entries(&lts), before);
    for place in &changes.moved {
        assert!(lts.find(&place.id).expect("found").contains(&place.part));
    }
    drop(lts);
    let lts = open(&disk);
    assert_eq!((entries(&lts), lts.size().0), (before, 1));
    let all = [parts[0].records.clone(), later.records].concat();
    assert_eq!(lts.read(&job(0)).expect("read"), all);
}

/// Bits that are flipped by default, a segment each; `SKOPOS_FLIPPED_BITS` has another number.
const BITS: u64 = 200;

#[test]
fn a_damaged_segment_is_named_and_its_other_parts_are_saved() {
    for seed in rounds("SKOPOS_FLIPPED_BITS", BITS) {
        let disk = SimulatedDisk::new(seed);
        let lts = open(&disk);
        let parts: Vec<JobPart> = (0..12).map(|at| part(&job(at), 0, 5, 900)).collect();
        let placed = lts.seal(&parts, at(9)).expect("sealed");
        lts.find(&job(0)).expect("its metadata are in memory");
        let (path, bit) = disk.flip(Path::new(FOLDER)).expect("a file");
        let damaged = lts.verify().expect("verified");
        assert_eq!(damaged.len(), 1, "seed {seed}: {} {bit}", path.display());
        assert_eq!(damaged[0].damage.file, placed[0].part.segment);
        let changes = lts.repair(&damaged[0].damage.file, at(9));
        assert_eq!((&changes.damaged, changes.errors.len()), (&damaged, 0), "seed {seed}");
        let lost = keys(&damaged[0].lost);
        assert_eq!(changes.moved.len() + lost.len(), parts.len(), "seed {seed}");
        drop(lts);
        let lts = open(&disk);
        assert_eq!(lts.damaged().len(), 1);
        for part in &parts {
            let is_lost = lost.contains(&(part.id.clone(), 0));
            let read = lts.read_part(&part.id, 0).expect("read");
            assert_eq!(read.as_ref(), (!is_lost).then_some(part), "seed {seed}");
        }
    }
}

#[test]
fn a_segment_without_readable_metadata_is_moved_aside_when_the_folder_is_opened() {
    let (disk, lts, parts) = filled(3);
    drop(lts);
    let mut flipped;
    loop {
        flipped = disk.flip(Path::new(FOLDER)).expect("a file");
        if crate::jobs::Segment::open_on(&disk, &flipped.0).is_err() {
            break;
        }
        disk.flip_back(&flipped.0, flipped.1);
    }
    let name = flipped.0.file_name().and_then(|name| name.to_str()).expect("a name");
    for _ in 0..2 {
        let lts = open(&disk);
        let damaged = lts.damaged();
        assert_eq!(damaged.iter().map(|it| it.file.as_str()).collect::<Vec<_>>(), [name]);
        let read = parts.iter().filter(|part| lts.read(&part.id).expect("read") == part.records);
        assert_eq!(read.count(), 2);
    }
}

#[test]
fn a_segment_that_somebody_else_removed_is_named() {
    let (disk, lts, parts) = filled(2);
    drop(lts);
    let lts = open(&disk);
    let name = lts.find(&parts[0].id).expect("found")[0].segment.clone();
    drop(lts);
    let lts = open(&disk);
    disk.remove(&Path::new(FOLDER).join(&name)).expect("removed");
    lts.read(&parts[0].id).expect_err("it is gone");
    let named: Vec<String> = lts.damaged().into_iter().map(|damage| damage.file).collect();
    assert_eq!(named, [name]);
    // A removal of its own is none.
    let (_, lts, parts) = filled(3);
    let all = Retention { max_age: Duration::MAX, max_bytes: 0 };
    assert_eq!(lts.retain(&all, part_time(&parts[0])).removed.len(), 3);
    assert!(lts.read(&parts[0].id).expect("nothing").is_empty());
    assert_eq!(lts.damaged(), []);
}

#[test]
fn retention_removes_the_oldest_parts_and_a_clock_set_ahead_does_not_remove_all() {
    let day = 86_400_000_000_000;
    let disk = SimulatedDisk::new(1);
    let lts = open(&disk);
    let ids: Vec<JobId> = (0..5).map(job).collect();
    for (number, id) in ids.iter().enumerate() {
        // A record of the far future does not keep a segment.
        let time = if number == 0 { i64::MAX - 100 } else { number as i64 * day };
        lts.seal(&[part(id, 0, time, 1)], at(number as i64 * day + 9)).expect("sealed");
    }
    let limits =
        |days: u64, max_bytes| Retention { max_age: Duration::from_secs(86_400 * days), max_bytes };
    let far = at(3650 * day);
    assert_eq!(lts.retain(&limits(6, u64::MAX), far), Changes::default());
    let changes = lts.retain(&limits(3, u64::MAX), at(4 * day + 20));
    assert_eq!(keys(&changes.removed), [(ids[0].clone(), 0), (ids[1].clone(), 0)]);
    let one = lts.size().2 / 3;
    let changes = lts.retain(&limits(900, one * 2 + 300), at(4 * day + 20));
    assert_eq!(keys(&changes.removed), [(ids[2].clone(), 0)]);
    assert_eq!(lts.read(&ids[2]).expect("read"), []);
    drop(lts);
    assert_eq!(open(&disk).ids().expect("ids"), ids[3..].iter().cloned().collect());
}

/// A job of SLAte's evaluation: a start of 2.4 kB, measurements of 45 values, an end. The values are those of a node with
/// noise: 25 counters, of which half rise, and 20 gauges with three digits.
fn slate(id: &JobId, samples: i64, random: &mut Random) -> JobPart {
    let record = |kind, time, content: &[u8]| {
        let (job, generation) = (id.job(), id.generation());
        StoredRecord::of(&JobRecord { kind, job, generation, node: "n01", time, content })
    };
    let script =
        format!("{{\"user\":\"ann\",\"details\":{{\"script\":\"{}\"}}}}", text(2350, random));
    let mut records = vec![record(Kind::Start, at(0), script.as_bytes())];
    let mut counters = [0.0; 25];
    for sample in 0..samples {
        // Every second counter is of an idle device.
        let busy = counters.iter_mut().step_by(2);
        busy.for_each(|counter| *counter += (random.next() % 100_000) as f64);
        let gauges = (0..20).map(|_| (500 + sample / 30 + random.below(16) as i64) as f64 / 1000.0);
        let values: Vec<f64> = counters.into_iter().chain(gauges).collect();
        let content = JobRecord::sample_content("node-1", &values);
        records.push(record(Kind::Sample, at(sample * 1_000_000_000), &content));
    }
    records.push(record(
        Kind::End,
        at(samples * 1_000_000_000),
        br#"{"state":"completed","status":0}"#,
    ));
    let mark = Mark { producer: "n01".to_owned(), epoch: 1, sequence: samples + 2 };
    JobPart { id: id.clone(), number: 0, records, marks: vec![mark] }
}

fn text(length: usize, random: &mut Random) -> String {
    let words =
        ["#SBATCH --nodes=", "module load ", "srun ./simulate --input ", "export OMP_NUM_THREADS="];
    let mut text = String::new();
    while text.len() < length {
        text.push_str(words[random.below(4) as usize]);
        text.push_str(&random.below(10_000).to_string());
        text.push_str("\\n");
    }
    text
}

#[test]
#[ignore = "a measurement; run it alone in a release build"]
fn seals_per_second_of_the_profiles_of_slate() {
    for samples in [80, 281] {
        let folder = tempfile::tempdir_in(std::env::var("SKOPOS_MEASURE_IN").unwrap_or(".".into()));
        let folder = folder.expect("a folder");
        let lts = Lts::open(folder.path()).expect("opened");
        let mut random = Random::new(1);
        let (mut seconds, mut jobs) = (0.0, 0);
        for batch in 0..6 {
            let parts: Vec<JobPart> = (0..500)
                .map(|at| slate(&job_number(batch * 500 + at), samples, &mut random))
                .collect();
            let begun = Instant::now();
            lts.seal(&parts, at(1)).expect("sealed");
            seconds += begun.elapsed().as_secs_f64();
            jobs += parts.len();
        }
        let bytes = lts.size().2 / jobs as u64;
        let begun = Instant::now();
        for number in 0..1000 {
            let id = job_number(number * 7919 % 3000);
            assert_eq!(lts.read(&id).expect("read").len() as i64, samples + 2);
        }
        let read = begun.elapsed().as_secs_f64() / 1000.0;
        let begun = Instant::now();
        assert_eq!(lts.verify().expect("verified"), []);
        let verified = jobs as f64 / begun.elapsed().as_secs_f64();
        println!(
            "{samples} records: {:.0} jobs/s sealed, {bytes} bytes a job, {:.2} ms to read a job, {verified:.0} jobs/s verified",
            jobs as f64 / seconds,
            read * 1e3
        );
    }
}

fn job_number(number: u64) -> JobId {
    JobId::new(format!("{}", 4_000_000 + number), 0).expect("an id")
}
