//! The price over a bare seqlock: one sequence number, a time and a value in a cache line, with one writer. It has
//! no directory, no history, no waiters and no crash safety, so it is the least that a shared value can cost.
//!
//! Three cases: reads one after the other, each of which needs the value of the one before, as a decision does; a
//! read by a program that did other work since the last one, so that caches and page tables are cold; and publishing
//! with a given time. Ours and the seqlock take turns. The seqlock lies in memory of this process, ours in a segment
//! of it. Publishes also have a seqlock with a lock for several writers beside them.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Instant;

use skopos_model::{Timestamp, Value, ValueType};
use skopos_shm::{Host, Publisher, Reader, VertexSpec};

use super::bench::Bench;
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::stats::{Latencies, median, nanos_since};
use skopos_term::Failure;

/// The name of the seqlock in the rows.
const SEQLOCK: &str = "seqlock";
/// The name of the seqlock with a lock for its writers, which ours for several threads has, too.
const LOCKED: &str = "locked seqlock";
/// Operations between two clock readings of a warm case: their time is a thousand times a clock reading.
const BATCH: u32 = 1_000;
/// Batches of a round of a warm case.
const BATCHES: u32 = 1_000;
/// Bytes of other work between two cold reads: more than the caches and page tables of a core hold.
const OTHER_WORK: usize = 64 << 20;
/// Cold reads of a round, of each. Each costs the time of the other work.
const COLD: u32 = 40;

/// A value behind a sequence number, which is odd while a writer changes it.
#[repr(align(64))]
#[derive(Default)]
struct Seqlock {
    /// 1 while a writer of several works.
    lock: AtomicU32,
    sequence: AtomicU64,
    time: AtomicI64,
    value: AtomicU64,
}

impl Seqlock {
    #[inline]
    fn write(&self, time: i64, value: u64) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // SYNC: pairs with the Acquire fence in `read`.
        fence(Ordering::Release);
        self.time.store(time, Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
        // SYNC: pairs with the Acquire load in `read`.
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// [`write`](Self::write) by any of several threads.
    #[inline]
    fn write_locked(&self, time: i64, value: u64) {
        // SYNC: Acquire pairs with the Release store below, by the writer before.
        while self.lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        self.write(time, value);
        // SYNC: pairs with the Acquire above.
        self.lock.store(0, Ordering::Release);
    }

    #[inline]
    fn read(&self) -> (i64, u64) {
        loop {
            // SYNC: pairs with the Release store in `write`.
            let before = self.sequence.load(Ordering::Acquire);
            let found = (self.time.load(Ordering::Relaxed), self.value.load(Ordering::Relaxed));
            // SYNC: pairs with the Release fence in `write`.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return found;
            }
        }
    }
}

/// Nanoseconds an operation of one case, by rounds.
#[derive(Default)]
struct Costs {
    sample: Vec<f64>,
    number: Vec<f64>,
    bare: Vec<f64>,
    /// The seqlock as a writer of several threads; empty for reads.
    locked: Vec<f64>,
}

pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> Result<(), Failure> {
    let dir = bench.scratch.dir("bare")?;
    let [mut warm, mut cold, mut publish] = std::array::from_fn(|_| Costs::default());
    for _ in 0..bench.plan.rounds {
        warm_reads(&dir, &mut warm)?;
        cold_reads(&dir, bench.timer.p50, &mut cold)?;
        publishes(&dir, &mut publish)?;
    }
    report.add(rows("read the latest value, warm", "sample", &warm, 1.5));
    report.add(rows("read the latest value, cold", "sample", &cold, 2.0));
    report.add(rows("publish with a given time", "writer of several threads", &publish, 2.0));
    report.note(format!(
        "beside a bare seqlock: median of {} rounds; warm and publish: batches of {BATCH}; cold: the \
         median of {COLD} single reads a round, each after {} MiB of other work, less the cost of a \
         pair of clock readings",
        bench.plan.rounds,
        OTHER_WORK >> 20
    ));
    Ok(())
}

fn rows(case: &str, other: &str, costs: &Costs, most: f64) -> Vec<Row> {
    let bare = median(&costs.bare);
    let ns = |metric: &str, own: &Vec<f64>| {
        Row::new(case, metric, "ns", median(own), Better::Lower)
            .peer(SEQLOCK, Figure::Known(bare))
            .rounds("skopos", own)
            .rounds(SEQLOCK, &costs.bare)
    };
    let times = |ours: &Vec<f64>, theirs: f64, metric: String| {
        Row::new(case, metric, "times", median(ours) / theirs, Better::Neither)
            .goal(Goal::AtMost(most))
    };
    let mut rows = vec![ns("number", &costs.number), ns(other, &costs.sample)];
    rows.push(times(&costs.number, bare, "number ÷ seqlock".to_owned()));
    if !costs.locked.is_empty() {
        let locked = median(&costs.locked);
        rows[1] = Row::new(case, other, "ns", median(&costs.sample), Better::Lower)
            .peer(SEQLOCK, Figure::Known(bare))
            .peer(LOCKED, Figure::Known(locked))
            .rounds("skopos", &costs.sample)
            .rounds(SEQLOCK, &costs.bare)
            .rounds(LOCKED, &costs.locked);
        rows.push(times(&costs.sample, locked, format!("{other} ÷ {LOCKED}")));
    }
    rows
}

