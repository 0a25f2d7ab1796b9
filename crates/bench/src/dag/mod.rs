//! A graph of facts and insights from end to end: the time from a changed fact to a reader of the
//! insight at the top, in another process.
//!
//! The first fact is the time just before its publish, on the clock that all processes share. The
//! other facts are smaller, and every insight is the greatest of its inputs. So the top insight holds
//! that time, and its reader can compute the delay.

mod shape;
mod ours;
mod theirs;

use super::report::Figure;
use super::score::redis_server::Redis;
use super::scratch::Scratch;
use super::stats::Latencies;
use crate::plan::Plan;
use skopos_term::Failure;

pub(crate) use ours::{Greatest, SkoposDag, spec};
pub(crate) use shape::Shape;
pub(crate) use theirs::RedisDag;

/// The delays of Skopos and of Redis, in nanoseconds.
pub(crate) struct Delays {
    pub(crate) ours: Latencies,
    theirs: Result<Latencies, String>,
}

impl Delays {
    /// A percentile of the peer, in `unit` nanoseconds.
    pub(crate) fn theirs(&self, percent: f64, unit: f64) -> Figure {
        match &self.theirs {
            Ok(latencies) => Figure::Known(latencies.percentile(percent) / unit),
            Err(reason) => Figure::Unknown(reason.clone()),
        }
    }
}

/// Skopos and Redis, for the measurement of several shapes.
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
    pub(crate) fn measure(&mut self, plan: &Plan, shape: Shape) -> Result<Delays, Failure> {
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
        Ok(Delays { ours, theirs })
    }
}

/// The slope of the line with the least squares: the growth of `y` by 1 of `x`.
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
