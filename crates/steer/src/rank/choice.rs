//! The choice that a client makes for each request, from a published ranking and from what the client sees itself.
//!
//! A published ranking is the same for all clients and a fraction of a second old. If all of them sent each request to
//! its first entry, they would overload it until the next ranking. A [`Chooser`] therefore multiplies the published cost
//! of a candidate by its estimated queue: the queue that the telemetry saw, faded by its age, and the requests that this
//! client has outstanding there, counted once for each client that behaves like it.
//!
//! The cube of the queue is from C3 (Suresh, Canini, Schmid, Feldmann: "C3: Cutting Tail Latency in Cloud Data Stores
//! via Adaptive Replica Selection", NSDI 2015, section 3.1): it keeps a fast server from a long queue.

use std::time::Duration;

use skopos_model::{SplitMix64, Timestamp};

use crate::rank::limits::{MAX_CANDIDATES, MAX_COST, MIN_COST};

/// Settings of a [`Chooser`]; the default is the result of the simulations in `docs/internals/decisions.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Number of clients that send to the same candidates; each outstanding request counts this many times.
    pub clients: f64,
    /// Exponent of the estimated queue.
    pub exponent: f64,
    /// Time after which a reported queue has half of its weight against the usual queue of that candidate.
    pub queue_half_life: Duration,
    /// Time after which a reported service time has half of its weight against the published cost.
    pub service_half_life: Duration,
    /// Time after a failure for which a candidate is avoided; it doubles with each failure in a row.
    pub penalty: Duration,
    /// Requests that a candidate serves at once; a queue of that length does not wait yet.
    pub slots: f64,
    /// Share of a new queue in the usual queue of its candidate.
    pub usual_share: f64,
    /// Largest random addition to a cost, as a share of it: it keeps clients with the same view apart.
    pub jitter: f64,
    /// Share of the latency that the client itself saw in the cost.
    pub own_share: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clients: 1.0,
            exponent: 3.0,
            queue_half_life: Duration::from_millis(50),
            service_half_life: Duration::from_millis(200),
            penalty: Duration::from_millis(100),
            slots: 1.0,
            own_share: 0.0,
            usual_share: 0.1,
            jitter: 0.0,
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
    /// Time of the telemetry.
    pub at: Timestamp,
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

#[derive(Clone, Copy, Debug)]
struct Local {
    outstanding: u32,
    failures: u32,
    avoided_until: Timestamp,
    cost: f64,
    cost_at: Timestamp,
    published: f64,
    queue: f64,
    queue_at: Timestamp,
    usual_queue: f64,
    own: f64,
}

