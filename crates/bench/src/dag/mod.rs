//! A graph of facts and insights from end to end: how long until a changed fact is seen in the
//! insight at the top, in another process.
//!
//! The first fact is the time just before it was published, on the clock that all processes share;
//! the others are smaller, and every insight is the greatest of its inputs. So the top insight holds
//! that time, and whoever sees it knows how long it took.

mod ours;
mod theirs;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::report::Figure;
use super::score::redis_server::Redis;
use super::score::subscribe::Random;
use super::scratch::Scratch;
use super::stats::Latencies;
use crate::plan::Plan;
use skopos_term::Failure;

pub(crate) use ours::{Greatest, SkoposDag, spec};
pub(crate) use theirs::RedisDag;

/// Gaps between two changes, in nanoseconds: a publisher that sleeps in between, as an agent does.
const GAP: std::ops::Range<u64> = 100_000..400_000;
/// A worker ends by itself after this long, should its parent forget it.
const LIFE: Duration = Duration::from_secs(600);

/// What graph, and what changes in it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Facts that are inputs of the lowest insight.
    pub(crate) facts: usize,
    /// Insights, each over the one below.
    pub(crate) layers: usize,
    /// True if every fact changes each time, else only the first.
    pub(crate) all_change: bool,
}

/// What both were found to take, in nanoseconds.
pub(crate) struct Found {
    pub(crate) ours: Latencies,
    theirs: Result<Latencies, String>,
}

impl Found {
    /// A percentile of the peer, in `unit` nanoseconds.
    pub(crate) fn theirs(&self, percent: f64, unit: f64) -> Figure {
        match &self.theirs {
            Ok(latencies) => Figure::Known(latencies.percentile(percent) / unit),
            Err(reason) => Figure::Unknown(reason.clone()),
        }
    }
}

/// Both sides of a measurement of several shapes.
pub(crate) struct Dags {
    scratch: Scratch,
    redis: Redis,
    runs: usize,
}

impl Dags {
    pub(crate) fn new() -> Result<Self, Failure> {
        let scratch = Scratch::new()?;
        let redis = Redis::start(scratch.path());
        Ok(Self { scratch, redis, runs: 0 })
    }

    /// Measures both, in turns.
    pub(crate) fn measure(&mut self, plan: &Plan, shape: Shape) -> Result<Found, Failure> {
        let mut ours = Latencies::new();
        let socket = self.redis.socket().map(std::path::Path::to_path_buf);
        let mut theirs = socket.as_ref().map(|_| Latencies::new()).map_err(|why| (*why).to_owned());
        for _ in 0..plan.rounds {
            self.runs += 1;
            let dir = self.scratch.dir(&format!("dag-{}", self.runs))?;
            ours::measure(&dir, shape, plan.slice, &mut ours)?;
            if let (Ok(socket), Ok(theirs)) = (&socket, &mut theirs) {
                theirs::measure(socket, shape, plan.slice, theirs)?;
            }
        }
        Ok(Found { ours, theirs })
    }
}

/// Calls `change` with 1, 2, … at random gaps, until it is killed.
fn beat(mut change: impl FnMut(u64) -> Result<(), Failure>) -> Result<(), Failure> {
    let started = Instant::now();
    let mut random = Random(u64::from(std::process::id()));
    for round in 1.. {
        std::thread::sleep(Duration::from_nanos(GAP.start + random.next() % (GAP.end - GAP.start)));
        change(round)?;
        if started.elapsed() > LIFE {
            break;
        }
    }
    Ok(())
}

/// What one more of `x` adds to `y`: the slope of the line with the least squares.
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|p| p.0), mean(|p| p.1));
    let covariance: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - x_mean) * (x - x_mean)).sum();
    covariance / variance
}

#[cfg(test)]
mod tests {
    use super::slope;

    #[test]
    fn the_slope_of_a_line_is_found() {
        let line: Vec<_> = [1.0, 2.0, 8.0, 32.0].iter().map(|&x| (x, 100.0 + 2.5 * x)).collect();
        assert!((slope(&line) - 2.5).abs() < 1e-9, "{}", slope(&line));
    }
}
