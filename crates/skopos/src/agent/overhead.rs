//! Keeps what the agent costs within its budget.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use skopos_score::budget::{Budget, Demand, Grant, Plan};

use crate::agent::polled::Polled;
use crate::failure::Failure;

/// How long what the agent costs beside its polls is measured before it counts: a tick of the
/// kernel's accounting is four milliseconds.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// Weight of the newest measurement.
const WEIGHT: f64 = 0.25;

/// The budget and what is known of costs.
pub(crate) struct Overhead {
    limit: f64,
    budget: Budget,
    /// What was planned last.
    plan: Plan,
    /// What the agent costs beside its polls, a share of one core.
    other: f64,
    /// What it costs in all, measured, a share of one core; `None` until it was measured.
    measured: Option<f64>,
    /// Processor time of all polls since the last measurement.
    polls: Duration,
    measured_at: Duration,
    process: Duration,
    demands: Vec<Demand>,
    grants: Vec<Grant>,
}

impl Overhead {
    /// A limit of so much of one core.
    pub(crate) fn new(limit: f64, now: Duration) -> Result<Self, Failure> {
        let budget = Budget::new(limit)
            .map_err(|e| Failure::new("--budget").because(&e).hint("try `--budget 1%`"))?;
        Ok(Self {
            limit,
            budget,
            plan: Plan { wanted: 0.0, granted: 0.0, over: 0.0 },
            other: 0.0,
            measured: None,
            polls: Duration::ZERO,
            measured_at: now,
            process: process_time(),
            demands: Vec::new(),
            grants: Vec::new(),
        })
    }

    /// The limit, a share of one core.
    pub(crate) fn limit(&self) -> f64 {
        self.limit
    }

    /// What was planned last.
    pub(crate) fn planned(&self) -> Plan {
        self.plan
    }

    /// What the agent costs in all, a share of one core.
    pub(crate) fn measured(&self) -> Option<f64> {
        self.measured
    }

    /// A poll took so much processor time.
    pub(crate) fn polled(&mut self, spent: Duration) {
        self.polls += spent;
    }

    /// Shares out the budget.
    pub(crate) fn plan(&mut self, polled: &mut [Polled], now: Duration) {
        self.measure(now);
        self.demands.clear();
        self.demands.extend(polled.iter().map(|p| p.demand(now)));
        self.plan = self.budget.plan(self.other, &self.demands, &mut self.grants);
        for (polled, grant) in polled.iter_mut().zip(&self.grants) {
            polled.grant(*grant);
        }
    }

    fn measure(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.measured_at);
        if elapsed < MEASURE_EVERY {
            return;
        }
        let process = process_time();
        let spent = process.saturating_sub(self.process);
        let share = |d: Duration| d.as_secs_f64() / elapsed.as_secs_f64();
        let other = share(spent.saturating_sub(self.polls));
        let weight = if self.measured.is_none() { 1.0 } else { WEIGHT };
        self.other += weight * (other - self.other);
        self.measured = Some(share(spent));
        self.polls = Duration::ZERO;
        self.measured_at = now;
        self.process = process;
    }
}

/// Processor time of this process, user and system.
pub(crate) fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
