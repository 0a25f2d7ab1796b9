//! The cases: reads one after the other, a read after other work, and a publish with a given time.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use skopos_model::Timestamp;

use crate::Failure;
use crate::board::{Board, Timed};
use crate::seqlock::Seqlock;
use crate::skopos::Skopos;
use crate::statistics::{median, middle};

/// Operations between two clock readings of a warm case: their time is a thousand times a clock reading.
const BATCH: u64 = 1_000;
/// Batches of a round of a warm case.
const BATCHES: usize = 300;
/// Bytes of other work between two cold reads: more than the caches and page tables of a core hold.
const OTHER_WORK: usize = 64 << 20;
/// Cold reads of a round, of each variant. Each costs the time of the other work.
const COLD: u64 = 40;
/// The file system in memory in which segments lie by default, and shared memory of POSIX always.
const MEMORY: &str = "/dev/shm";
/// Pairs of clock readings whose middle is the cost of one.
const PAIRS: u64 = 10_001;

const WARM_READ: &str = "read the latest value, warm";
const COLD_READ: &str = "read the latest value, cold";
const PUBLISH: &str = "publish with a given time";

const SEQLOCK: &str = "seqlock";
const NUMBER: &str = "skopos, number";
const SAMPLE: &str = "skopos, sample";
const SHARED: &str = "skopos, writer of several threads";
const BOARD: &str = "iceoryx2 blackboard";

/// The nanoseconds of an operation in each round.
struct Costs {
    case: &'static str,
    name: &'static str,
    rounds: Vec<f64>,
}

/// The values that the variants share, and the state of the run.
struct Bench {
    bare: Box<Seqlock>,
    skopos: Skopos,
    board: Board,
    other: Vec<u8>,
    /// Number of values published so far: each one differs from the one before.
    count: u64,
    /// Time of the start, ns.
    start: i64,
    /// The middle cost of a pair of clock readings, ns.
    clock: f64,
}

