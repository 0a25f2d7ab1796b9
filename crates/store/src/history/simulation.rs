//! A history on a simulated disk, beside a list of the samples that it must have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Kind, Origin, Sample, Structured, Timestamp, Topic, Unit, Value, ValueType};

use super::due::Bounds;
use super::listing::Listing;
use super::{Chores, Column, Damage, Folder, Found, Keeper, Level, Limits, PushOutcome, Selection};
use super::{Series, SeriesId};
use crate::log::simulated::{Failures, Random, SimulatedDisk};

pub(super) const FOLDER: &str = "/history";

/// Bounds with which few small parts are merged.
pub(super) const BOUNDS: Bounds = Bounds { parts: 3, bytes: 1 << 20, span: Duration::from_secs(1) };

const TYPES: [ValueType; 4] =
    [ValueType::F64, ValueType::I64, ValueType::U64, ValueType::Structured];

pub(super) fn series(number: usize) -> Series {
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

pub(super) type Stored = BTreeMap<String, Vec<Sample>>;

/// Reads everything. The damage is also that of parts that fail while they are read.
pub(super) fn read(disk: &SimulatedDisk) -> (Stored, Vec<Damage>) {
    let folder = Folder::on(Arc::new(disk.clone()), PathBuf::from(FOLDER));
    let all = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
    rows_of(folder.find(&all).expect("the folder can be read"))
}

/// Reads all rows of parts.
pub(super) fn rows_of(found: Found) -> (Stored, Vec<Damage>) {
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
pub(super) enum Ack {
    Pending,
    Memory,
    Disk,
}

pub(super) struct Run {
    pub(super) disk: SimulatedDisk,
    pub(super) random: Random,
    pub(super) keeper: Option<Keeper>,
    pub(super) limits: Limits,
    ids: Vec<SeriesId>,
    pub(super) now: i64,
    /// All samples that may be stored, in their order: number of the series, sample, acknowledgement.
    pub(super) accepted: Vec<(usize, Sample, Ack)>,
    /// Number of these that earlier keepers accepted.
    before: usize,
}

impl Run {
    pub(super) fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed);
        let mut random = Random::new(seed ^ 0x5EED);
        let ids = vec![SeriesId(0); 1 + random.below(5) as usize];
        let limits = Limits { max_age: Duration::from_secs(1 << 30), ..Limits::default() };
        let (keeper, accepted) = (None, Vec::new());
        let mut run = Self { disk, random, keeper, limits, ids, now: 1, accepted, before: 0 };
        run.open();
        run
    }

    pub(super) fn keeper(&mut self) -> &mut Keeper {
        self.keeper.as_mut().expect("opened")
    }

    /// Returns chores that merge few small parts.
    pub(super) fn chores(&mut self) -> Chores {
        self.keeper().chores().merging(BOUNDS)
    }

    /// Opens the history on a disk that works again.
    pub(super) fn open(&mut self) {
        self.disk.fail(Failures::default());
        self.disk.leave_space(1 << 40);
        let (disk, now) = (Arc::new(self.disk.clone()), Timestamp::from_nanos(self.now));
        let mut keeper = Keeper::on(disk, Path::new(FOLDER), self.limits, now).expect("opened");
        let all = (0..self.ids.len()).map(series).collect();
        self.ids = keeper.attach(all, true).expect("attached");
        self.keeper = Some(keeper);
        self.before = self.accepted.len();
    }

    pub(super) fn push(&mut self) {
        self.now += 1;
        let number = self.random.below(self.ids.len() as u64) as usize;
        let sample = sample(self.now, series(number).value_type, &mut self.random);
        let id = self.ids[number];
        if self.keeper().push(id, &sample) == PushOutcome::Accepted {
            assert_eq!(self.keeper().push(id, &sample), PushOutcome::Duplicate);
            self.accepted.push((number, sample, Ack::Pending));
        }
    }

    /// Pushes samples, and seals them as a part.
    pub(super) fn seal(&mut self) {
        (0..20).for_each(|_| self.push());
        let now = Timestamp::from_nanos(self.now);
        self.keeper().rotate_now(now).expect("rotated");
        self.note();
        // These chores merge no parts of so few bytes.
        let report = self.keeper().chores().run(now).expect("sealed");
        assert_eq!((report.errors, report.damaged), (vec![], vec![]));
    }

    /// Notes what the keeper acknowledges after an operation that may have synced the log.
    pub(super) fn note(&mut self) {
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

    pub(super) fn step(&mut self) {
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
                let _ = self.chores().run(now);
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
    /// accepted samples, once and in order. Retention may have removed those that are too old. After an end of the
    /// process, forgets what it lost.
    pub(super) fn check(&mut self, needed: impl Fn(Ack) -> bool) {
        let (stored, damaged) = read(&self.disk);
        let is_part = |damage: &&Damage| damage.file.contains("part-");
        assert_eq!(damaged.iter().find(is_part), None, "a part is damaged");
        let mut unread: BTreeMap<&str, std::slice::Iter<'_, Sample>> =
            stored.iter().map(|(topic, samples)| (topic.as_str(), samples.iter())).collect();
        let has_ended = self.keeper.is_none();
        let oldest = Timestamp::from_nanos(self.now).saturating_sub(self.limits.max_age);
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
            let may_be_lost = !needed(*ack) || sample.time < oldest;
            assert!(is_stored || may_be_lost, "{topic} {sample:?} was acknowledged: {ack:?}");
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

/// Makes a history with parts, a closed log and an open one.
pub(super) fn filled(seed: u64) -> Run {
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
            assert_eq!(run.chores().run(now).expect("sealed").errors, [""; 0]);
        }
    }
    run
}
