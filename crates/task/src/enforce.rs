//! Limits: seen early, told at nine tenths, and when one is exceeded the whole task is ended and
//! nothing else.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use skopos_model::task::{Crossing, Limits};

use crate::family::{self, Member};
use crate::mechanism::{Mechanism, Now};
use crate::seen::Seen;

/// From this share of a limit on one is warned.
const WARN_SHARE: f64 = 0.9;

/// Between two attempts to end what is left: a process that forks needs longer for a child.
pub(crate) const AGAIN: Duration = Duration::from_millis(2);

/// Watches the limits of one task.
pub(crate) struct Enforcer {
    limits: Limits,
    warned: HashSet<&'static str>,
    grace: Duration,
    ending: Option<Ending>,
}

/// A task that is being ended.
struct Ending {
    since: Instant,
    /// Processes that were stopped, so that they start no more.
    stopped: HashSet<Member>,
}

impl Enforcer {
    pub(crate) fn new(limits: &Limits, grace: Duration) -> Self {
        Self { limits: limits.clone(), warned: HashSet::new(), grace, ending: None }
    }

    /// True if anything is limited.
    pub(crate) fn has_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// True if looks are what keeps a limit: a clock keeps that of the wall time.
    pub(crate) fn needs_looks(&self) -> bool {
        self.limits.iter().any(|limit| limit.resource.name != "wall_seconds")
    }

    /// When the wall time is over, since the start.
    pub(crate) fn wall_limit(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.limits.of("wall_seconds")?).ok()
    }

    /// What is exceeded now.
    pub(crate) fn exceeded(&self, now: &Now, elapsed: Duration) -> Vec<Crossing> {
        let values = self
            .limits
            .iter()
            .filter_map(|limit| Some((limit, value(now, elapsed, limit.resource.name)?)));
        let crossings = values.map(|(limit, value)| Crossing { limit, value });
        crossings.filter(|crossing| crossing.value > crossing.limit.most).collect()
    }

    /// What is near its limit now and was not before.
    pub(crate) fn near(&mut self, now: &Now, elapsed: Duration) -> Vec<Crossing> {
        let mut near = Vec::new();
        for limit in self.limits.iter() {
            let Some(value) = value(now, elapsed, limit.resource.name) else { continue };
            let is_near = value >= WARN_SHARE * limit.most && value <= limit.most;
            if is_near && self.warned.insert(limit.resource.name) {
                near.push(Crossing { limit, value });
            }
        }
        near
    }

    /// True once the task is being ended.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Asks all processes to end, if they are given time for it.
    pub(crate) fn begin(&mut self, seen: &Seen) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(Ending { since: Instant::now(), stopped: HashSet::new() });
        if !self.grace.is_zero() {
            for member in family::members(seen) {
                member.signal(libc::SIGTERM);
                member.signal(libc::SIGCONT);
            }
        }
    }

    /// Ends what is left once its time is over. Called again and again until nothing is.
    pub(crate) fn step(&mut self, mechanisms: &mut [Box<dyn Mechanism>], seen: &Seen) {
        let Some(ending) = &mut self.ending else { return };
        if ending.since.elapsed() < self.grace {
            return;
        }
        if mechanisms.iter_mut().any(|m| m.kill_all()) {
            return;
        }
        // First all are stopped, so that none starts another while the rest is ended.
        let there = family::members(seen);
        let mut is_new = false;
        for member in &there {
            if ending.stopped.insert(*member) {
                is_new = true;
                member.signal(libc::SIGSTOP);
            }
        }
        if !is_new {
            there.iter().for_each(|member| member.signal(libc::SIGKILL));
        }
    }
}

fn value(now: &Now, elapsed: Duration, resource: &str) -> Option<f64> {
    match resource {
        "wall_seconds" => Some(elapsed.as_secs_f64()),
        "cores" => Some(now.cpu_seconds? / elapsed.as_secs_f64()),
        other => now.of(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_is_told_once_and_above_is_exceeded() {
        let limits = Limits::parse("memory=100,wall=10s").expect("limits");
        let mut enforcer = Enforcer::new(&limits, Duration::ZERO);
        let now = |bytes| Now { resident_bytes: Some(bytes), ..Now::default() };
        let second = Duration::from_secs(1);
        assert!(enforcer.near(&now(89), second).is_empty());
        assert_eq!(enforcer.near(&now(90), second).len(), 1);
        assert!(enforcer.near(&now(95), second).is_empty(), "told once");
        assert!(enforcer.exceeded(&now(100), second).is_empty());
        let crossings = enforcer.exceeded(&now(101), 11 * second);
        let texts: Vec<String> = crossings.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["memory: 101 B > 100 B", "wall: 11.0 s > 10.0 s"]);
    }
}
