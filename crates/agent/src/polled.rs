//! When each sensor is polled: what its policy wants, what the budget grants, and who follows it.

use std::time::Duration;

use skopos_score::budget::{Demand, Grant};
use skopos_score::interval::{Finding, Policy, Surprise, least_deviation};
use skopos_sense::Skip;

use crate::agent::Event;
use crate::control::SensorStatus;
use crate::lanes::Refused;
use crate::probe::{PollError, Polling, Probe};
use crate::sink::{Change, Yielded};

/// How long after the last sign of a follower its facts are still polled as often as possible.
const FOLLOWED_FOR: Duration = Duration::from_secs(3);

/// Weight of the newest poll in a sensor's smoothed cost: one outlier moves it by an eighth.
const COST_WEIGHT: f64 = 0.125;

/// Half-life of how often a sensor's facts are read: long enough for a program that decides once a
/// minute.
const READS_HALF_LIFE: Duration = Duration::from_secs(60);

/// What is told of a sensor that panicked.
const BROKEN: &str = "the sensor failed inside: it is not polled any more";

/// A sensor that the agent polls.
pub(crate) struct Polled {
    name: &'static str,
    may_block: bool,
    /// `None` while a lane has it.
    probe: Option<Box<Probe>>,
    /// What it could not measure when it was last here.
    skips: Vec<Skip>,
    /// What [`news_of_skips`](Self::news_of_skips) has told.
    told_skips: Vec<Skip>,
    facts: usize,
    policy: Box<dyn Policy>,
    surprise: Surprise,
    shortest: Duration,
    longest: Duration,
    /// What the policy wants.
    wanted: Duration,
    granted: Grant,
    due: Duration,
    /// What the interval is counted from: the latest poll, or when there was no lane for it.
    waits_since: Duration,
    polled_at: Duration,
    away_since: Option<Duration>,
    /// How long it may be away: what the sensor said of the poll when it left.
    patience: Duration,
    is_stuck: bool,
    /// It panicked, and is not polled any more.
    is_broken: bool,
    error: Option<String>,
    refusal_told: bool,
    cost: Cost,
    reads: Reads,
}

/// What a sensor's polls have cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Polls made.
    pub polls: u64,
    /// Polls in which the source could not be read, that took longer than they may, or for which
    /// there was no lane; each counts once.
    pub errors: u64,
    /// Processor time of the latest.
    pub latest: Duration,
    /// Processor time of all.
    pub total: Duration,
    /// Of one poll, smoothed, in seconds; 0 until there were two.
    smoothed: f64,
}

/// How often its facts are read.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    per_second: f64,
    looked_at: Duration,
    followed_until: Duration,
}

/// How often a sensor may be polled.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub policy: Box<dyn Policy>,
    pub shortest: Duration,
    pub longest: Duration,
}

