//! The choice that a client makes for each request, from a published ranking and from what the client sees itself.
//!
//! A published ranking is the same for all clients and a fraction of a second old. If all of them sent each request to
//! its first entry, they would overload it until the next ranking. A [`Chooser`] therefore draws: the weight of a
//! candidate falls with its expected cost and with its estimated queue, which is the queue that telemetry and responses
//! reported, faded by its age, and the requests that this client has outstanding there, counted once for each client.
//!
//! The cube of the queue is from C3 (Suresh, Canini, Schmid, Feldmann: "C3: Cutting Tail Latency in Cloud Data Stores
//! via Adaptive Replica Selection", NSDI 2015, section 3.1): it keeps a fast server from a long queue. The draw is not
//! from C3, which takes the smallest score; [`crate::simulate`] compares both.
//!
//! A candidate that neither published nor answered for a while is withdrawn: it is chosen only if all others are withdrawn
//! or avoided as well. A server that fails stops to publish before the first request to it times out.

use std::time::Duration;

use skopos_model::{SplitMix64, Timestamp};

use crate::rank::limits::{MAX_CANDIDATES, MAX_COST, MIN_COST};

/// Settings of a [`Chooser`]. `docs/internals/decisions.md` has the simulations behind the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Number of clients that send to the same candidates; each outstanding request counts this many times.
    pub clients: f64,
    /// Requests that a candidate serves at once: a queue of that length doubles the expected time.
    pub slots: f64,
    /// Exponent of the expected cost in the weight of a candidate.
    pub cost_power: f64,
    /// Exponent of the estimated queue in the weight of a candidate.
    pub queue_power: f64,
    /// Time after which a reported queue has half of its weight against the usual queue of that candidate.
    pub queue_half_life: Duration,
    /// Time after which a reported cost has half of its weight against the published cost.
    pub cost_half_life: Duration,
    /// Time after a failure for which a candidate is avoided; it doubles with each failure in a row.
    pub penalty: Duration,
    /// Age of the telemetry and of the last answer from which a candidate is withdrawn: two and a half intervals of the
    /// telemetry, so that a single late publication withdraws nothing. [`Duration::MAX`] withdraws no candidate.
    pub stale_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clients: 1.0,
            slots: 4.0,
            cost_power: 1.5,
            queue_power: 3.0,
            queue_half_life: Duration::from_millis(10),
            cost_half_life: Duration::from_millis(200),
            penalty: Duration::from_millis(100),
            stale_after: Duration::from_millis(250),
        }
    }
}

/// The published part of a candidate's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Expected time of a request without a queue, in any unit that all candidates share: seconds, or 1 + score.
    pub cost: f64,
    /// Requests that the candidate has; `None` if the telemetry does not say it.
    pub queue: Option<f64>,
}

/// A report that a candidate adds to its response (as ORCA does); every part may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Requests that the candidate has.
    pub queue: Option<f64>,
    /// Expected time of a request without a queue, in the unit of [`Published::cost`].
    pub cost: Option<f64>,
}

/// Longest penalty, in doublings of [`Settings::penalty`]: about six seconds at 100 ms, so that a candidate that
/// restarts is found again.
const MAX_DOUBLINGS: u32 = 6;
/// Share of a new queue in a candidate's usual queue: the mean of about the last ten.
const USUAL_SHARE: f64 = 0.1;

/// A value and its time.
#[derive(Clone, Copy, Debug)]
struct Timed {
    value: f64,
    at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Local {
    outstanding: u32,
    failures: u32,
    avoided_until: Option<Timestamp>,
    published: Option<f64>,
    /// Time of the last sign of life: telemetry or an answer. A candidate without telemetry has none, because then its
    /// absence says nothing.
    seen: Option<Timestamp>,
    /// The cost in the last report.
    reported: Option<Timed>,
    usual_queue: Option<f64>,
    /// The queue in the last report.
    queue: Option<Timed>,
}

/// The state of one client: its outstanding requests, and the latest that it knows of each candidate.
#[derive(Clone, Debug)]
pub struct Chooser {
    settings: Settings,
    locals: Vec<Local>,
    random: SplitMix64,
}

impl Chooser {
    /// Makes the state for candidates `0..candidates`, at most [`MAX_CANDIDATES`]; further ones are never chosen.
    pub fn new(candidates: usize, settings: Settings, seed: u64) -> Self {
        let locals = vec![Local::default(); candidates.min(MAX_CANDIDATES)];
        Self { settings, locals, random: SplitMix64::new(seed) }
    }

