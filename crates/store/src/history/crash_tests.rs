//! History on a disk that fails, forgets and flips bits: what was acknowledged can be read, exactly once and in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Kind, Origin, Sample, Structured, Timestamp, Topic, Unit, Value, ValueType};

use super::listing::Listing;
use super::{Column, Damage, Folder, Level, Selection, Series};
use super::{Keeper, Limits, PushOutcome, SeriesId};
use crate::log::simulated::{Failures, Random, SimulatedDisk};

const FOLDER: &str = "/history";

/// Seeds that run by default; `SKOPOS_CRASH_SEEDS` has another number, as `make soak` sets it.
const SEEDS: u64 = 2000;

/// Bits that are flipped by default; `SKOPOS_FLIPPED_BITS` has another number.
const BITS: u64 = 2000;

fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

const TYPES: [ValueType; 4] =
    [ValueType::F64, ValueType::I64, ValueType::U64, ValueType::Structured];

fn series(number: usize) -> Series {
    let topic = Topic::new(&format!("n{}/a/m{number}", number % 2)).expect("a topic");
    let (unit, kind) = (Unit::BYTES, Kind::Gauge);
    Series { topic, unit, kind, value_type: TYPES[number % 4], since: Timestamp::from_nanos(1) }
}

fn sample(time: i64, value_type: ValueType, random: &mut Random) -> Sample {
    let bits = random.next();
    let value = match value_type {
        ValueType::I64 => Value::I64(bits.cast_signed()),
        ValueType::U64 => Value::U64(bits),
        ValueType::Structured => {
            Value::Structured(Structured::text(&"x".repeat(bits as usize % 400)))
        }
        ValueType::F64 => Value::F64((bits >> 12) as f64),
    };
    let origin = match bits % 7 {
        0 => Origin::Predicted { bound: 0.25 },
        _ => Origin::Measured,
    };
    Sample { time: Timestamp::from_nanos(time), value, origin }
}

type Stored = BTreeMap<String, Vec<Sample>>;

/// Reads everything. The damage is also that of parts that fail while they are read.
fn read(disk: &SimulatedDisk) -> (Stored, Vec<Damage>) {
    let folder = Folder::on(Arc::new(disk.clone()), PathBuf::from(FOLDER));
    let all = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
    let found = folder.find(&all).expect("the folder can be read");
    let (mut stored, mut damaged) = (Stored::new(), found.damaged);
    for part in found.parts {
        let stretches = (0..part.stretches().len()).map(|at| (at, i64::MAX)).collect();
        let selection = Selection { stretches, times: i64::MIN..=i64::MAX };
        let mut rows = Vec::new();
        for group in 0..part.groups() {
            let mut chunks = match part.read(group, &Column::ALL, &selection) {
                Ok(chunks) => chunks,
                Err(e) => {
                    damaged.push(Damage { file: String::new(), why: e.to_string() });
                    continue;
                }
            };
            for chunk in &mut chunks {
                match chunk {
                    Ok(chunk) => {
                        for run in &chunk.runs {
                            let of = &part.stretches()[run.stretch].series;
                            rows.extend((run.start..run.start + run.rows).map(|row| {
                                let sample = chunk.samples.sample(row, of.value_type);
                                (of.topic.to_string(), sample.expect("a row"))
                            }));
                        }
                    }
                    Err(e) => damaged.push(Damage { file: String::new(), why: e.to_string() }),
                }
            }
        }
        for (topic, sample) in rows {
            stored.entry(topic).or_default().push(sample);
        }
    }
    (stored, damaged)
}

/// The level at which a sample is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ack {
    Pending,
    Memory,
    Disk,
}