impl Polled {
    pub(crate) fn new(
        name: &'static str,
        may_block: bool,
        probe: Box<Probe>,
        when: Schedule,
    ) -> Self {
        let Schedule { policy, shortest, longest } = when;
        Self {
            name,
            may_block,
            skips: probe.skips(),
            told_skips: Vec::new(),
            facts: 0,
            probe: Some(probe),
            policy,
            surprise: Surprise::new(shortest),
            shortest,
            longest,
            wanted: shortest,
            granted: Grant { interval: shortest, stretch: 1.0 },
            due: Duration::ZERO,
            waits_since: Duration::ZERO,
            polled_at: Duration::ZERO,
            away_since: None,
            patience: Duration::ZERO,
            is_stuck: false,
            is_broken: false,
            error: None,
            refusal_told: false,
            cost: Cost::default(),
            reads: Reads::default(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn may_block(&self) -> bool {
        self.may_block
    }

    /// When the next poll is due, on the monotonic clock; never while it is away or broken.
    pub(crate) fn due(&self) -> Duration {
        if self.probe.is_some() && !self.is_broken { self.due } else { Duration::MAX }
    }

    /// When the latest poll was, on the monotonic clock; zero before the first.
    pub(crate) fn polled_at(&self) -> Duration {
        self.polled_at
    }

    /// Time between two polls as it is now.
    pub(crate) fn interval(&self) -> Duration {
        self.granted.interval
    }

    /// How many times longer than wanted that is, for the sake of the budget.
    pub(crate) fn stretch(&self) -> f64 {
        self.granted.stretch
    }

    pub(crate) fn reads_per_second(&self) -> f64 {
        self.reads.per_second
    }

    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// Why the latest poll failed, if it did.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The sensor, unless a lane has it.
    pub(crate) fn probe(&self) -> Option<&Probe> {
        self.probe.as_deref()
    }

    /// The sensor, to be polled and brought back by [`returned`](Self::returned); none if it is
    /// away or broken.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Box<Probe>> {
        let probe = self.probe.take_if(|_| !self.is_broken)?;
        self.away_since = Some(now);
        self.patience = probe.patience();
        Some(probe)
    }

    /// There was no lane for it: it is tried again after its interval.
    pub(crate) fn postponed(&mut self, refused: Refused, now: Duration, events: &mut Vec<Event>) {
        let Refused { probe, reason } = refused;
        self.probe = Some(probe);
        self.away_since = None;
        self.waits_since = now;
        self.due = self.after_interval();
        self.cost.errors += 1;
        self.failed(reason, events);
    }

    /// It was polled: learns what that says about the next poll.
    pub(crate) fn returned(
        &mut self,
        probe: Box<Probe>,
        polling: Polling,
        events: &mut Vec<Event>,
    ) {
        let Polling { at, spent, refusal, result, .. } = polling;
        self.away_since = None;
        self.polled_at = at;
        self.waits_since = at;
        self.cost.add(spent);
        let found = self.judge(at, probe.yielded());
        // A poll that failed found nothing, which is not the same as no change.
        let found = if result.is_ok() { found } else { Finding { change: f64::NAN, ..found } };
        self.wanted = self.policy.next(&found);
        self.facts = probe.len();
        self.probe = Some(probe);
        self.schedule();
        if let Some(error) = refusal
            && !std::mem::replace(&mut self.refusal_told, true)
        {
            events.push(Event::FactRefused { sensor: self.name, error });
        }
        // A poll that was given up was counted then.
        let was_stuck = std::mem::replace(&mut self.is_stuck, false);
        if result.is_err() && !was_stuck {
            self.cost.errors += 1;
        }
        match result {
            Ok(()) => {
                if self.error.take().is_some() {
                    events.push(Event::SensorRecovered { sensor: self.name });
                }
            }
            Err(PollError::Source(e)) => self.failed(e.to_string(), events),
            Err(PollError::Panicked) => {
                self.is_broken = true;
                self.failed(BROKEN.to_owned(), events);
            }
        }
    }

    /// How far what was believed until this poll was off.
    fn judge(&mut self, at: Duration, yielded: &Yielded) -> Finding {
        for change in &yielded.changes {
            if let Change::Came(index, metric) = *change {
                self.surprise.add_fact(index as usize, metric.kind, least_deviation(metric));
            }
        }
        self.surprise.begin(at);
        for &(index, value) in &yielded.numbers {
            self.surprise.fact(index as usize, value.as_f64());
        }
        self.surprise.finish()
    }

    /// Looks whether it is away for too long.
    pub(crate) fn watch(&mut self, now: Duration, events: &mut Vec<Event>) {
        let away = self.away_since.map(|since| now.saturating_sub(since));
        let is_stuck = away.is_some_and(|away| away > self.patience);
        if is_stuck && !std::mem::replace(&mut self.is_stuck, true) {
            let error = format!(
                "has not answered for {} s: it waits for something that hangs, and is cut off",
                self.patience.as_secs()
            );
            self.cost.errors += 1;
            self.failed(error, events);
        }
    }

    /// Shows why there is nothing new.
    fn failed(&mut self, error: String, events: &mut Vec<Event>) {
        if self.error.is_none() {
            events.push(Event::SensorFailed { sensor: self.name, error: error.clone() });
        }
        self.error = Some(error);
    }

    /// Takes note of who reads its facts.
    pub(crate) fn note_interest(&mut self, (reads, is_followed): (u32, bool), now: Duration) {
        let since = now.saturating_sub(self.reads.looked_at).as_secs_f64();
        self.reads.looked_at = now;
        if since > 0.0 {
            let kept = 0.5_f64.powf(since / READS_HALF_LIFE.as_secs_f64());
            let rate = f64::from(reads) / since;
            self.reads.per_second = kept * self.reads.per_second + (1.0 - kept) * rate;
        }
        if is_followed {
            self.reads.followed_until = now + FOLLOWED_FOR;
            let soon = nearest_beat(self.polled_at + self.shortest, self.shortest);
            self.due = self.due.min(soon);
        }
    }

    /// What it asks of the budget.
    pub(crate) fn demand(&self, now: Duration) -> Demand {
        let followed = now < self.reads.followed_until;
        let cost = if self.is_broken { 0.0 } else { self.cost.smoothed };
        Demand {
            cost: Duration::try_from_secs_f64(cost).unwrap_or_default(),
            wanted: if followed { self.shortest } else { self.wanted },
            longest: self.longest.max(self.shortest) * 64,
            reads_per_second: self.reads.per_second,
            waited_for: followed,
        }
    }

    /// What the budget grants. Where that is a shorter interval, the next poll is not kept waiting until
    /// the longer one is over.
    pub(crate) fn grant(&mut self, grant: Grant) {
        self.granted = grant;
        self.due = self.due.min(self.after_interval());
    }

    fn schedule(&mut self) {
        let followed = self.polled_at < self.reads.followed_until;
        let wanted = if followed { self.shortest } else { self.wanted };
        self.granted.interval = wanted.mul_f64(self.granted.stretch.max(1.0));
        self.due = self.after_interval();
    }

    fn after_interval(&self) -> Duration {
        nearest_beat(self.waits_since + self.granted.interval, self.shortest)
    }

    pub(crate) fn status(&self) -> SensorStatus {
        SensorStatus {
            name: self.name.to_owned(),
            facts: self.facts,
            polls: self.cost.polls,
            interval_seconds: self.granted.interval.as_secs_f64(),
            policy: self.policy.name().to_owned(),
            stretch: self.granted.stretch,
            poll_seconds: self.cost.latest.as_secs_f64(),
            error: self.error.clone(),
        }
    }

    /// What it cannot measure now.
    pub(crate) fn skips(&self) -> Vec<Skip> {
        let probe = self.probe.as_deref().filter(|_| !self.is_broken);
        probe.map_or_else(|| self.skips.clone(), Probe::skips)
    }

    /// What it can no longer measure and why, and what it can again, since this was asked last.
    pub(crate) fn news_of_skips(&mut self) -> Vec<(String, Option<String>)> {
        let mut now = self.skips();
        // A family none of whose facts could be read yet is missing as a whole.
        if let Some(error) = self.error.as_ref().filter(|_| self.facts == 0) {
            now.push(Skip::new(self.name, error.clone()));
        }
        if now == self.told_skips {
            return Vec::new();
        }
        let gone = self.told_skips.iter().filter(|old| now.iter().all(|s| s.what != old.what));
        let mut news: Vec<_> = gone.map(|skip| (skip.what.clone(), None)).collect();
        news.extend(now.iter().map(|skip| (skip.what.clone(), Some(skip.reason.clone()))));
        self.told_skips = now;
        news
    }
}

impl Cost {
    fn add(&mut self, spent: Duration) {
        self.polls += 1;
        self.latest = spent;
        self.total += spent;
        let spent = spent.as_secs_f64();
        // The first one opens and registers what the later ones only read: it says nothing of them.
        let weight = match self.polls {
            1 => 0.0,
            2 => 1.0,
            _ => COST_WEIGHT,
        };
        self.smoothed += weight * (spent - self.smoothed);
    }
}

/// The multiple of `beat` nearest to `at`, so that sensors share wakes.
pub(crate) fn nearest_beat(at: Duration, beat: Duration) -> Duration {
    let beat = beat.as_nanos().max(1);
    let beats = (at.as_nanos() + beat / 2) / beat;
    Duration::from_nanos(u64::try_from(beats.saturating_mul(beat)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::io;

    use skopos_model::Timestamp;
    use skopos_model::schema::Family;
    use skopos_model::schema::load::FAMILY;
    use skopos_score::budget::Budget;
    use skopos_score::interval::Fixed;
    use skopos_sense::{Sensor, Tick};
    use skopos_shm::Publisher;

    use super::*;
    use crate::probe::thread_time;

    const SECOND: Duration = Duration::from_secs(1);

    struct Still;

    impl Sensor for Still {
        fn family(&self) -> &'static Family {
            &FAMILY
        }

        fn poll(&mut self, _: &mut Tick<'_>) -> io::Result<()> {
            Ok(())
        }
    }

    /// One that is wanted each second, and its publisher.
    fn wanted_each_second() -> (Polled, Publisher, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let publisher =
            Publisher::builder("polled").dir(folder.path()).create().expect("a segment");
        let probe = Probe::new(&publisher, &"n01".into(), Box::new(Still)).expect("room");
        let policy = Box::new(Fixed::new(SECOND));
        let when = Schedule { policy, shortest: SECOND, longest: 10 * SECOND };
        (Polled::new("still", true, Box::new(probe), when), publisher, folder)
    }

    fn poll(polled: &mut Polled, at: Duration) {
        let mut probe = polled.take(at).expect("it is here");
        let mut polling = probe.poll((Timestamp::from_nanos(1), at), &mut thread_time());
        polling.spent = Duration::from_millis(1);
        polled.returned(probe, polling, &mut Vec::new());
    }

    /// Shares out a budget of which so much is spent otherwise.
    fn plan(budget: &mut Budget, polled: &mut Polled, other: f64, now: Duration) {
        let mut grants = Vec::new();
        budget.plan(other, &[polled.demand(now)], &mut grants);
        polled.grant(grants[0]);
    }

    #[test]
    fn what_was_stretched_is_polled_within_its_interval_once_there_is_budget_again() {
        let (mut polled, _publisher, _folder) = wanted_each_second();
        let mut budget = Budget::new(0.01).expect("a limit");
        for second in 98..=100 {
            poll(&mut polled, second * SECOND);
        }
        plan(&mut budget, &mut polled, 0.02, 100 * SECOND);
        assert_eq!((polled.stretch(), polled.interval()), (64.0, 64 * SECOND));
        assert_eq!(polled.due(), 101 * SECOND, "what was due sooner stays so");
        poll(&mut polled, 101 * SECOND);
        assert_eq!(polled.due(), 165 * SECOND);
        plan(&mut budget, &mut polled, 0.0088, 103 * SECOND);
        assert_eq!(
            (polled.stretch(), polled.due()),
            (6.0, 107 * SECOND),
            "not before it is granted"
        );
        plan(&mut budget, &mut polled, 0.0, 110 * SECOND);
        assert_eq!((polled.stretch(), polled.interval()), (1.0, SECOND));
        assert!(polled.due() <= 110 * SECOND, "its interval has passed: {:?}", polled.due());
        poll(&mut polled, 110 * SECOND);
        assert_eq!(polled.due(), 111 * SECOND);
    }

    #[test]
    fn one_for_which_there_was_no_lane_waits_for_its_interval_whatever_is_granted() {
        let (mut polled, _publisher, _folder) = wanted_each_second();
        let mut budget = Budget::new(1.0).expect("a limit");
        poll(&mut polled, 100 * SECOND);
        polled.wanted = 10 * SECOND;
        polled.schedule();
        let probe = polled.take(110 * SECOND).expect("it is here");
        let refused = Refused { probe, reason: "no lane".to_owned() };
        polled.postponed(refused, 110 * SECOND, &mut Vec::new());
        plan(&mut budget, &mut polled, 0.0, 111 * SECOND);
        assert_eq!(polled.due(), 120 * SECOND);
    }

    #[test]
    fn what_the_first_poll_opens_is_no_cost_of_the_later_ones() {
        let mut cost = Cost::default();
        let micros = [80, 2, 2, 10].map(|millis| {
            cost.add(Duration::from_millis(millis));
            (cost.smoothed * 1e6).round()
        });
        assert_eq!(micros, [0.0, 2000.0, 2000.0, 3000.0]);
        assert_eq!((cost.polls, cost.total), (4, Duration::from_millis(94)));
    }
}
