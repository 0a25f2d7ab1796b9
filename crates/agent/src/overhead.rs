//! Keeps the cost of sensing within the budget.
//!
//! The budget governs the work that fewer polls reduce: polls, here and in lanes, insights and publishing, and
//! the programs that sensors run. The work for clients (the control socket, other nodes, a hub, history) is
//! part of the published total cost, and stretches no sensor; otherwise a client with many requests would see
//! nothing new.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::time::ClockId;
use skopos_score::budget::{Budget, Demand, Grant, Plan};

use crate::polled::PolledSensor;
use crate::probe::{thread_time, time_of};
use skopos_term::Failure;

/// Length of a measurement of the cost besides polls. The kernel counts the time of programs in ticks of ten
/// milliseconds.
const MEASURE_EVERY: Duration = Duration::from_secs(10);

/// Time for which the budget must be exceeded before the agent reports it. The cost of its start does not count.
const REPORT_AFTER: Duration = Duration::from_secs(30);

/// Weight of the newest measurement.
const WEIGHT: f64 = 0.25;

/// The budget and the measured costs.
pub(crate) struct Overhead {
    limit: f64,
    budget: Budget,
    /// The latest plan.
    plan: Plan,
    excess: Excess,
    programs: Programs,
    /// The cost of sensing besides polls, smoothed, as a share of one core.
    other: f64,
    /// `None` before the first measurement.
    measured: Option<Measured>,
    polls: Polls,
    /// Processor time of answers on the control socket.
    answers: Duration,
    /// Processor time at the latest measurement, and the time of that measurement.
    before: Spent,
    measured_at: Duration,
    demands: Vec<Demand>,
    grants: Vec<Grant>,
}

impl Overhead {
    /// Makes a budget of `limit`, a share of one core.
    ///
    /// # Errors
    /// The limit is not a share.
    pub(crate) fn new(limit: f64) -> Result<Self, Failure> {
        let budget = Budget::new(limit)
            .map_err(|e| Failure::new("--budget").because(&e).hint("try `--budget 1%`"))?;
        Ok(Self {
            limit,
            budget,
            plan: Plan { wanted: 0.0, granted: 0.0, over: 0.0 },
            excess: Excess::default(),
            programs: Programs::open(),
            other: 0.0,
            measured: None,
            polls: Polls::default(),
            answers: Duration::ZERO,
            before: Spent::default(),
            measured_at: Duration::ZERO,
            demands: Vec::new(),
            grants: Vec::new(),
        })
    }

    /// Begins to measure, on the thread that calls this. The cost of the start is left out.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.before = self.spent();
        self.measured_at = now;
    }

    /// Returns the limit, a share of one core.
    pub(crate) fn limit(&self) -> f64 {
        self.limit
    }

    /// Returns the latest plan.
    pub(crate) fn planned(&self) -> Plan {
        self.plan
    }

    /// Returns the latest measurement.
    pub(crate) fn measured(&self) -> Option<Measured> {
        self.measured
    }

    /// Adds the processor time of a poll, of a lane's thread or of this one.
    pub(crate) fn polled(&mut self, spent: Duration, in_lane: bool) {
        *(if in_lane { &mut self.polls.in_lanes } else { &mut self.polls.here }) += spent;
    }

    /// Returns the time before requests are answered, for [`answered`](Self::answered).
    pub(crate) fn answering(&self) -> Duration {
        thread_time().saturating_sub(self.polls.here)
    }

    /// Adds the time of answers since `since`. Polls that a client asked for count as polls.
    pub(crate) fn answered(&mut self, since: Duration) {
        self.answers += self.answering().saturating_sub(since);
    }

    /// Returns the processor time of this process and of the programs that it ran, user and system.
    pub(crate) fn total(&self) -> Duration {
        self.programs.spent() + time_of(ClockId::ProcessCPUTime)
    }

    fn spent(&self) -> Spent {
        let here = self.answering().saturating_sub(self.answers);
        let Polls { here: polled, in_lanes } = self.polls;
        Spent { total: self.total(), polls: polled + in_lanes, other: here + self.programs.spent() }
    }

    /// Distributes the budget. If it is exceeded for some time although no sensor can be polled less often,
    /// returns the excess, a share of one core, once.
    pub(crate) fn plan(&mut self, polled: &mut [PolledSensor], now: Duration) -> Option<f64> {
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
        let spent = self.spent();
        let share = |now: Duration, before| {
            now.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64()
        };
        let other = share(spent.other, self.before.other);
        let weight = if self.measured.is_none() { 1.0 } else { WEIGHT };
        self.other += weight * (other - self.other);
        self.measured = Some(Measured {
            in_all: share(spent.total, self.before.total),
            sensing: other + share(spent.polls, self.before.polls),
        });
        self.before = spent;
        self.measured_at = now;
    }
}

/// The cost of the agent over the latest ten seconds or more, as shares of one core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The whole process and the programs that it ran.
    pub in_all: f64,
    /// The part that the budget governs.
    pub sensing: f64,
}

/// Processor time of polls so far.
#[derive(Clone, Copy, Debug, Default)]
struct Polls {
    here: Duration,
    in_lanes: Duration,
}

/// Processor time so far.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// Of the process and the programs that it ran.
    total: Duration,
    /// Of polls in all threads.
    polls: Duration,
    /// Of the agent's thread without polls and answers, and of programs, which only sensors run.
    other: Duration,
}

/// The duration of an excess of the budget, which is reported once.
#[derive(Debug, Default)]
struct Excess {
    since: Option<Duration>,
    is_reported: bool,
}