struct Run {
    disk: SimulatedDisk,
    random: Random,
    keeper: Option<Keeper>,
    ids: Vec<SeriesId>,
    now: i64,
    /// All samples that may be stored, in their order: number of the series, sample, acknowledgement.
    accepted: Vec<(usize, Sample, Ack)>,
    /// Number of these that earlier keepers accepted.
    before: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed);
        let mut random = Random::new(seed ^ 0x5EED);
        let ids = vec![SeriesId(0); 1 + random.below(5) as usize];
        let mut run =
            Self { disk, random, keeper: None, ids, now: 1, accepted: Vec::new(), before: 0 };
        run.open();
        run
    }

    fn keeper(&mut self) -> &mut Keeper {
        self.keeper.as_mut().expect("opened")
    }

    /// Opens the history on a disk that works again.
    fn open(&mut self) {
        self.disk.fail(Failures::default());
        self.disk.leave_space(1 << 40);
        let (disk, now) = (Arc::new(self.disk.clone()), Timestamp::from_nanos(self.now));
        let limits = Limits { max_age: Duration::from_secs(1 << 30), ..Limits::default() };
        let mut keeper = Keeper::on(disk, Path::new(FOLDER), limits, now).expect("opened");
        let all = (0..self.ids.len()).map(series).collect();
        self.ids = keeper.attach(all, true).expect("attached");
        self.keeper = Some(keeper);
        self.before = self.accepted.len();
    }

    fn push(&mut self) {
        self.now += 1;
        let number = self.random.below(self.ids.len() as u64) as usize;
        let sample = sample(self.now, series(number).value_type, &mut self.random);
        let id = self.ids[number];
        if self.keeper().push(id, &sample) == PushOutcome::Accepted {
            assert_eq!(self.keeper().push(id, &sample), PushOutcome::Duplicate);
            self.accepted.push((number, sample, Ack::Pending));
        }
    }

    /// Notes what the keeper acknowledges after an operation that may have synced the log.
    fn note(&mut self) {
        let before = self.before as u64;
        let acknowledged = |level| self.keeper.as_ref().expect("opened").acknowledged(level);
        let memory = before + acknowledged(Level::Memory);
        let synced = acknowledged(Level::Disk);
        // A sync of this keeper is also one of what earlier keepers wrote to its log, and parts are synced. Earlier logs
        // that are not sealed yet may have lost what those keepers could not sync.
        let listing = Listing::of(&self.disk, Path::new(FOLDER)).expect("listed");
        let first = if listing.logs.len() == 1 { 0 } else { before };
        let disk = if synced == 0 { 0..0 } else { first..before + synced };
        for (at, (.., ack)) in self.accepted.iter_mut().enumerate() {
            let at = at as u64;
            *ack = match *ack {
                Ack::Pending | Ack::Memory if disk.contains(&at) => Ack::Disk,
                Ack::Pending if at < memory => Ack::Memory,
                other => other,
            };
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..20 => (0..self.random.below(30)).for_each(|_| self.push()),
            20..25 => {
                let _ = self.keeper().commit(Level::Memory);
                self.note();
            }
            25..29 => {
                let _ = self.keeper().commit(Level::Disk);
                self.note();
            }
            29..31 => {
                let now = Timestamp::from_nanos(self.now);
                let _ = self.keeper().rotate_now(now);
                self.note();
            }
            31..34 => {
                let now = Timestamp::from_nanos(self.now);
                let _ = self.keeper().chores().run(now);
            }
            34 => self.disk.fail(Failures { writes: 5, syncs: 5, names: 9 }),
            35 => self.disk.fail(Failures::default()),
            36 => {
                let space = self.random.below(2000);
                self.disk.leave_space(space);
            }
            37 => self.disk.leave_space(1 << 40),
            38 => {
                // The process ends.
                self.keeper = None;
                self.check(|ack| ack != Ack::Pending);
                self.open();
                self.check(|ack| ack != Ack::Pending);
            }
            _ => {
                self.keeper = None;
                self.disk.crash();
                self.check(|ack| ack == Ack::Disk);
                self.open();
                self.check(|ack| ack == Ack::Disk);
            }
        }
    }

    /// Checks that all samples are stored whose acknowledgement is `needed`, and that nothing else is stored than
    /// accepted samples, once and in order. After an end of the process, forgets what it lost.
    fn check(&mut self, needed: impl Fn(Ack) -> bool) {
        let (stored, damaged) = read(&self.disk);
        let is_part = |damage: &&Damage| damage.file.contains("part-");
        assert_eq!(damaged.iter().find(is_part), None, "a part is damaged");
        let mut unread: BTreeMap<&str, std::slice::Iter<'_, Sample>> =
            stored.iter().map(|(topic, samples)| (topic.as_str(), samples.iter())).collect();
        let has_ended = self.keeper.is_none();
        self.accepted.retain_mut(|(number, sample, ack)| {
            let topic = series(*number).topic;
            let stored = unread.get_mut(topic.as_str());
            let is_stored = stored.is_some_and(|stored| {
                let is_next = stored.as_slice().first() == Some(sample);
                if is_next {
                    stored.next();
                }
                is_next
            });
            assert!(is_stored || !needed(*ack), "{topic} {sample:?} was acknowledged: {ack:?}");
            if is_stored && has_ended {
                // It survived.
                *ack = if needed(Ack::Memory) { (*ack).max(Ack::Memory) } else { Ack::Disk };
            }
            is_stored || !has_ended
        });
        for (topic, rest) in unread {
            assert_eq!(
                rest.as_slice(),
                &[],
                "{topic} has samples that nobody pushed, or in another order"
            );
        }
    }
}

