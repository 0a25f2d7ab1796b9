//! Enforces limits: warns at nine tenths of a limit, and ends the whole task, and nothing else, once
//! it exceeds a limit.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use skopos_model::task::{Combine, Crossing, Limits};

use crate::family;
use crate::ledger::Ledger;
use crate::mechanism::{Mechanism, Sample};
use crate::member::Member;
use crate::proc;

/// The share of a limit at which the user is warned.
const WARN_SHARE: f64 = 0.9;

/// The share of a limit from which on samples are taken faster.
const URGENT_SHARE: f64 = 0.25;

/// The pause that a value at nothing of its limit would ask for, and that of a value at its limit which does not
/// grow: fifty samples a second cost some per cent of a core.
const FAR_SECONDS: f64 = 0.1;
const NEAR_SECONDS: f64 = 0.02;

/// The shortest pause: at 1 GB/s a task grows by 2 MB in that time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);

/// Shortest time between two attempts to kill the remaining processes: a fork takes longer than this.
const RETRY: Duration = Duration::from_millis(2);

/// Longest time between two checks whether a task that is being ended has exited. The exits of an attached
/// task are not reported to the monitor.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Time after which the user may abort the wait for processes that do not exit. A process that waits
/// for a dead file server cannot.
const PATIENCE: Duration = Duration::from_secs(1);

/// Checks and enforces the limits of one task.
pub(crate) struct Enforcer {
    limits: Limits,
    warned: HashSet<&'static str>,
    /// The last value of each limited resource, and its time.
    last: HashMap<&'static str, (Duration, f64)>,
    grace: Duration,
    ending: Option<Ending>,
    /// The user aborted the wait for the remaining processes.
    has_given_up: bool,
}

/// A task that is being ended.
struct Ending {
    since: Instant,
    /// Processes that were stopped, so that they start no others.
    stopped: HashSet<Member>,
    /// Processes that this user may not kill.
    refused: HashSet<Member>,
    /// A mechanism has killed its control group.
    is_group_killed: bool,
    /// The time of the next search for remaining processes.
    next: Instant,
}

impl Enforcer {
    pub(crate) fn new(limits: &Limits, grace: Duration) -> Self {
        Self {
            limits: limits.clone(),
            warned: HashSet::new(),
            last: HashMap::new(),
            grace,
            ending: None,
            has_given_up: false,
        }
    }

    /// True if any resource is limited.
    pub(crate) fn has_limits(&self) -> bool {
        !self.limits.is_empty()
    }

    /// True if samples enforce a limit. The limit on wall time needs a clock only.
    pub(crate) fn needs_samples(&self) -> bool {
        self.limits.iter().any(|limit| limit.resource.name != "wall_seconds")
    }