const UNKNOWN: Local = Local {
    outstanding: 0,
    failures: 0,
    avoided_until: Timestamp::from_nanos(i64::MIN),
    cost: f64::NAN,
    cost_at: Timestamp::from_nanos(i64::MIN),
    published: f64::NAN,
    queue: 0.0,
    queue_at: Timestamp::from_nanos(i64::MIN),
    usual_queue: 0.0,
    own: f64::NAN,
};

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
        let locals = vec![UNKNOWN; candidates.min(MAX_CANDIDATES)];
        Self { settings, locals, random: SplitMix64::new(seed) }
    }

    /// Takes the published state of a candidate. Values that are not finite or negative are ignored.
    pub fn publish(&mut self, candidate: usize, published: Published) {
        let Some(local) = self.locals.get_mut(candidate) else { return };
        if let Some(cost) = usable(published.cost) {
            local.published = cost.clamp(MIN_COST, MAX_COST);
            if published.at >= local.cost_at {
                local.cost = local.published;
                local.cost_at = published.at;
            }
        }
        if let Some(queue) = published.queue.and_then(usable) {
            local.take_queue(queue, published.at, self.settings.usual_share, false);
        }
    }

    /// Chooses one of `among` and counts a request as outstanding there; `None` if no candidate of it exists. The caller
    /// must report the end by [`finish`](Self::finish).
    pub fn pick(&mut self, now: Timestamp, among: &[usize]) -> Option<usize> {
        let mut best: Option<(bool, f64, usize)> = None;
        // Equal costs are common in the beginning; the first of them would be the same for all clients.
        let start = self.random.below(among.len());
        let fallback = self.mean_cost(among);
        for step in 0..among.len() {
            let candidate = among[(start + step) % among.len()];
            let Some(local) = self.locals.get(candidate) else { continue };
            let avoided = local.avoided_until > now;
            let cost = local.expected(now, &self.settings, fallback);
            let cost = if self.settings.jitter >= 0.0 { cost * (1.0 + self.settings.jitter * self.random.unit()) } else { -(1.0 - self.random.unit()).ln() * cost.powf(-self.settings.jitter) };
            if best.is_none_or(|(a, c, _)| (avoided, cost) < (a, c)) {
                best = Some((avoided, cost, candidate));
            }
        }
        let (_, _, chosen) = best?;
        self.locals[chosen].outstanding += 1;
        Some(chosen)
    }

    /// Takes the end of a request that [`pick`](Self::pick) chose: its latency in seconds, or `None` if it failed.
    pub fn finish(
        &mut self,
        now: Timestamp,
        candidate: usize,
        latency: Option<f64>,
        report: Report,
    ) {
        let settings = self.settings;
        let Some(local) = self.locals.get_mut(candidate) else { return };
        local.outstanding = local.outstanding.saturating_sub(1);
        let Some(latency) = latency else {
            let doublings = local.failures.min(MAX_DOUBLINGS);
            local.failures += 1;
            local.avoided_until = now.saturating_add(settings.penalty * (1 << doublings));
            return;
        };
        local.failures = 0;
        local.avoided_until = UNKNOWN.avoided_until;
        if let Some(latency) = usable(latency) {
            local.own = blend(local.own, latency.max(MIN_COST), 0.1);
        }
        if let Some(queue) = report.queue.and_then(usable) {
            local.take_queue(queue, now, settings.usual_share, true);
        }
        if let Some(cost) = report.cost.and_then(usable) {
            local.cost = cost.clamp(MIN_COST, MAX_COST);
            local.cost_at = now;
        }
    }

    /// Returns the number of requests that this client has outstanding at `candidate`.
    pub fn outstanding(&self, candidate: usize) -> u32 {
        self.locals.get(candidate).map_or(0, |l| l.outstanding)
    }

    fn mean_cost(&self, among: &[usize]) -> f64 {
        let known = among.iter().filter_map(|c| self.locals.get(*c)).map(|l| l.cost);
        let (sum, count) = known
            .filter(|c| c.is_finite())
            .fold((0.0, 0.0), |(sum, count), cost| (sum + cost, count + 1.0));
        if count > 0.0 { sum / count } else { 1.0 }
    }
}

impl Local {
    fn take_queue(&mut self, queue: f64, at: Timestamp, share: f64, instant: bool) {
        self.usual_queue = match self.queue_at == UNKNOWN.queue_at {
            true => queue,
            false => blend(self.usual_queue, queue, share),
        };
        if self.queue_at == UNKNOWN.queue_at || instant && at >= self.queue_at {
            self.queue = queue;
            self.queue_at = at;
        }
    }

    fn expected(&self, now: Timestamp, settings: &Settings, fallback: f64) -> f64 {
        let fresh = faded(now, self.queue_at, settings.queue_half_life);
        let queue = self.usual_queue + (self.queue - self.usual_queue) * fresh;
        let waiting = f64::from(self.outstanding) * settings.clients + queue;
        let length = (1.0 + waiting / settings.slots).powf(settings.exponent);
        let cost = match (self.cost.is_finite(), self.published.is_finite()) {
            (true, true) => {
                let fresh = faded(now, self.cost_at, settings.service_half_life);
                self.published + (self.cost - self.published) * fresh
            }
            (true, false) => self.cost,
            (false, _) => fallback,
        };
        let own = if self.own.is_finite() { self.own } else { cost };
        cost * length + settings.own_share * own
    }
}

/// Returns the weight of a value of time `at`: 1 when it is new, half after `half_life`.
fn faded(now: Timestamp, at: Timestamp, half_life: Duration) -> f64 {
    let half_life = half_life.as_secs_f64();
    if half_life <= 0.0 {
        return 0.0;
    }
    // 1 / (1 + x) instead of 2^-x: cheaper, and near it where it matters.
    1.0 / (1.0 + now.since(at).as_secs_f64() / half_life)
}

fn usable(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

fn blend(old: f64, new: f64, share: f64) -> f64 {
    if old.is_finite() { old + (new - old) * share } else { new }
}