#[test]
fn acknowledged_samples_are_there_once_and_in_order_after_every_crash() {
    for seed in 0..number_of("SKOPOS_CRASH_SEEDS", SEEDS) {
        let run = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            let steps = 10 + run.random.below(60);
            (0..steps).for_each(|_| run.step());
            run.keeper = None;
            run.disk.crash();
            run.check(|ack| ack == Ack::Disk);
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_sync_that_failed_before_a_restart_is_not_simply_repeated() {
    for seed in 0..20 {
        let mut run = Run::new(seed);
        (0..10).for_each(|_| run.push());
        run.disk.fail(Failures { syncs: 1, ..Failures::default() });
        run.keeper().commit(Level::Disk).expect_err("the sync fails");
        run.keeper = None;
        run.open();
        run.keeper().commit(Level::Disk).expect("committed");
        run.keeper = None;
        run.disk.crash();
        let (stored, _) = read(&run.disk);
        assert_eq!(stored.values().map(Vec::len).sum::<usize>(), 10, "seed {seed}");
    }
}

/// Makes a history with parts, a closed log and an open one.
fn filled(seed: u64) -> Run {
    let mut run = Run::new(seed);
    for round in 0..4 {
        for _ in 0..3 {
            (0..40).for_each(|_| run.push());
            run.keeper().commit(Level::Disk).expect("committed");
        }
        run.note();
        let now = Timestamp::from_nanos(run.now);
        if round < 3 {
            run.keeper().rotate_now(now).expect("rotated");
        }
        if round < 2 {
            assert_eq!(run.keeper().chores().run(now).expect("sealed").errors, [""; 0]);
        }
    }
    run
}

#[test]
fn each_flipped_bit_is_named_and_gives_no_wrong_row() {
    let (mut run, count) = (filled(1), number_of("SKOPOS_FLIPPED_BITS", BITS));
    let (whole, damaged) = read(&run.disk);
    assert_eq!(damaged, []);
    assert_eq!(whole.values().map(Vec::len).sum::<usize>(), run.accepted.len());
    for _ in 0..count {
        let (path, bit) = run.disk.flip(Path::new(FOLDER)).expect("a file");
        let (stored, damaged) = read(&run.disk);
        assert_ne!(damaged, [], "{} {bit}", path.display());
        for (topic, samples) in &stored {
            let mut all = whole[topic].iter();
            let is_there = samples.iter().all(|sample| all.any(|one| one == sample));
            assert!(is_there, "{} {bit}: {topic} has wrong rows", path.display());
        }
        run.disk.flip_back(&path, bit);
    }
    run.check(|ack| ack != Ack::Pending);
}

#[test]
fn a_damaged_file_is_moved_aside_and_everything_else_goes_on() {
    for seed in 0..number_of("SKOPOS_FLIPPED_BITS", BITS) / 20 {
        let mut run = filled(seed);
        let (whole, _) = read(&run.disk);
        run.keeper = None;
        let (path, bit) = run.disk.flip(Path::new(FOLDER)).expect("a file");
        let what = format!("seed {seed}: {} {bit}", path.display());
        run.open();
        (0..20).for_each(|_| run.push());
        run.keeper().commit(Level::Disk).expect("committed");
        let now = Timestamp::from_nanos(run.now);
        run.keeper().rotate_now(now).expect("rotated");
        let report = run.keeper().chores().run(now).expect("done");
        assert_eq!(report.errors, [""; 0], "{what}");
        assert_eq!(report.damaged.len(), 1, "{what}");
        assert_eq!(report.quarantined, 1, "{what}");
        let folder = Folder::on(Arc::new(run.disk.clone()), PathBuf::from(FOLDER));
        let damaged = folder.damaged().expect("listed");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(damaged.iter().any(|damage| damage.file.ends_with(name)), "{what}: {damaged:?}");
        // At most the samples of its own file are lost.
        let (stored, _) = read(&run.disk);
        let total = |all: &Stored| all.values().map(Vec::len).sum::<usize>();
        assert!(total(&stored) >= total(&whole) + 20 - 120, "{what}");
    }
}

#[test]
fn a_damaged_log_that_cannot_be_moved_aside_is_kept_until_it_can() {
    let (name, aside) = ("log-00000003", Path::new(FOLDER).join(crate::log::FOLDER));
    for seed in 0..40 {
        let mut run = filled(seed);
        while let (path, bit) = run.disk.flip(Path::new(FOLDER)).expect("a file")
            && !path.ends_with(name)
        {
            run.disk.flip_back(&path, bit);
        }
        run.disk.refuse_folder(Some(aside.clone()));
        let now = Timestamp::from_nanos(run.now);
        for _ in 0..2 {
            let report = run.keeper().chores().run(now).expect("done");
            assert_eq!((report.damaged.len(), report.errors.len()), (0, 1), "seed {seed}");
            if seed % 2 == 0 {
                run.keeper = None;
                run.open();
            }
            let logs = Listing::of(&run.disk, Path::new(FOLDER)).expect("listed").logs;
            assert!(logs.contains_key(&3), "seed {seed}: a damaged log was removed");
        }
        run.disk.refuse_folder(None);
        let report = run.keeper().chores().run(now).expect("done");
        assert_eq!(report.errors, [""; 0], "seed {seed}");
        assert_eq!(report.quarantined, 1, "seed {seed}");
        let files: Vec<&str> = report.damaged.iter().map(|damage| damage.file.as_str()).collect();
        assert_eq!(files, [name], "seed {seed}");
    }
}

#[test]
fn integers_keep_all_their_digits() {
    let mut run = Run::new(0);
    let at = |time| Timestamp::from_nanos(time);
    let folder = PathBuf::from(FOLDER);
    let values = [Value::U64(u64::MAX), Value::U64((1 << 53) + 1), Value::U64(7)];
    let ids = run.keeper().attach(vec![series(2)], false).expect("attached");
    for (time, value) in (10..).zip(&values) {
        let sample = Sample { time: at(time), value: value.clone(), origin: Origin::Measured };
        assert_eq!(run.keeper().push(ids[0], &sample), PushOutcome::Accepted);
    }
    run.keeper().rotate_now(at(20)).expect("rotated");
    run.keeper().chores().run(at(20)).expect("sealed");
    let parts = Folder::on(Arc::new(run.disk.clone()), folder).find(&(at(0)..=at(99)));
    assert_eq!(parts.expect("read").parts.len(), 2, "a part and the open log");
    let stored = &read(&run.disk).0[series(2).topic.as_str()];
    let found: Vec<&Value> = stored.iter().map(|sample| &sample.value).collect();
    assert_eq!(found, values.iter().collect::<Vec<_>>());
}
