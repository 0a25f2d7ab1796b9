//! Keeps what the agent costs within its budget, the programs that it runs included.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use skopos_score::budget::{Budget, Demand, Grant, Plan};

use crate::agent::polled::Polled;
use crate::failure::Failure;

/// How long what the agent costs beside its polls is measured before it counts: a tick of the
/// kernel's accounting is four milliseconds.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// How long the budget must have been exceeded before that is told: what an agent costs while it
/// starts says nothing.
const TELL_AFTER: Duration = Duration::from_secs(30);

/// Weight of the newest measurement.
const WEIGHT: f64 = 0.25;

/// The budget and what is known of costs.
pub(crate) struct Overhead {
    limit: f64,
    budget: Budget,
    /// What was planned last.
    plan: Plan,
    excess: Excess,
    spent: Spent,
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
        let spent = Spent::open();
        Ok(Self {
            process: spent.total(),
            limit,
            budget,
            plan: Plan { wanted: 0.0, granted: 0.0, over: 0.0 },
            other: 0.0,
            measured: None,
            polls: Duration::ZERO,
            measured_at: now,
            excess: Excess::default(),
            spent,
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

    /// Processor time that the agent and the programs that it ran have used, user and system.
    pub(crate) fn spent(&self) -> Duration {
        self.spent.total()
    }

    /// Shares out the budget. Says by what share of one core it is exceeded although no sensor can
    /// be polled less often, once that has been so for a while, and only once.
    pub(crate) fn plan(&mut self, polled: &mut [Polled], now: Duration) -> Option<f64> {
        self.measure(now);
        self.demands.clear();
        self.demands.extend(polled.iter().map(|p| p.demand(now)));
        self.plan = self.budget.plan(self.other, &self.demands, &mut self.grants);
        for (polled, grant) in polled.iter_mut().zip(&self.grants) {
            polled.grant(*grant);
        }
        self.excess.is_news(self.plan.over, now).then_some(self.plan.over)
    }

    fn measure(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.measured_at);
        if elapsed < MEASURE_EVERY {
            return;
        }
        let process = self.spent.total();
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

/// Whether it was told that the budget is exceeded.
#[derive(Debug, Default)]
struct Excess {
    since: Option<Duration>,
    is_told: bool,
}

impl Excess {
    fn is_news(&mut self, over: f64, now: Duration) -> bool {
        if over <= 0.0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_sub(since) >= TELL_AFTER && !std::mem::replace(&mut self.is_told, true)
    }
}

/// What this process and the programs that it ran have used.
struct Spent {
    /// `/proc/self/stat`, kept open; `None` where procfs is hidden, and then programs count nothing.
    stat: Option<File>,
}

impl Spent {
    fn open() -> Self {
        Self { stat: File::open("/proc/self/stat").ok() }
    }

    /// Processor time, user and system. A program counts once it has ended.
    fn total(&self) -> Duration {
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own = Duration::new(own.tv_sec.unsigned_abs(), own.tv_nsec.unsigned_abs() as u32);
        own + self.stat.as_ref().and_then(of_programs).unwrap_or_default()
    }
}

fn of_programs(stat: &File) -> Option<Duration> {
    // The longest line has 52 numbers of at most 20 digits, and a name of 16 bytes.
    let mut buffer = [0; 1280];
    let len = stat.read_at(&mut buffer, 0).ok()?;
    let ticks = ticks_of_programs(&buffer[..len])?;
    Some(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// `cutime` and `cstime`, the 16th and 17th field of `/proc/PID/stat`, in ticks (proc(5)).
fn ticks_of_programs(stat: &[u8]) -> Option<u64> {
    // The second field is a name in parentheses, which may hold anything.
    let after_name = stat.iter().rposition(|&b| b == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    // What follows the name is the third field.
    let mut ticks = fields.skip(16 - 3).map(|field| field.parse::<u64>().ok());
    Some(ticks.next()?? + ticks.next()??)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn programs_that_were_run_count() {
        let spent = Spent::open();
        let before = spent.stat.as_ref().and_then(of_programs).expect("procfs");
        // A tenth of a second or so: it has to be some ticks.
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", busy]).status().expect("a shell").success());
        let programs = spent.stat.as_ref().and_then(of_programs).expect("procfs");
        assert!(programs > before, "{programs:?} after {before:?}");
        assert!(spent.total() > programs, "and what it needs itself");
    }

    #[test]
    fn a_name_may_hold_anything() {
        let line = b"7 (a) 1 2) S 3 4 5 6 7 8 9 10 11 12 13 14 15 160 17 18";
        assert_eq!(ticks_of_programs(line), Some(15 + 160));
        for wrong in [&b""[..], b"7 (a) S 1", b"7 (a"] {
            assert_eq!(ticks_of_programs(wrong), None);
        }
    }

    #[test]
    fn an_excess_is_told_once_and_only_if_it_stays() {
        let mut excess = Excess::default();
        let mut look = |over, seconds| excess.is_news(over, Duration::from_secs(seconds));
        let looks = [(0.1, 0), (0.1, 29), (0.0, 30), (0.1, 31), (0.1, 60)];
        assert!(looks.into_iter().all(|(over, at)| !look(over, at)));
        assert!(look(0.1, 61));
        assert!(!look(0.1, 62) && !look(0.0, 63) && !look(0.1, 64) && !look(0.1, 200));
    }
}