impl Excess {
    fn is_news(&mut self, over: f64, now: Duration) -> bool {
        if over <= 0.0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_sub(since) >= REPORT_AFTER && !std::mem::replace(&mut self.is_reported, true)
    }
}

/// The processor time of the programs that this process ran.
struct Programs {
    /// `/proc/self/stat`, kept open; `None` if procfs is hidden, and then programs count as zero.
    stat: Option<File>,
}

impl Programs {
    fn open() -> Self {
        Self { stat: File::open("/proc/self/stat").ok() }
    }

    /// Returns user and system time. A program counts after it has ended.
    fn spent(&self) -> Duration {
        self.stat.as_ref().and_then(of_programs).unwrap_or_default()
    }
}

fn of_programs(stat: &File) -> Option<Duration> {
    // The longest line has 52 numbers of at most 20 digits and a name of 16 bytes.
    let mut buffer = [0; 1280];
    let len = stat.read_at(&mut buffer, 0).ok()?;
    let ticks = ticks_of_programs(&buffer[..len])?;
    Some(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// Adds `cutime` and `cstime`, the 16th and 17th field of `/proc/PID/stat`, in ticks (proc(5)).
fn ticks_of_programs(stat: &[u8]) -> Option<u64> {
    // The second field is a name in parentheses, which may contain any character.
    let after_name = stat.iter().rposition(|&b| b == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    // The third field follows the name.
    let mut ticks = fields.skip(16 - 3).map(|field| field.parse::<u64>().ok());
    Some(ticks.next()?? + ticks.next()??)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Uses this much processor time of this thread.
    fn burn(time: Duration) {
        let started = thread_time();
        while thread_time() - started < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn other_threads_and_answers_count_in_the_total_and_not_in_the_budget() {
        let much = Duration::from_millis(300);
        let mut overhead = Overhead::new(0.01).expect("a budget");
        overhead.begin(Duration::ZERO);
        let before = (thread_time(), overhead.programs.spent());
        std::thread::scope(|scope| {
            scope.spawn(|| burn(much)).join().expect("it burns");
        });
        let since = overhead.answering();
        burn(much);
        let polled = thread_time();
        burn(much);
        // A client asked for a poll.
        overhead.polled(thread_time() - polled, false);
        overhead.answered(since);
        overhead.polled(much, true);
        assert_eq!(overhead.plan(&mut [], MEASURE_EVERY), None);
        let measured = overhead.measured().expect("it was measured");
        let of = |time: Duration| time.as_secs_f64() / MEASURE_EVERY.as_secs_f64();
        assert!(measured.in_all >= of(3 * much), "{measured:?}");
        // Other tests run programs, which count.
        let programs = overhead.programs.spent() - before.1;
        let here = thread_time() - before.0;
        let other = of((here + programs).saturating_sub(2 * much));
        let planned = overhead.planned();
        assert!(planned.granted <= other, "{planned:?}, {other}");
        assert!(measured.sensing >= of(2 * much), "polls here and in lanes: {measured:?}");
        assert!(measured.sensing <= other + of(2 * much) + 0.01, "{measured:?}, {other}");
    }

    #[test]
    fn other_work_of_the_agents_thread_counts_in_the_budget() {
        let much = Duration::from_millis(300);
        let mut overhead = Overhead::new(0.01).expect("a budget");
        burn(much);
        let before = (thread_time(), overhead.programs.spent());
        overhead.begin(Duration::ZERO);
        assert_eq!(overhead.plan(&mut [], MEASURE_EVERY / 2), None);
        assert!(overhead.measured().is_none() && overhead.planned().granted == 0.0);
        burn(much);
        overhead.plan(&mut [], MEASURE_EVERY);
        let planned = overhead.planned();
        assert!(planned.granted >= 0.03 && planned.over >= 0.02, "{planned:?}");
        let most = thread_time() - before.0 + overhead.programs.spent() - before.1;
        let most = most.as_secs_f64() / MEASURE_EVERY.as_secs_f64();
        assert!(planned.granted <= most, "the start is left out: {planned:?}, {most}");
    }

    #[test]
    fn programs_count_after_they_have_ended() {
        let programs = Programs::open();
        let before = programs.stat.as_ref().and_then(of_programs).expect("procfs");
        // About a tenth of a second, which is several ticks.
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", busy]).status().expect("a shell").success());
        assert!(programs.spent() > before, "{:?} after {before:?}", programs.spent());
        let overhead = Overhead::new(0.01).expect("a budget");
        assert!(overhead.total() > overhead.programs.spent(), "the process counts too");
    }

    #[test]
    fn a_name_may_contain_any_character() {
        let line = b"7 (a) 1 2) S 3 4 5 6 7 8 9 10 11 12 13 14 15 160 17 18";
        assert_eq!(ticks_of_programs(line), Some(15 + 160));
        for wrong in [&b""[..], b"7 (a) S 1", b"7 (a"] {
            assert_eq!(ticks_of_programs(wrong), None);
        }
    }

    #[test]
    fn an_excess_is_reported_once_and_only_if_it_lasts() {
        let mut excess = Excess::default();
        let mut look = |over, seconds| excess.is_news(over, Duration::from_secs(seconds));
        let looks = [(0.1, 0), (0.1, 29), (0.0, 30), (0.1, 31), (0.1, 60)];
        assert!(looks.into_iter().all(|(over, at)| !look(over, at)));
        assert!(look(0.1, 61));
        assert!(!look(0.1, 62) && !look(0.0, 63) && !look(0.1, 64) && !look(0.1, 200));
    }
}
