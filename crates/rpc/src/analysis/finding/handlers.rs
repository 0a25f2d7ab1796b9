//! The handlers of each callpath: their own time, and the part of it for which they wait for each other.
//!
//! The own time of a handler is that between its begin and its end, without its calls to others and without waits that a
//! variable explains. A line through the own times and the numbers of handlers that were at work when each began, in the same
//! process, divides it: the time with no other handler is that of the handler alone, and the rise is a wait for the others.

use std::collections::{BTreeMap, BTreeSet};

use super::numbers::line;
use super::view::{Joined, MIN_CALLS, View};
use crate::analysis::names::PathId;

/// The least correlation of own time and number of handlers at work: below it, something else decides.
const MIN_CORRELATION: f64 = 0.3;

/// The least distance of a correlation from none, in its standard errors: chance gives five once in a million times.
const MIN_ERRORS: f64 = 5.0;

/// The share of the handlers that a line leaves out: those that are furthest from the line of all.
const PAUSED: f64 = 0.1;

/// The sums of the handlers of a callpath.
#[derive(Clone, Debug, Default)]
pub(super) struct Handlers {
    /// The processes of the handlers.
    pub(super) targets: Vec<u32>,
    /// End-to-end time of the calls in ns.
    pub(super) all_ns: f64,
    /// The part of the own time for which handlers wait for each other, in ns; 0 if no line says so.
    pub(super) wait_ns: f64,
    /// Time by which each handler at work makes another one longer, in ns.
    pub(super) slope: f64,
    /// Correlation of the number of handlers at work and the own time.
    pub(super) correlation: f64,
    own_ns: f64,
    others: f64,
    points: Vec<(f64, f64)>,
}

impl Handlers {
    /// Collects the callpaths with enough calls with both sides.
    pub(super) fn collect(view: &View<'_>) -> BTreeMap<PathId, Self> {
        let mut paths: BTreeMap<PathId, Self> = BTreeMap::new();
        let mut targets: BTreeMap<PathId, BTreeSet<u32>> = BTreeMap::new();
        for (call, others) in view.joined.iter().zip(at_work(&view.joined)) {
            let own = call.own.saturating_sub(call.database_wait.unwrap_or(0)) as f64;
            let sums = paths.entry(call.path).or_default();
            sums.all_ns += call.end.abs_diff(call.start) as f64;
            sums.own_ns += own;
            sums.others += others;
            sums.points.push((others, own));
            targets.entry(call.path).or_default().insert(call.target);
        }
        paths.retain(|_, sums| sums.points.len() as u64 >= MIN_CALLS);
        for (path, sums) in &mut paths {
            sums.targets = targets.remove(path).unwrap_or_default().into_iter().collect();
            sums.divide();
        }
        paths
    }

    /// Divides the own time into that of the handlers alone and that of their waits for each other.
    fn divide(&mut self) {
        let Some((slope, zero, _)) = line(&self.points) else { return };
        // A pause of the machine makes all handlers at work longer, however many there are.
        let mut near = self.points.clone();
        let distance = |(others, own): &(f64, f64)| (own - zero - slope * others).abs();
        near.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        near.truncate((near.len() as f64 * (1.0 - PAUSED)) as usize);
        let Some((slope, _, correlation)) = line(&near) else { return };
        (self.slope, self.correlation) = (slope, correlation);
        let freedom = (near.len() as f64 - 2.0).max(1.0);
        let errors = correlation * (freedom / (1.0 - correlation * correlation).max(1e-9)).sqrt();
        if correlation >= MIN_CORRELATION && errors >= MIN_ERRORS {
            self.wait_ns = (slope * self.others).clamp(0.0, self.own_ns);
        }
    }

    /// Number of calls.
    pub(super) fn count(&self) -> f64 {
        self.points.len() as f64
    }

    /// Time of the handlers alone in ns.
    pub(super) fn alone_ns(&self) -> f64 {
        self.own_ns - self.wait_ns
    }

    /// Mean number of handlers at work when one begins.
    pub(super) fn mean_others(&self) -> f64 {
        self.others / self.count().max(1.0)
    }

    /// Returns true if some handlers began while others were at work, and not all met the same number of them.
    pub(super) fn has_overlap(&self) -> bool {
        self.points.iter().any(|point| point.0 != self.points[0].0)
    }

    /// Processors that the busiest target uses, as a mean over its samples.
    pub(super) fn processors(&self, view: &View<'_>) -> Option<f64> {
        let used = self.targets.iter().filter_map(|target| view.processors(*target));
        used.max_by(f64::total_cmp)
    }

    /// Processor time of the targets as a share of their handlers' own time, at most 1.
    pub(super) fn computing(&self, view: &View<'_>) -> Option<f64> {
        let used: Option<f64> = self.targets.iter().map(|target| view.processors(*target)).sum();
        let at_work = self.own_ns / (view.length_ns() as f64).max(1.0);
        used.map(|used| (used / at_work.max(1e-9)).min(1.0))
    }
}

/// The number of handlers at work when each call's handler begins, in the same process; in the order of the calls.
fn at_work(calls: &[Joined]) -> Vec<f64> {
    let mut moments: Vec<(u32, i64, bool, usize)> = Vec::with_capacity(2 * calls.len());
    for (at, call) in calls.iter().enumerate() {
        // A handler that ends when another one begins is not at work any more: `false` is first.
        moments.push((call.target, call.arrived.saturating_add_unsigned(call.queue), true, at));
        moments.push((call.target, call.served(), false, at));
    }
    moments.sort_unstable();
    let (mut others, mut now, mut target) = (vec![0.0; calls.len()], 0.0, None);
    for (process, _, begins, at) in moments {
        if target != Some(process) {
            (target, now) = (Some(process), 0.0);
        }
        if begins {
            others[at] = now;
            now += 1.0;
        } else {
            now = (now - 1.0_f64).max(0.0);
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(target: u32, begin: i64, own: u64) -> Joined {
        Joined { target, arrived: begin - 5, queue: 5, own, ..Joined::default() }
    }

    #[test]
    fn handlers_at_work_are_those_of_the_same_process() {
        let calls = [call(1, 0, 10), call(1, 5, 10), call(2, 6, 1), call(1, 10, 9), call(1, 40, 1)];
        assert_eq!(at_work(&calls), [0.0, 1.0, 0.0, 1.0, 0.0]);
    }

    /// Handlers with a lock for 10 each, and handlers that take 10 whatever others do.
    #[test]
    fn the_rise_of_own_times_with_the_handlers_at_work_is_a_wait() {
        let sums = |own: fn(f64) -> f64| {
            let points: Vec<_> = (0..60).map(|at| f64::from(at % 6)).map(|n| (n, own(n))).collect();
            let (others, own_ns) = points.iter().fold((0.0, 0.0), |s, p| (s.0 + p.0, s.1 + p.1));
            let mut sums = Handlers { points, others, own_ns, ..Handlers::default() };
            sums.divide();
            (sums.wait_ns.round(), sums.alone_ns().round())
        };
        assert_eq!(sums(|others| 10.0 * (others + 1.0)), (1500.0, 600.0));
        assert_eq!(sums(|_| 10.0), (0.0, 600.0));
        assert_eq!(sums(|others| 70.0 - 10.0 * others), (0.0, 2700.0));
    }
}