/// Measures `rounds` rounds and returns the report.
pub(crate) fn run(rounds: usize) -> Result<Value, Failure> {
    let dir = Path::new(MEMORY).join(format!("peers-shm-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let report = measure(&dir, rounds);
    std::fs::remove_dir_all(&dir)?;
    report
}

fn measure(dir: &Path, rounds: usize) -> Result<Value, Failure> {
    let mut bench = Bench {
        bare: Box::default(),
        skopos: Skopos::make(dir)?,
        board: Board::make(dir)?,
        other: vec![1; OTHER_WORK],
        count: 1,
        start: skopos_shm::now().as_nanos(),
        clock: clock_pair(),
    };
    let cost = |case, name| Costs { case, name, rounds: Vec::new() };
    let of = |case, names: &[&'static str]| names.iter().map(|n| cost(case, n)).collect::<Vec<_>>();
    let reads = [SEQLOCK, NUMBER, SAMPLE, BOARD];
    let mut warm = of(WARM_READ, &reads);
    let mut cold = of(COLD_READ, &reads);
    let mut publish = of(PUBLISH, &[SEQLOCK, NUMBER, SHARED, BOARD]);
    for round in 0..rounds {
        in_turns(&mut warm, round, |name| bench.warm_read(name))?;
        bench.cold_round(&mut cold, round)?;
        in_turns(&mut publish, round, |name| bench.publish(name))?;
    }
    let rows: Vec<Value> =
        [&warm, &cold, &publish].into_iter().flat_map(|case| rows(case)).collect();
    Ok(json!({
        "benchmark": "shm latest value",
        "rounds": rounds,
        "cold_reads_per_round": COLD,
        "other_work_bytes": OTHER_WORK,
        "iceoryx2": VERSION_OF_ICEORYX2,
        "rows": rows,
    }))
}

/// The version of the peer, as `Cargo.toml` has it.
const VERSION_OF_ICEORYX2: &str = "0.10.0";

/// Measures all variants of a case; another one is the first in each round.
fn in_turns(
    costs: &mut [Costs],
    round: usize,
    mut one: impl FnMut(&str) -> Result<f64, Failure>,
) -> Result<(), Failure> {
    let count = costs.len();
    for at in 0..count {
        let costs = &mut costs[(at + round) % count];
        costs.rounds.push(one(costs.name)?);
    }
    Ok(())
}

/// Makes the rows of a case. The first variant is the bare seqlock, by which the others are divided round by round.
fn rows(case: &[Costs]) -> Vec<Value> {
    let bare = &case[0].rounds;
    let row = |costs: &Costs| {
        let times: Vec<f64> = costs.rounds.iter().zip(bare).map(|(own, bare)| own / bare).collect();
        json!({
            "case": costs.case,
            "name": costs.name,
            "ns": median(&costs.rounds),
            "times_seqlock": median(&times),
            "ns_rounds": costs.rounds,
        })
    };
    case.iter().map(row).collect()
}

/// Returns the middle cost of two clock readings, ns.
fn clock_pair() -> f64 {
    middle((0..PAIRS).map(|_| nanos_since(Instant::now())).collect())
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the nanoseconds of one call of `work`.
fn batches(mut work: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut spent = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            work()?;
        }
        spent.push(nanos_since(start));
    }
    Ok(middle(spent) / BATCH as f64)
}

impl Bench {
    /// Publishes the next value by every variant that has readers.
    fn publish_all(&mut self) -> Result<(), Failure> {
        self.count += 1;
        let (time, value) = (self.start + self.count as i64, self.count);
        self.bare.write(time, value);
        self.skopos.writer.publish_at(Timestamp::from_nanos(time), value)?;
        self.board.write.update_with_copy(Timed { time, value });
        Ok(())
    }

    /// Reads again and again. The handle that is read depends on the last value, in a way that no compiler sees through:
    /// without it a processor makes several reads at once.
    #[inline(never)]
    fn warm_read(&mut self, name: &str) -> Result<f64, Failure> {
        self.publish_all()?;
        let (none, mut last) = (black_box(0u64), 0);
        let pick = |last: u64| (last & none) as usize;
        let cost = match name {
            SEQLOCK => {
                let both = [&*self.bare, &*self.bare];
                batches(|| {
                    last = both[pick(last)].read().1;
                    Ok(())
                })
            }
            NUMBER => {
                let both = [&*self.skopos.number, &*self.skopos.number];
                batches(|| {
                    last = both[pick(last)].get()?;
                    Ok(())
                })
            }
            SAMPLE => {
                let both = [&*self.skopos.sample, &*self.skopos.sample];
                batches(|| {
                    let reading = both[pick(last)].latest()?;
                    last = match reading.sample.value {
                        skopos_model::Value::U64(value) => value,
                        _ => 0,
                    };
                    black_box(reading.sample.time);
                    Ok(())
                })
            }
            _ => {
                let both = [&*self.board.read, &*self.board.read];
                batches(|| {
                    last = (*both[pick(last)].get()).value;
                    Ok(())
                })
            }
        };
        if last != self.count {
            return Err(format!("{name}: {last} was read, and {} was published", self.count).into());
        }
        cost
    }

    /// Reads once after other work, [`COLD`] times by each variant, which take turns.
    fn cold_round(&mut self, costs: &mut [Costs], round: usize) -> Result<(), Failure> {
        let count = costs.len();
        let mut spent = vec![Vec::new(); count];
        for turn in 0..COLD as usize {
            self.publish_all()?;
            for at in 0..count {
                let at = (at + turn + round) % count;
                spent[at].push(self.cold_read(costs[at].name)?);
            }
        }
        for (costs, spent) in costs.iter_mut().zip(spent) {
            costs.rounds.push((middle(spent) - self.clock).max(0.0));
        }
        Ok(())
    }

    /// Returns the nanoseconds of one read after other work. Never inlined, so that all turns run the same code.
    #[inline(never)]
    fn cold_read(&mut self, name: &str) -> Result<u64, Failure> {
        let Self { bare, skopos, board, other, .. } = self;
        let mut last = 0;
        let spent = match name {
            SEQLOCK => cold(other, &mut || {
                last = black_box(&**bare).read().1;
                Ok(())
            }),
            NUMBER => cold(other, &mut || {
                last = black_box(&*skopos.number).get()?;
                Ok(())
            }),
            SAMPLE => cold(other, &mut || {
                let reading = black_box(&*skopos.sample).latest()?;
                black_box(reading.sample.time);
                last = reading.as_f64().unwrap_or(0.0) as u64;
                Ok(())
            }),
            _ => cold(other, &mut || {
                last = (*black_box(&*board.read).get()).value;
                Ok(())
            }),
        };
        if last != self.count {
            return Err(format!("{name}: {last} was read, and {} was published", self.count).into());
        }
        spent
    }

    /// Publishes again and again, with a time and a value that differ from those before.
    #[inline(never)]
    fn publish(&mut self, name: &str) -> Result<f64, Failure> {
        let Self { bare, skopos, board, start, .. } = self;
        // In a register: a count in memory would cost as much as the seqlock.
        let (start, mut count) = (*start, self.count);
        let mut next = || {
            count += 1;
            (start + count as i64, count)
        };
        let cost = match name {
            SEQLOCK => batches(|| {
                let (time, value) = next();
                black_box(&**bare).write(time, value);
                Ok(())
            }),
            NUMBER => batches(|| {
                let (time, value) = next();
                skopos.writer.publish_at(Timestamp::from_nanos(time), value)?;
                Ok(())
            }),
            SHARED => batches(|| {
                let (time, value) = next();
                skopos.shared.publish_at(Timestamp::from_nanos(time), value)?;
                Ok(())
            }),
            _ => batches(|| {
                let (time, value) = next();
                black_box(&board.write).update_with_copy(Timed { time, value });
                Ok(())
            }),
        };
        self.count = count;
        cost
    }
}

/// Does other work, and returns the nanoseconds of `work` after it, with those of a pair of clock readings.
#[inline(never)]
fn cold(
    other: &mut Vec<u8>,
    work: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<u64, Failure> {
    for line in other.iter_mut().step_by(64) {
        *line = line.wrapping_add(1);
    }
    black_box(other);
    let start = Instant::now();
    work()?;
    Ok(nanos_since(start))
}