    /// Takes the published state of a candidate, which was measured at `at`. Values that are not finite or negative are
    /// ignored.
    pub fn publish(&mut self, at: Timestamp, candidate: usize, published: Published) {
        let Some(local) = self.locals.get_mut(candidate) else { return };
        local.seen = local.seen.max(Some(at));
        if let Some(cost) = usable(published.cost) {
            local.published = Some(cost.clamp(MIN_COST, MAX_COST));
        }
        if let Some(queue) = published.queue.and_then(usable) {
            local.mean_queue(queue);
        }
    }

    /// Chooses one of `among` and counts a request as outstanding there; `None` if no candidate of it exists. The caller
    /// must report the end by [`finish`](Self::finish).
    pub fn pick(&mut self, now: Timestamp, among: &[usize]) -> Option<usize> {
        let fallback = self.mean_cost(among);
        let mut best: Option<(bool, f64, usize)> = None;
        for &candidate in among {
            let Some(local) = self.locals.get(candidate) else { continue };
            let withdrawn = local.seen.is_some_and(|at| now.since(at) > self.settings.stale_after);
            let avoided = withdrawn || local.avoided_until.is_some_and(|until| until > now);
            // The first of several exponential times with the weights as rates: a draw in proportion to the weights.
            let wait =
                -(1.0 - self.random.unit()).ln() * local.reluctance(now, &self.settings, fallback);
            if best.is_none_or(|(a, w, _)| (avoided, wait) < (a, w)) {
                best = Some((avoided, wait, candidate));
            }
        }
        let (_, _, chosen) = best?;
        self.locals[chosen].outstanding += 1;
        Some(chosen)
    }

    /// Takes the end of a request that [`pick`](Self::pick) chose: whether it failed, and the report in its response.
    pub fn finish(&mut self, now: Timestamp, candidate: usize, failed: bool, report: Report) {
        let Some(local) = self.locals.get_mut(candidate) else { return };
        local.outstanding = local.outstanding.saturating_sub(1);
        if failed {
            let doublings = local.failures.min(MAX_DOUBLINGS);
            local.failures = local.failures.saturating_add(1);
            let penalty = self.settings.penalty.saturating_mul(1 << doublings);
            local.avoided_until = Some(now.saturating_add(penalty));
            return;
        }
        local.failures = 0;
        local.avoided_until = None;
        local.seen = local.seen.map(|seen| seen.max(now));
        if let Some(queue) = report.queue.and_then(usable) {
            local.mean_queue(queue);
            local.queue = Some(Timed { value: queue, at: now });
        }
        if let Some(cost) = report.cost.and_then(usable) {
            local.reported = Some(Timed { value: cost.clamp(MIN_COST, MAX_COST), at: now });
        }
    }

    /// Returns the number of requests that this client has outstanding at `candidate`.
    pub fn outstanding(&self, candidate: usize) -> u32 {
        self.locals.get(candidate).map_or(0, |l| l.outstanding)
    }

    /// Returns the cost of a candidate of which nothing is known: the mean of the others.
    fn mean_cost(&self, among: &[usize]) -> f64 {
        let locals = among.iter().filter_map(|c| self.locals.get(*c));
        let known = locals.filter_map(|l| l.published.or(l.reported.map(|r| r.value)));
        let (sum, count) = known.fold((0.0, 0.0), |(sum, count), cost| (sum + cost, count + 1.0));
        if count > 0.0 { sum / count } else { 1.0 }
    }
}

impl Local {
    fn mean_queue(&mut self, queue: f64) {
        let usual = self.usual_queue.unwrap_or(queue);
        self.usual_queue = Some(usual + (queue - usual) * USUAL_SHARE);
    }

    /// Returns the reciprocal of the weight.
    fn reluctance(&self, now: Timestamp, settings: &Settings, fallback: f64) -> f64 {
        let usual = self.usual_queue.unwrap_or(0.0);
        let queue = blend(now, usual, self.queue, settings.queue_half_life);
        let queue = queue + f64::from(self.outstanding) * settings.clients;
        let cost = match (self.published, self.reported) {
            (None, Some(reported)) => reported.value,
            (published, reported) => {
                let published = published.unwrap_or(fallback);
                blend(now, published, reported, settings.cost_half_life)
            }
        };
        cost.powf(settings.cost_power) * (1.0 + queue / settings.slots).powf(settings.queue_power)
    }
}

/// Returns `usual`, moved towards a report: all the way when it is new, halfway after `half_life`.
fn blend(now: Timestamp, usual: f64, report: Option<Timed>, half_life: Duration) -> f64 {
    let Some(report) = report else { return usual };
    let half_life = half_life.as_secs_f64().max(MIN_COST);
    // 1 / (1 + x) instead of 2^-x: cheaper, and near it where it matters.
    let fresh = 1.0 / (1.0 + now.since(report.at).as_secs_f64() / half_life);
    usual + (report.value - usual) * fresh
}

fn usable(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}
