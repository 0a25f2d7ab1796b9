//! The latest value, while another process writes at 1 kHz.
//!
//! A read takes a few nanoseconds, a clock reading takes tens of them. So there are two kinds of
//! timing. For the median, batches of 16 reads stand between two clock readings. For the tail, single
//! reads are timed, and the median cost of an empty pair of clock readings is subtracted. Single reads
//! that find a new value have rows of their own: they fetch the cache lines that the writer's core has
//! just changed. Reader and writer are pinned to different cores.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skopos_model::Value;
use skopos_shm::{Reading, Vertex};

use super::bench::{self, Bench, REDIS};
use super::redis_server::{connect, entry, failed, xadd};
use crate::cores::{Core, on_first_core, pin};
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::stats::{Latencies, Timer, nanos_since};
use crate::worker::{Line, Role};
use skopos_term::Failure;

/// Time between two publishes.
const PERIOD: Duration = Duration::from_millis(1);
/// Reads between two clock readings.
const BATCH: u32 = 16;
/// Reads between two checks whether the slice is over.
const BLOCK: u32 = 256;
/// A worker ends by itself after this time, if its parent does not end it.
const LIFE: Duration = Duration::from_secs(600);
const KEY: &str = "latest";

/// Publishes a counter into shared memory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SkoposWriter {
    dir: PathBuf,
}

impl Role for SkoposWriter {
    const NAME: &'static str = "latest_skopos";

    fn work(self, line: &Line) -> Result<(), Failure> {
        pin(Core::Last);
        let (_publisher, writers) = bench::publisher(&self.dir, 1)?;
        writers[0].publish(1u64)?;
        line.send(&())?;
        beat(|count| Ok(writers[0].publish(count).map(drop)?))
    }
}

/// Publishes a counter into a Redis stream.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RedisWriter {
    socket: PathBuf,
}

impl Role for RedisWriter {
    const NAME: &'static str = "latest_redis";

    fn work(self, line: &Line) -> Result<(), Failure> {
        pin(Core::Last);
        let mut connection = connect(&self.socket).map_err(failed)?;
        let mut add = |count: u64| {
            xadd(KEY, count.to_string().as_bytes()).exec(&mut connection).map_err(failed)
        };
        add(1)?;
        line.send(&())?;
        beat(add)
    }
}

/// Calls `publish` with 2, 3, … at 1 kHz.
fn beat(mut publish: impl FnMut(u64) -> Result<(), Failure>) -> Result<(), Failure> {
    let started = Instant::now();
    let mut next = started;
    for count in 2u64.. {
        next += PERIOD;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        publish(count)?;
        if started.elapsed() > LIFE {
            break;
        }
    }
    Ok(())
}

/// The measurements of all rounds.
struct Measurements {
    /// The time of `BATCH` reads each.
    batches: Latencies,
    singles: Latencies,
    /// Single reads that found a new value.
    fresh: Latencies,
    redis: Latencies,
}

pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> Result<(), Failure> {
    let (dir, socket) = (bench.scratch.dir("latest")?, bench.redis.socket());
    let mut found = Measurements {
        batches: Latencies::new(),
        singles: Latencies::new(),
        fresh: Latencies::new(),
        redis: Latencies::new(),
    };
    for _ in 0..bench.plan.rounds {
        ours(bench, &dir, &mut found)?;
        if let Ok(socket) = socket {
            theirs(bench, socket, &mut found)?;
        }
    }
    report.add(rows(&found, socket));
    report.note(format!(
        "latest value: p50 over {} batches of {BATCH} reads, p99 over {} single reads, {} of which \
         found a new value and had to fetch it from the writer's core; an empty pair of clock \
         readings costs {} ns (p99 {} ns), and its median is taken off each timing; the clock goes \
         in steps of {} ns; single reads have a p50 of {} ns",
        found.batches.len(),
        found.singles.len(),
        found.fresh.len(),
        bench.timer.p50,
        bench.timer.p99,
        bench.timer.step,
        found.singles.percentile(50.0),
    ));
    Ok(())
}

