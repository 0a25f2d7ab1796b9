//! From a publish to the reader that it wakes, in another process.
//!
//! The value of each sample is `CLOCK_MONOTONIC` in nanoseconds just before it is published, a
//! clock that all processes of a machine share; the reader takes it off the same clock as soon as
//! it has the sample. Random gaps let the reader go to sleep each time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use skopos_model::Value;
use skopos_shm::Delivery;

use super::redis_server::{connect, entry, failed, xadd};
use super::{Bench, REDIS};
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::stats::Latencies;
use crate::worker::{Line, Task};
use skopos_term::Failure;

/// Gaps between two publishes, in nanoseconds: long enough for the reader to sleep, and never in
/// step with anything.
const GAP: std::ops::Range<u64> = 200_000..2_000_000;
/// Turns are this many slices long: a sample takes a millisecond.
const SLICES: u32 = 4;
/// How long the reader waits before it looks whether the publisher has ended.
const WAIT: Duration = Duration::from_millis(100);
const KEY: &str = "subscribe";

/// Publishes the time into shared memory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SkoposPublisher {
    dir: PathBuf,
    slice: Duration,
}

impl SkoposPublisher {
    pub(crate) fn work(self, line: &Line) -> Result<(), Failure> {
        let (_publisher, writers) = super::publisher(&self.dir, 1)?;
        line.say(&())?;
        line.wait();
        beat(self.slice, |now| Ok(writers[0].publish(now).map(drop)?))?;
        // Until the reader has the last one, the vertex must not go.
        line.say(&())?;
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

impl RedisPublisher {
    pub(crate) fn work(self, line: &Line) -> Result<(), Failure> {
        let mut connection = connect(&self.socket).map_err(failed)?;
        line.say(&())?;
        line.wait();
        beat(self.slice, |now| xadd(KEY, &now.to_le_bytes()).exec(&mut connection).map_err(failed))
    }
}

/// Calls `publish` with the time, at random gaps, for `slice`; and once more with 0: the end.
fn beat(
    slice: Duration,
    mut publish: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let started = Instant::now();
    let mut random = Random(u64::from(std::process::id()));
    while started.elapsed() < slice {
        std::thread::sleep(Duration::from_nanos(GAP.start + random.next() % (GAP.end - GAP.start)));
        publish(monotonic())?;
    }
    std::thread::sleep(Duration::from_millis(2));
    publish(0)
}

/// Splitmix64, whose constants are Vigna's: gaps need no better randomness.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
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
    let task = Task::SubscribeSkopos(SkoposPublisher { dir: dir.into(), slice });
    let mut worker = super::start(&task)?;
    let mut news = super::vertex(dir)?.subscribe();
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
    worker.hear::<()>()?;
    worker.go_on()
}

fn theirs(bench: &Bench<'_>, socket: &Path, into: &mut Latencies) -> Result<(), Failure> {
    let mut connection = connect(socket).map_err(failed)?;
    redis::cmd("DEL").arg(KEY).exec(&mut connection).map_err(failed)?;
    let slice = bench.plan.slice * SLICES;
    let task = Task::SubscribeRedis(RedisPublisher { socket: socket.into(), slice });
    let mut worker = super::start(&task)?;
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