    /// The limit on wall time, since the start.
    fn wall_limit(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.limits.of("wall_seconds")?).ok()
    }

    /// The next time at which wall time matters: nine tenths of its limit, then the limit.
    pub(crate) fn next_wall(&self) -> Option<Duration> {
        let wall = self.wall_limit()?;
        let has_warned = self.warned.contains("wall_seconds");
        Some(if has_warned { wall } else { wall.mul_f64(WARN_SHARE) })
    }

    /// Returns the limits that are exceeded, except those that the kernel enforces: it counts these
    /// better.
    pub(crate) fn exceeded(
        &self,
        now: &Sample,
        elapsed: Duration,
        by_kernel: impl Fn(&str) -> bool,
    ) -> Vec<Crossing> {
        let values = self
            .limits
            .iter()
            .filter(|limit| !by_kernel(limit.resource.name))
            .filter_map(|limit| Some((limit, value(now, elapsed, limit.resource.name)?)));
        let crossings = values.map(|(limit, value)| Crossing { limit, value });
        crossings.filter(|crossing| crossing.value > crossing.limit.most).collect()
    }

    /// Returns the values that have come near their limits since the last call.
    pub(crate) fn near(&mut self, now: &Sample, elapsed: Duration) -> Vec<Crossing> {
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

    /// Returns the pause until the next sample that values near their limits ask for: half of the time until
    /// the first exceeds its limit if it grows on as since the last sample. A value that can fall is also
    /// looked at the more often the nearer it is, because it may begin to grow.
    pub(crate) fn urgent_pause(
        &mut self,
        now: &Sample,
        elapsed: Duration,
        by_kernel: impl Fn(&str) -> bool,
    ) -> Option<Duration> {
        let mut pause: Option<Duration> = None;
        for limit in self.limits.iter() {
            let name = limit.resource.name;
            // Up to the limit, pages that processes share count for each of them: how many they are is not known yet.
            let resident = (name == "resident_bytes_max").then_some(now.resident_bytes).flatten();
            let resident = resident.map(|bytes| (bytes + now.tmpfs_bytes.unwrap_or(0)) as f64);
            let resident = resident.filter(|bytes| *bytes <= limit.most);
            let value = resident.or_else(|| value(now, elapsed, name));
            let Some(value) = value.filter(|_| !by_kernel(name)) else { continue };
            let before = self.last.insert(name, (elapsed, value));
            let share = value / limit.most;
            if name == "wall_seconds" || share < URGENT_SHARE {
                continue;
            }
            let mut seconds = match limit.resource.combine {
                Combine::Max => (FAR_SECONDS * (1.0 - share)).max(NEAR_SECONDS),
                Combine::Sum => FAR_SECONDS,
            };
            if let Some((at, before)) = before.filter(|(_, before)| *before < value) {
                let rate = (value - before) / elapsed.saturating_sub(at).as_secs_f64().max(1e-6);
                seconds = seconds.min((limit.most - value).max(0.0) / rate / 2.0);
            }
            let wanted = Duration::from_secs_f64(seconds).max(SHORTEST_PAUSE);
            pause = Some(pause.map_or(wanted, |pause| pause.min(wanted)));
        }
        pause
    }

    /// True once the task is being ended.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Returns the time until the next step, or the next check, of a task that is being ended.
    pub(crate) fn until_step(&self) -> Option<Duration> {
        let ending = self.ending.as_ref()?;
        let grace = self.grace.saturating_sub(ending.since.elapsed());
        let pause = ending.next.saturating_duration_since(Instant::now());
        Some(grace.max(pause).min(CHECK_EVERY))
    }

    /// True while processes of a task that is being ended are left and can be killed.
    pub(crate) fn has_work(&self, ledger: &Ledger) -> bool {
        let Some(ending) = self.ending.as_ref().filter(|_| !self.has_given_up) else {
            return false;
        };
        if ending.refused.is_empty() {
            return family::is_unended(ledger);
        }
        family::unended(ledger).iter().any(|member| !ending.refused.contains(member))
    }

    /// Stops waiting for the remaining processes. Stopped processes are killed all the same, so that
    /// they exit when they can.
    pub(crate) fn give_up(&mut self, ledger: &Ledger) {
        let Some(ending) = &self.ending else { return };
        if ending.since.elapsed() >= self.grace {
            for member in family::unended(ledger) {
                member.signal(libc::SIGKILL);
            }
        }
        self.has_given_up = true;
    }

    /// True if a signal may abort the end of the task. An attached task is released at once; a task
    /// that was started here gets a moment to exit completely.
    pub(crate) fn may_give_up(&self, is_attached: bool) -> bool {
        let patience = self.grace.saturating_add(PATIENCE);
        self.ending.as_ref().is_some_and(|e| is_attached || e.since.elapsed() >= patience)
    }

    /// True if only processes are left that this user may not kill.
    pub(crate) fn is_refused(&self, ledger: &Ledger) -> bool {
        let is_refused = self.ending.as_ref().is_some_and(|ending| !ending.refused.is_empty());
        is_refused && !self.has_work(ledger)
    }

    /// Returns the command lines of processes that run on although the task was to be ended.
    pub(crate) fn survivors(&self, ledger: &Ledger) -> Vec<String> {
        let Some(ending) = &self.ending else { return Vec::new() };
        if !self.has_given_up && ending.refused.is_empty() {
            return Vec::new();
        }
        // The command line of a process that does not exit may be locked.
        let command = |pid| ledger.command_of(pid).map(str::to_owned).or_else(|| proc::name(pid));
        let label = |pid| format!("{} (pid {pid})", command(pid).unwrap_or_default());
        let there = family::unended(ledger).into_iter().filter(Member::is_alive);
        there.map(|member| label(member.pid)).collect()
    }

    /// Begins to end the task. If there is a grace period, all processes get SIGTERM.
    pub(crate) fn begin(&mut self, ledger: &Ledger) {
        if self.ending.is_some() {
            return;
        }
        let (stopped, refused) = (HashSet::new(), HashSet::new());
        let since = Instant::now();
        self.ending = Some(Ending { since, stopped, refused, is_group_killed: false, next: since });
        if !self.grace.is_zero() {
            for member in family::unended(ledger) {
                member.signal(libc::SIGTERM);
                member.signal(libc::SIGCONT);
            }
        }
    }

    /// Kills the processes that are left after the grace period. Called repeatedly until none is left.
    pub(crate) fn step(&mut self, mechanisms: &mut [Box<dyn Mechanism>], ledger: &Ledger) {
        let Some(ending) = &mut self.ending else { return };
        let begun = Instant::now();
        if self.has_given_up || begun - ending.since < self.grace || begun < ending.next {
            return;
        }
        // The kernel kills the processes of a control group at once, except one whose first thread has exited.
        // The next step kills that one, and processes that left the group.
        if !ending.is_group_killed && mechanisms.iter_mut().any(|m| m.kill_all()) {
            ending.is_group_killed = true;
            ending.next = Instant::now() + CHECK_EVERY;
            return;
        }
        // All processes are stopped first, so that none forks while the others are killed. Each is
        // stopped as it is found: a task that forks without end doubles in less time than a complete
        // search takes.
        let mut is_new = false;
        let mut there = family::visit_unended(ledger, |member| {
            if !ending.refused.contains(member) && ending.stopped.insert(*member) {
                is_new = true;
                if !member.signal(libc::SIGSTOP) {
                    ending.refused.insert(*member);
                }
            }
        });
        there.retain(|member| !ending.refused.contains(member));
        if !is_new {
            let refused = there.into_iter().filter(|member| !member.signal(libc::SIGKILL));
            ending.refused.extend(refused);
        }
        // The pause leaves as much time to reap processes as the search took.
        ending.next = Instant::now() + begun.elapsed().max(RETRY);
    }
}