/// Returns the nanoseconds of one call of `work`, which gets the numbers from 1 on.
fn batches(mut work: impl FnMut(u64) -> Result<(), Failure>) -> Result<f64, Failure> {
    let mut spent = Latencies::new();
    let mut count = 0;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..BATCH {
            count += 1;
            work(count)?;
        }
        spent.record(nanos_since(start));
    }
    Ok(spent.percentile(50.0) / f64::from(BATCH))
}

const TOPIC: &str = "bench/bare/value";

fn warm_reads(dir: &Path, costs: &mut Costs) -> Result<(), Failure> {
    let publisher = Publisher::builder("bench").dir(dir).create()?;
    let mut writer = publisher.writer::<u64>(TOPIC)?;
    writer.publish(1)?;
    let reader: Reader<u64> = Host::open_dirs(vec![dir.into()])?.reader(TOPIC)?;
    let bare = Box::new(Seqlock::default());
    bare.write(1, 1);
    // The handle that is read depends on the last value, in a way that no compiler sees through: without it a processor
    // makes several reads at once.
    let none = black_box(0u64);
    let (readers, mut last) = ([&reader, &reader], 0);
    costs.number.push(batches(|_| {
        last = readers[(last & none) as usize].get()?;
        Ok(())
    })?);
    let vertices = [reader.vertex(), reader.vertex()];
    costs.sample.push(batches(|_| {
        let reading = vertices[(last & none) as usize].latest()?;
        if let Value::U64(value) = reading.sample.value {
            last = value;
        }
        black_box(reading.sample.time);
        Ok(())
    })?);
    let locks = [&*bare, &*bare];
    costs.bare.push(batches(|_| {
        last = locks[(last & none) as usize].read().1;
        Ok(())
    })?);
    black_box(last);
    Ok(())
}

fn cold_reads(dir: &Path, clock: u64, costs: &mut Costs) -> Result<(), Failure> {
    let publisher = Publisher::builder("bench").dir(dir).create()?;
    let mut writer = publisher.writer::<u64>(TOPIC)?;
    let reader: Box<Reader<u64>> = Box::new(Host::open_dirs(vec![dir.into()])?.reader(TOPIC)?);
    let bare = Box::new(Seqlock::default());
    let mut other = vec![1u8; OTHER_WORK];
    let [mut sample, mut number, mut seqlock] = std::array::from_fn(|_| Latencies::new());
    let mut single = |into: &mut Latencies, work: &mut dyn FnMut() -> Result<(), Failure>| {
        for line in other.iter_mut().step_by(64) {
            *line = line.wrapping_add(1);
        }
        black_box(&mut other);
        let start = Instant::now();
        work()?;
        into.record(nanos_since(start).saturating_sub(clock));
        Ok::<(), Failure>(())
    };
    for count in 1..=u64::from(COLD) {
        writer.publish(count)?;
        bare.write(1, count);
        single(&mut number, &mut || {
            black_box(black_box(&*reader).get()?);
            Ok(())
        })?;
        single(&mut seqlock, &mut || {
            black_box(black_box(&*bare).read());
            Ok(())
        })?;
        single(&mut sample, &mut || {
            let reading = black_box(&*reader).vertex().latest()?;
            black_box((reading.sample.time, reading.as_f64()));
            Ok(())
        })?;
    }
    costs.number.push(number.percentile(50.0));
    costs.sample.push(sample.percentile(50.0));
    costs.bare.push(seqlock.percentile(50.0));
    Ok(())
}

fn publishes(dir: &Path, costs: &mut Costs) -> Result<(), Failure> {
    let publisher = Publisher::builder("bench").dir(dir).create()?;
    let mut writer = publisher.writer::<u64>(TOPIC)?;
    let topic = "bench/bare/shared".parse()?;
    let shared = publisher.register(VertexSpec::new(topic, ValueType::U64))?;
    let bare = Box::new(Seqlock::default());
    let now = skopos_shm::now().as_nanos();
    let at = |count: u64| Timestamp::from_nanos(now + count.cast_signed());
    costs.number.push(batches(|count| Ok(writer.publish_at(at(count), count).map(drop)?))?);
    costs.sample.push(batches(|count| Ok(shared.publish_at(at(count), count).map(drop)?))?);
    costs.bare.push(batches(|count| {
        black_box(&*bare).write(at(count).as_nanos(), count);
        Ok(())
    })?);
    costs.locked.push(batches(|count| {
        black_box(&*bare).write_locked(at(count).as_nanos(), count);
        Ok(())
    })?);
    Ok(())
}