fn rows(found: &Measurements, socket: Result<&Path, &str>) -> Vec<Row> {
    let case = "latest value, written at 1 kHz";
    let redis = |percent| match socket {
        Ok(_) => Figure::Known(found.redis.percentile(percent)),
        Err(reason) => Figure::Unknown(reason.to_owned()),
    };
    let p50 = found.batches.percentile(50.0) / f64::from(BATCH);
    let ns = |case: &str, metric: &str, value| Row::new(case, metric, "ns", value, Better::Lower);
    let mut rows = vec![
        ns(case, "p50", p50).peer(REDIS, redis(50.0)).goal(Goal::AtMost(50.0)),
        ns(case, "p99", found.singles.percentile(99.0))
            .peer(REDIS, redis(99.0))
            .goal(Goal::AtMost(300.0)),
    ];
    if socket.is_ok() {
        let times = found.redis.percentile(50.0) / p50;
        rows.push(
            Row::new(case, "Redis p50 ÷ ours", "times", times, Better::Neither)
                .goal(Goal::AtLeast(500.0)),
        );
    }
    let case = "latest value, just changed by another core";
    rows.push(ns(case, "p50", found.fresh.percentile(50.0)));
    rows.push(ns(case, "p99", found.fresh.percentile(99.0)));
    rows
}

fn ours(bench: &Bench<'_>, dir: &Path, found: &mut Measurements) -> Result<(), Failure> {
    let _worker = bench::start(&SkoposWriter { dir: dir.into() })?;
    let vertex = bench::vertex(dir)?;
    // In a thread of its own, so that the other cases are not pinned.
    let (slice, timer) = (bench.plan.slice, bench.timer);
    on_first_core(|| {
        let mut last = Newest::default();
        batches(&vertex, slice / 2, timer, &mut last, &mut found.batches)?;
        singles(&vertex, slice / 2, timer, &mut last, found)
    })
}

fn batches(
    vertex: &Vertex,
    slice: Duration,
    timer: Timer,
    last: &mut Newest,
    into: &mut Latencies,
) -> Result<(), Failure> {
    let started = Instant::now();
    while started.elapsed() < slice {
        for _ in 0..BLOCK / BATCH {
            let start = Instant::now();
            for _ in 0..BATCH {
                let reading = black_box(vertex).latest()?;
                last.see(reading.sample.time.as_nanos(), counter(&reading))?;
                black_box(&last.value);
            }
            into.record(nanos_since(start).saturating_sub(timer.p50));
        }
    }
    Ok(())
}

fn singles(
    vertex: &Vertex,
    slice: Duration,
    timer: Timer,
    last: &mut Newest,
    found: &mut Measurements,
) -> Result<(), Failure> {
    let started = Instant::now();
    while started.elapsed() < slice {
        for _ in 0..BLOCK {
            let start = Instant::now();
            let reading = black_box(black_box(vertex).latest()?);
            let nanos = nanos_since(start).saturating_sub(timer.p50);
            found.singles.record(nanos);
            if last.see(reading.sample.time.as_nanos(), counter(&reading))? {
                found.fresh.record(nanos);
            }
        }
    }
    Ok(())
}

fn theirs(bench: &Bench<'_>, socket: &Path, found: &mut Measurements) -> Result<(), Failure> {
    let mut connection = connect(socket).map_err(failed)?;
    redis::cmd("DEL").arg(KEY).exec(&mut connection).map_err(failed)?;
    let _worker = bench::start(&RedisWriter { socket: socket.into() })?;
    let mut ask = redis::cmd("XREVRANGE");
    ask.arg(KEY).arg("+").arg("-").arg("COUNT").arg(1);
    on_first_core(|| {
        let mut last = Newest::default();
        let started = Instant::now();
        while started.elapsed() < bench.plan.slice {
            let start = Instant::now();
            let answer: redis::Value = black_box(ask.query(&mut connection).map_err(failed)?);
            found.redis.record(nanos_since(start).saturating_sub(bench.timer.p50));
            let value = entry(&answer).and_then(|(_, value)| std::str::from_utf8(value).ok());
            last.see(0, value.and_then(|v| v.parse().ok()).unwrap_or(0))?;
        }
        Ok(())
    })
}

/// The last reading: no later one may be older.
#[derive(Default)]
struct Newest {
    time: i64,
    value: u64,
}

impl Newest {
    /// True if the reading is new.
    #[inline]
    fn see(&mut self, time: i64, value: u64) -> Result<bool, Failure> {
        if time < self.time || value < self.value {
            return Err(self.went_back(time, value));
        }
        let new = value > self.value;
        (self.time, self.value) = (time, value);
        Ok(new)
    }

    #[cold]
    fn went_back(&self, time: i64, value: u64) -> Failure {
        let Self { time: then, value: newer } = self;
        Failure::new(format!("a read went back: from {newer} at {then} to {value} at {time}"))
    }
}

/// The counter in a reading; 0, which is never published, for another value.
#[inline]
fn counter(reading: &Reading) -> u64 {
    match reading.sample.value {
        Value::U64(value) => value,
        _ => 0,
    }
}