/// Keeps the first crossing of each resource: two mechanisms may report the same one.
pub(crate) fn keep_first(crossings: &mut Vec<Crossing>) {
    let mut names = HashSet::new();
    crossings.retain(|crossing| names.insert(crossing.limit.resource.name));
}

fn value(now: &Sample, elapsed: Duration, resource: &str) -> Option<f64> {
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
    fn a_value_near_its_limit_warns_once_and_a_value_above_exceeds_it() {
        let limits = Limits::parse("memory=100,wall=10s").expect("limits");
        let mut enforcer = Enforcer::new(&limits, Duration::ZERO);
        let now = |bytes| Sample { resident_bytes: Some(bytes), ..Sample::default() };
        let second = Duration::from_secs(1);
        assert!(enforcer.near(&now(89), second).is_empty());
        assert_eq!(enforcer.near(&now(90), second).len(), 1);
        assert!(enforcer.near(&now(95), second).is_empty(), "warned once");
        let not_kernel = |_: &str| false;
        assert!(enforcer.exceeded(&now(100), second, not_kernel).is_empty());
        let crossings = enforcer.exceeded(&now(101), 11 * second, not_kernel);
        let texts: Vec<String> = crossings.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["memory: 101 B > 100 B", "wall: 11.0 s > 10.0 s"]);
    }

    #[test]
    fn a_limit_that_the_kernel_enforces_is_not_checked_by_samples() {
        let limits = Limits::parse("memory=100").expect("limits");
        let enforcer = Enforcer::new(&limits, Duration::ZERO);
        let now = Sample { resident_bytes: Some(101), ..Sample::default() };
        let second = Duration::from_secs(1);
        let by_kernel = |name: &str| name == "resident_bytes_max";
        assert!(enforcer.exceeded(&now, second, by_kernel).is_empty());
    }

    #[test]
    fn a_limit_that_two_mechanisms_report_is_kept_once() {
        let limits = Limits::parse("memory=100,wall=10s").expect("limits");
        let [memory, wall] = [0, 1].map(|at| limits.iter().nth(at).expect("there are two"));
        let crossing = |limit, value| Crossing { limit, value };
        // A crossing of another resource lies between the two.
        let mut crossings =
            vec![crossing(memory, 101.0), crossing(wall, 11.0), crossing(memory, 102.0)];
        keep_first(&mut crossings);
        assert_eq!(crossings, [crossing(memory, 101.0), crossing(wall, 11.0)]);
    }

    #[test]
    fn samples_are_faster_near_a_limit() {
        let limits = Limits::parse("memory=1000").expect("limits");
        let mut enforcer = Enforcer::new(&limits, Duration::ZERO);
        let mut pause = |bytes, millis, kernel: bool| {
            let now = Sample { resident_bytes: Some(bytes), ..Sample::default() };
            let pause = enforcer.urgent_pause(&now, Duration::from_millis(millis), |_| kernel);
            pause.map(|pause| pause.as_millis())
        };
        assert_eq!(pause(100, 100, false), None, "far from the limit");
        assert_eq!(pause(500, 100_100, false), Some(50), "it grows slowly");
        assert_eq!(pause(500, 100_200, false), Some(50), "it does not grow");
        assert_eq!(pause(600, 100_210, false), Some(20), "40 ms are left");
        assert_eq!(pause(990, 100_220, false), Some(2), "it will exceed its limit at once");
        assert_eq!(pause(990, 100_230, false), Some(20), "it does not grow");
        assert_eq!(pause(990, 100_240, true), None, "the kernel enforces it");
    }

    #[test]
    fn memory_in_files_counts_against_a_limit() {
        let limits = Limits::parse("memory=100").expect("limits");
        let enforcer = Enforcer::new(&limits, Duration::ZERO);
        let now = Sample { resident_bytes: Some(60), tmpfs_bytes: Some(50), ..Sample::default() };
        assert_eq!(enforcer.exceeded(&now, Duration::from_secs(1), |_| false).len(), 1);
    }

    #[test]
    fn shared_pages_count_once_against_a_limit() {
        let limits = Limits::parse("memory=100").expect("limits");
        let enforcer = Enforcer::new(&limits, Duration::ZERO);
        let now =
            Sample { resident_bytes: Some(400), unshared_bytes: Some(99), ..Sample::default() };
        assert!(enforcer.exceeded(&now, Duration::from_secs(1), |_| false).is_empty());
    }
}
