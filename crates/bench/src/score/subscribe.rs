//! The time from a publish to the reader that it wakes, in another process.
//!
//! The value of each sample is `CLOCK_MONOTONIC` in nanoseconds just before the publish. All processes
//! of a machine share this clock, and the reader subtracts the value from it as soon as it has the
//! sample. Random gaps let the reader sleep each time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skopos_model::{SplitMix64, Value};
use skopos_shm::Delivery;

use super::bench::{self, Bench, REDIS};
use super::redis_server::{connect, entry, failed, xadd};
use crate::clock::monotonic;
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::stats::Latencies;
use crate::worker::{Line, Role};
use skopos_term::Failure;

/// Gaps between two publishes, in nanoseconds: long enough for the reader to sleep, and random, so
/// that they are never in step with another period.
const GAP: std::ops::Range<u64> = 200_000..2_000_000;
/// Number of slices in a turn: a sample takes a millisecond.
const SLICES: u32 = 4;
/// Time that the reader waits before it checks whether the publisher has ended.
const WAIT: Duration = Duration::from_millis(100);
const KEY: &str = "subscribe";

/// Publishes the time into shared memory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SkoposPublisher {
    dir: PathBuf,
    slice: Duration,
}

impl Role for SkoposPublisher {
    const NAME: &'static str = "subscribe_skopos";

    fn work(self, line: &Line) -> Result<(), Failure> {
        let (_publisher, writers) = bench::publisher(&self.dir, 1)?;
        line.send(&())?;
        line.wait();
        beat(self.slice, |now| Ok(writers[0].publish(now).map(drop)?))?;
        // The vertex must exist until the reader has the last sample.
        line.send(&())?;
        line.wait();
        Ok(())
    }
}

/// Publishes the time into a Redis stream.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RedisPublisher {
    socket: PathBuf,
    slice: Duration,
}

impl Role for RedisPublisher {
    const NAME: &'static str = "subscribe_redis";

    fn work(self, line: &Line) -> Result<(), Failure> {
        let mut connection = connect(&self.socket).map_err(failed)?;
        line.send(&())?;
        line.wait();
        beat(self.slice, |now| xadd(KEY, &now.to_le_bytes()).exec(&mut connection).map_err(failed))
    }
}

/// Calls `publish` with the time, at random gaps, for `slice`, and at the end with 0.
fn beat(
    slice: Duration,
    mut publish: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let started = Instant::now();
    let mut random = SplitMix64::new(u64::from(std::process::id()));
    while started.elapsed() < slice {
        std::thread::sleep(Duration::from_nanos(GAP.start + random.bits() % (GAP.end - GAP.start)));
        publish(monotonic())?;
    }
    std::thread::sleep(Duration::from_millis(2));
    publish(0)
}

pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> Result<(), Failure> {
    let (dir, socket) = (bench.scratch.dir("subscribe")?, bench.redis.socket());
    let (mut own, mut redis) = (Latencies::new(), Latencies::new());
    for _ in 0..bench.plan.rounds {
        ours(bench, &dir, &mut own)?;
        if let Ok(socket) = socket {
            theirs(bench, socket, &mut redis)?;
        }
    }
    let figure = |percent| match socket {
        Ok(_) => Figure::Known(redis.percentile(percent) / 1e3),
        Err(reason) => Figure::Unknown(reason.to_owned()),
    };
    let row = |metric, percent| {
        let case = "subscribe, publish to woken reader";
        Row::new(case, metric, "µs", own.percentile(percent) / 1e3, Better::Lower)
            .peer(REDIS, figure(percent))
    };
    report.add([row("p50", 50.0).goal(Goal::AtMost(10.0)), row("p99", 99.0)]);
    report.note(format!(
        "subscribe: {} samples of ours, {} of Redis (XREAD BLOCK), {} to {} µs apart; one way, on \
         the clock that both processes share",
        own.len(),
        redis.len(),
        GAP.start / 1000,
        GAP.end / 1000,
    ));
    Ok(())
}

fn ours(bench: &Bench<'_>, dir: &Path, into: &mut Latencies) -> Result<(), Failure> {
    let slice = bench.plan.slice * SLICES;
    let task = SkoposPublisher { dir: dir.into(), slice };
    let mut worker = bench::start(&task)?;
    let mut news = bench::vertex(dir)?.subscribe();
    worker.go_on()?;
    loop {
        let delivery = news.next_timeout(WAIT)?;
        let now = monotonic();
        match delivery {
            Some(Delivery::Sample(sample)) => match sample.value {
                Value::U64(0) => break,
                Value::U64(then) => into.record(now.saturating_sub(then)),
                other => return Err(Failure::new(format!("a publisher sent {other}"))),
            },
            Some(Delivery::Lost(lost)) => return Err(Failure::new(format!("{lost} samples lost"))),
            None if worker.runs() => {}
            None => return Err(Failure::new("the publisher ended before its last sample")),
        }
    }
    worker.receive::<()>()?;
    worker.go_on()
}

fn theirs(bench: &Bench<'_>, socket: &Path, into: &mut Latencies) -> Result<(), Failure> {
    let mut connection = connect(socket).map_err(failed)?;
    redis::cmd("DEL").arg(KEY).exec(&mut connection).map_err(failed)?;
    let slice = bench.plan.slice * SLICES;
    let task = RedisPublisher { socket: socket.into(), slice };
    let mut worker = bench::start(&task)?;
    worker.go_on()?;
    let mut last = b"0-0".to_vec();
    loop {
        let mut ask = redis::cmd("XREAD");
        ask.arg("COUNT").arg(1).arg("BLOCK").arg(WAIT.as_millis() as u64);
        ask.arg("STREAMS").arg(KEY).arg(&last);
        let answer: redis::Value = ask.query(&mut connection).map_err(failed)?;
        let now = monotonic();
        match stream(&answer).and_then(entry) {
            Some((id, value)) => {
                let then = value.try_into().map_or(0, u64::from_le_bytes);
                if then == 0 {
                    return Ok(());
                }
                into.record(now.saturating_sub(then));
                last = id.to_vec();
            }
            None if worker.runs() => {}
            None => return Err(Failure::new("the publisher ended before its last sample")),
        }
    }
}

/// The entries of the only stream in an answer of XREAD.
fn stream(answer: &redis::Value) -> Option<&redis::Value> {
    match answer {
        redis::Value::Array(streams) => match streams.first()? {
            redis::Value::Array(stream) => stream.get(1),
            _ => None,
        },
        _ => None,
    }
}
