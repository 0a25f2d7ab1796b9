//! Limits: seen early, told at nine tenths, and when one is exceeded the whole task is ended and
//! nothing else.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use skopos_model::task::{Crossing, Limits};

use crate::family::{self, Member};
use crate::mechanism::{Mechanism, Now};
use crate::proc;
use crate::seen::Seen;

/// From this share of a limit on one is warned.
const WARN_SHARE: f64 = 0.9;

/// Between two attempts to end what is left: a process that forks needs longer for a child.
pub(crate) const AGAIN: Duration = Duration::from_millis(2);

/// After this long nobody has to wait for what does not end: one that waits for a dead server cannot.
const PATIENCE: Duration = Duration::from_secs(1);

/// Watches the limits of one task.
pub(crate) struct Enforcer {
    limits: Limits,
    warned: HashSet<&'static str>,
    grace: Duration,
    ending: Option<Ending>,
    /// What is left is left.
    has_given_up: bool,
}

/// A task that is being ended.
struct Ending {
    since: Instant,
    /// Processes that were stopped, so that they start no more.
    stopped: HashSet<Member>,
    /// Processes that this user may not end.
    refused: HashSet<Member>,
}

impl Enforcer {
    pub(crate) fn new(limits: &Limits, grace: Duration) -> Self {
        Self {
            limits: limits.clone(),
            warned: HashSet::new(),
            grace,
            ending: None,
            has_given_up: false,
        }
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
    fn wall_limit(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.limits.of("wall_seconds")?).ok()
    }

    /// When the clock has something to tell next: nine tenths of the wall time, then all of it.
    pub(crate) fn next_wall(&self) -> Option<Duration> {
        let wall = self.wall_limit()?;
        let is_told = self.warned.contains("wall_seconds");
        Some(if is_told { wall } else { wall.mul_f64(WARN_SHARE) })
    }

    /// What is exceeded now, of that which the kernel does not keep: what it keeps it counts better.
    pub(crate) fn exceeded(
        &self,
        now: &Now,
        elapsed: Duration,
        kept: impl Fn(&str) -> bool,
    ) -> Vec<Crossing> {
        let values = self
            .limits
            .iter()
            .filter(|limit| !kept(limit.resource.name))
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

    /// True while something of a task that is being ended is left, and may be ended.
    pub(crate) fn has_more(&self, seen: &Seen) -> bool {
        let Some(ending) = self.ending.as_ref().filter(|_| !self.has_given_up) else {
            return false;
        };
        family::unended(seen).iter().any(|member| !ending.refused.contains(member))
    }

    /// Nobody waits any longer. What was stopped is to end all the same, whenever it can.
    pub(crate) fn give_up(&mut self, seen: &Seen) {
        let Some(ending) = &self.ending else { return };
        if ending.since.elapsed() >= self.grace {
            for member in family::unended(seen) {
                member.signal(libc::SIGKILL);
            }
        }
        self.has_given_up = true;
    }

    /// True if who asks the monitor to end is obeyed while the task is being ended. One that was found
    /// is nobody's here, and let go of at once; one that was started takes a moment to be ended whole.
    pub(crate) fn may_give_up(&self, is_found: bool) -> bool {
        let patience = self.grace.saturating_add(PATIENCE);
        self.ending.as_ref().is_some_and(|e| is_found || e.since.elapsed() >= patience)
    }

    /// True if all that is left may not be ended by this user.
    pub(crate) fn cannot(&self, seen: &Seen) -> bool {
        let is_refused = self.ending.as_ref().is_some_and(|ending| !ending.refused.is_empty());
        is_refused && !self.has_more(seen)
    }

    /// The command lines of what runs on though it was to be ended.
    pub(crate) fn left(&self, seen: &Seen) -> Vec<String> {
        let Some(ending) = &self.ending else { return Vec::new() };
        if !self.has_given_up && ending.refused.is_empty() {
            return Vec::new();
        }
        let told = |pid| format!("{} (pid {pid})", proc::command(pid).unwrap_or_default());
        let there = family::unended(seen).into_iter().filter(Member::is_there);
        there.map(|member| told(member.pid)).collect()
    }

    /// Asks all processes to end, if they are given time for it.
    pub(crate) fn begin(&mut self, seen: &Seen) {
        if self.ending.is_some() {
            return;
        }
        let (stopped, refused) = (HashSet::new(), HashSet::new());
        self.ending = Some(Ending { since: Instant::now(), stopped, refused });
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
        if self.has_given_up || ending.since.elapsed() < self.grace {
            return;
        }
        if mechanisms.iter_mut().any(|m| m.kill_all()) {
            return;
        }
        // First all are stopped, so that none starts another while the rest is ended.
        let mut there = family::unended(seen);
        there.retain(|member| !ending.refused.contains(member));
        let mut is_new = false;
        for member in &there {
            if ending.stopped.insert(*member) {
                is_new = true;
                if !member.signal(libc::SIGSTOP) {
                    ending.refused.insert(*member);
                }
            }
        }
        if !is_new {
            let refused = there.into_iter().filter(|member| !member.signal(libc::SIGKILL));
            ending.refused.extend(refused);
        }
    }
}

/// Leaves one of each resource, the first: two mechanisms may have seen the same limit crossed.
pub(crate) fn once(crossings: &mut Vec<Crossing>) {
    let mut names = HashSet::new();
    crossings.retain(|crossing| names.insert(crossing.limit.resource.name));
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
        let nobody = |_: &str| false;
        assert!(enforcer.exceeded(&now(100), second, nobody).is_empty());
        let crossings = enforcer.exceeded(&now(101), 11 * second, nobody);
        let texts: Vec<String> = crossings.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["memory: 101 B > 100 B", "wall: 11.0 s > 10.0 s"]);
    }

    #[test]
    fn a_limit_that_the_kernel_keeps_is_not_judged_by_looks() {
        let limits = Limits::parse("memory=100").expect("limits");
        let enforcer = Enforcer::new(&limits, Duration::ZERO);
        let now = Now { resident_bytes: Some(101), ..Now::default() };
        let second = Duration::from_secs(1);
        let by_kernel = |name: &str| name == "resident_bytes_max";
        assert!(enforcer.exceeded(&now, second, by_kernel).is_empty());
    }

    #[test]
    fn a_limit_that_two_saw_crossed_is_told_once() {
        let limits = Limits::parse("memory=100,wall=10s").expect("limits");
        let [memory, wall] = [0, 1].map(|at| limits.iter().nth(at).expect("there are two"));
        let crossing = |limit, value| Crossing { limit, value };
        // Another is between the two, as where each mechanism tells of several.
        let mut crossings =
            vec![crossing(memory, 101.0), crossing(wall, 11.0), crossing(memory, 102.0)];
        once(&mut crossings);
        assert_eq!(crossings, [crossing(memory, 101.0), crossing(wall, 11.0)]);
    }

    #[test]
    fn pages_that_processes_share_exceed_nothing() {
        let limits = Limits::parse("memory=100").expect("limits");
        let enforcer = Enforcer::new(&limits, Duration::ZERO);
        let now = Now { resident_bytes: Some(400), unshared_bytes: Some(99), ..Now::default() };
        assert!(enforcer.exceeded(&now, Duration::from_secs(1), |_| false).is_empty());
    }
}
