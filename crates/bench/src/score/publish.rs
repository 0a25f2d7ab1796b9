//! Publishing 16-byte samples from many threads: into a vertex each, and all into one.
//!
//! Each value differs from the value before, so every publish stores a sample, and the parent counts
//! the samples afterwards. `publish` reads the clock itself, as in the call of a user; Redis takes the
//! time on the server. Each thread has a connection to Redis, and sends one XADD at a time as Apollo
//! does, or a hundred in one write for fairness.

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skopos_shm::{Host, VertexWriter};

use super::bench::{self, Bench, REDIS};
use super::redis_server::{connect, entries_added, failed, xadd};
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::stats::median;
use crate::worker::{Line, Role, Worker};
use skopos_term::Failure;

/// The numbers of threads in Apollo's Figure 6.
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 40];
/// Publishes between two checks of the flag that ends a slice.
const BLOCK: u64 = 128;
/// Commands in one write to Redis.
const PIPELINE: usize = 100;
/// The name of Redis with a hundred commands in one write.
const REDIS_PIPELINED: &str = "redis x100";

/// Publishes into shared memory as fast as it can.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SkoposLoad {
    dir: PathBuf,
    threads: usize,
    one_vertex: bool,
    slice: Duration,
}

/// Publishes into Redis as fast as it can.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RedisLoad {
    socket: PathBuf,
    threads: usize,
    one_stream: bool,
    pipeline: usize,
    slice: Duration,
}

/// The result of a load.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    published: u64,
    seconds: f64,
}

impl Role for SkoposLoad {
    const NAME: &'static str = "publish_skopos";

    fn work(self, line: &Line) -> Result<(), Failure> {
        let vertices = if self.one_vertex { 1 } else { self.threads };
        let (_publisher, writers) = bench::publisher(&self.dir, vertices)?;
        let done = load(self.threads, self.slice, |thread| {
            let writer = writers[thread % vertices].clone();
            Ok(move |done| block(&writer, thread, done))
        })?;
        line.send(&done)?;
        // The parent counts the samples in the segment, which disappears with this process.
        line.wait();
        Ok(())
    }
}

/// Publishes `BLOCK` values that no other thread publishes, after `done` of them.
fn block(writer: &VertexWriter, thread: usize, done: u64) -> Result<u64, Failure> {
    let values = (thread as u64) << 48 | done;
    for value in values..values + BLOCK {
        writer.publish(value)?;
    }
    Ok(BLOCK)
}

impl Role for RedisLoad {
    const NAME: &'static str = "publish_redis";

    fn work(self, line: &Line) -> Result<(), Failure> {
        let done = load(self.threads, self.slice, |thread| {
            let key = key(if self.one_stream { 0 } else { thread });
            let mut connection = connect(&self.socket).map_err(failed)?;
            let pipeline = self.pipeline;
            Ok(move |done: u64| {
                let value =
                    |i: u64| (u128::from(thread as u64) << 64 | u128::from(i)).to_le_bytes();
                if pipeline == 1 {
                    xadd(&key, &value(done)).exec(&mut connection).map_err(failed)?;
                } else {
                    let mut pipe = redis::Pipeline::with_capacity(pipeline);
                    for i in 0..pipeline as u64 {
                        pipe.add_command(xadd(&key, &value(done + i))).ignore();
                    }
                    pipe.exec(&mut connection).map_err(failed)?;
                }
                Ok(pipeline as u64)
            })
        })?;
        line.send(&done)
    }
}

fn key(index: usize) -> String {
    format!("publish-{index}")
}

/// Runs `threads` threads side by side for `slice`. `make` returns the work of a thread: a function
/// of the number of publishes so far, which publishes some more and returns their number.
fn load<W: FnMut(u64) -> Result<u64, Failure> + Send>(
    threads: usize,
    slice: Duration,
    make: impl Fn(usize) -> Result<W, Failure>,
) -> Result<Done, Failure> {
    let (stop, barrier) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let works = (0..threads).map(make).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let running: Vec<_> = works
            .into_iter()
            .map(|mut work| {
                let (stop, barrier) = (&stop, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let started = Instant::now();
                    let mut done = 0;
                    // Relaxed: a late check costs another block, which is counted.
                    while !stop.load(Ordering::Relaxed) {
                        done += work(done)?;
                    }
                    Ok::<_, Failure>((done, started, Instant::now()))
                })
            })
            .collect();
        barrier.wait();
        std::thread::sleep(slice);
        stop.store(true, Ordering::Relaxed);
        let ended = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
            .collect::<Result<Vec<_>, _>>()?;
        let published = ended.iter().map(|(done, _, _)| done).sum();
        // From the start of the first thread to the end of the last: with more threads than cores,
        // this thread reads its own clock much later.
        let first = ended.iter().map(|(_, started, _)| *started).min();
        let last = ended.iter().map(|(_, _, ended)| *ended).max();
        let elapsed = first.zip(last).map_or(slice, |(first, last)| last - first);
        Ok(Done { published, seconds: elapsed.as_secs_f64() })
    })
}

/// The rounds with one number of threads, in millions a second.
#[derive(Clone, Debug, Default)]
struct Rates {
    ours: Vec<f64>,
    redis: Vec<f64>,
    pipelined: Vec<f64>,
}

pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> Result<(), Failure> {
    let dir = bench.scratch.dir("publish")?;
    let mut rates = [vec![Rates::default(); THREADS.len()], vec![Rates::default(); THREADS.len()]];
    for _ in 0..bench.plan.rounds {
        for (column, threads) in THREADS.into_iter().enumerate() {
            for (rates, one) in rates.iter_mut().zip([false, true]) {
                let rates = &mut rates[column];
                rates.ours.push(ours(bench, &dir, threads, one)?);
                if let Ok(socket) = bench.redis.socket() {
                    rates.redis.push(theirs(bench, socket, threads, one, 1)?);
                    rates.pipelined.push(theirs(bench, socket, threads, one, PIPELINE)?);
                }
            }
        }
    }
    let reason = bench.redis.socket().err();
    report.add(rows("publish, a vertex each", false, &rates[0], reason));
    report.add(rows("publish, all into one vertex", true, &rates[1], reason));
    report.note(format!(
        "publish: median of {} rounds of {:.2} s; every sample was counted in the vertex or stream \
         afterwards; `{REDIS_PIPELINED}` sends {PIPELINE} XADD at a time",
        bench.plan.rounds,
        bench.plan.slice.as_secs_f64()
    ));
    Ok(())
}

fn rows(case: &str, one: bool, rates: &[Rates], reason: Option<&str>) -> Vec<Row> {
    let known = |number: f64| match reason {
        None => Figure::Known(number),
        Some(reason) => Figure::Unknown(reason.to_owned()),
    };
    let mut rows = Vec::new();
    for (rates, threads) in rates.iter().zip(THREADS) {
        let metric = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
        let row = Row::new(case, metric, "M/s", median(&rates.ours), Better::Higher)
            .peer(REDIS, known(median(&rates.redis)))
            .peer(REDIS_PIPELINED, known(median(&rates.pipelined)))
            .rounds("skopos", &rates.ours)
            .rounds(REDIS, &rates.redis)
            .rounds(REDIS_PIPELINED, &rates.pipelined);
        rows.push(match (one, threads) {
            (false, 1) => row.goal(Goal::AtLeast(10.0)),
            (true, _) => row.goal(Goal::AtLeast(5.0)),
            _ => row,
        });
    }
    let fall = |of: fn(&Rates) -> &Vec<f64>| {
        fall(&rates.iter().map(|r| median(of(r))).collect::<Vec<_>>())
    };
    rows.push(
        Row::new(case, "least after the peak ÷ peak", "ratio", fall(|r| &r.ours), Better::Neither)
            .peer(REDIS, known(fall(|r| &r.redis)))
            .peer(REDIS_PIPELINED, known(fall(|r| &r.pipelined)))
            .goal(Goal::AtLeast(0.5)),
    );
    rows
}

/// The fall of the rate after its peak as threads grow: the least rate behind the peak, divided by it.
fn fall(rates: &[f64]) -> f64 {
    let peak = rates.iter().copied().fold(0.0, f64::max);
    let after = rates.iter().skip_while(|rate| **rate < peak);
    after.copied().fold(peak, f64::min) / peak
}

fn ours(bench: &Bench<'_>, dir: &Path, threads: usize, one: bool) -> Result<f64, Failure> {
    let task = SkoposLoad { dir: dir.into(), threads, one_vertex: one, slice: bench.plan.slice };
    let mut worker = Worker::start(&task)?;
    let done: Done = worker.receive()?;
    let host = Host::open_dirs(vec![dir.into()])?;
    let stored = host.segments().iter().flat_map(skopos_shm::Segment::vertices).map(|v| v.count());
    check(stored.sum(), &done)?;
    worker.go_on()?;
    Ok(done.published as f64 / done.seconds / 1e6)
}

fn theirs(
    bench: &Bench<'_>,
    socket: &Path,
    threads: usize,
    one: bool,
    pipeline: usize,
) -> Result<f64, Failure> {
    let mut connection = connect(socket).map_err(failed)?;
    redis::cmd("FLUSHALL").exec(&mut connection).map_err(failed)?;
    let slice = bench.plan.slice;
    let task = RedisLoad { socket: socket.into(), threads, one_stream: one, pipeline, slice };
    let done: Done = Worker::start(&task)?.receive()?;
    let mut stored = 0;
    for stream in 0..if one { 1 } else { threads } {
        stored += entries_added(&mut connection, &key(stream)).map_err(failed)?;
    }
    check(stored, &done)?;
    Ok(done.published as f64 / done.seconds / 1e6)
}

fn check(stored: u64, done: &Done) -> Result<(), Failure> {
    if stored == done.published {
        return Ok(());
    }
    Err(Failure::new(format!("{} samples were published, {stored} are stored", done.published)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fall_is_counted_from_the_peak() {
        for (rates, expected) in
            [(&[1.0, 2.0, 4.0][..], 1.0), (&[1.0, 8.0, 6.0, 2.0, 4.0], 0.25), (&[8.0, 1.0], 0.125)]
        {
            assert!((fall(rates) - expected).abs() < 1e-12, "{rates:?}");
        }
    }
}
