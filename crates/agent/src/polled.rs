//! The time of each poll of a sensor: from its policy, the grant of the budget, and the readers of its facts.

use std::time::Duration;

use skopos_score::budget::{Demand, Grant};
use skopos_score::interval::{Finding, Policy, Surprise, least_deviation};
use skopos_sense::Skip;

use crate::beat::nearest_beat;
use crate::control::SensorStatus;
use crate::event::Event;
use crate::lanes::RefusedProbe;
use crate::probe::{PollError, PollOutcome, Probe};
use crate::sink::{Change, Yielded};

/// Time after the last mark of a follower during which the sensor keeps its shortest interval.
const FOLLOWED_FOR: Duration = Duration::from_secs(3);

/// Longest gap in a series of reads: a script that reads a value every few seconds makes a series, and a
/// scraper that comes every quarter of a minute does not.
const READS_APART: Duration = Duration::from_secs(5);

/// Number of checks that must see reads before a series counts as interest. Two checks can see the same pass
/// over all topics, if it runs during the first of them.
const REPEATED_READS: u32 = 3;

/// Weight of the newest poll in a sensor's smoothed cost: one outlier moves it by an eighth.
const COST_WEIGHT: f64 = 0.125;

/// Half-life of a sensor's rate of reads: long enough for a program that decides once a minute.
const READS_HALF_LIFE: Duration = Duration::from_secs(60);

/// The error of a sensor that panicked.
const BROKEN: &str = "the sensor panicked: it is not polled any more";

/// A sensor that the agent polls.
pub(crate) struct PolledSensor {
    name: &'static str,
    may_block: bool,
    /// `None` while a lane has it.
    probe: Option<Box<Probe>>,
    /// The facts that it could not measure when it was last here.
    skips: Vec<Skip>,
    /// The skips that [`skip_changes`](Self::skip_changes) has returned.
    reported_skips: Vec<Skip>,
    facts: usize,
    policy: Box<dyn Policy>,
    surprise: Surprise,
    shortest: Duration,
    longest: Duration,
    /// The interval that the policy wants.
    wanted: Duration,
    granted: Grant,
    due: Duration,
    /// The begin of the interval: the latest poll, or the latest attempt without a lane.
    waits_since: Duration,
    polled_at: Duration,
    away_since: Option<Duration>,
    /// The longest time that it may be away, as the sensor said before the poll.
    patience: Duration,
    is_stuck: bool,
    /// True once the sensor panicked; it is not polled any more.
    is_broken: bool,
    error: Option<String>,
    refusal_reported: bool,
    cost: Cost,
    reads: Reads,
}

/// The cost of a sensor's polls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Number of polls.
    pub polls: u64,
    /// Number of polls that failed, took too long, or had no lane. Each poll counts once.
    pub errors: u64,
    /// Processor time of the latest poll.
    pub latest: Duration,
    /// Processor time of all polls.
    pub total: Duration,
    /// Processor time of a poll, smoothed, in seconds; 0 before the second poll.
    smoothed: f64,
}

/// The reads of a sensor's facts.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    per_second: f64,
    checked_at: Duration,
    followed_until: Duration,
    /// Number of checks that saw reads in the current series, and the time of the latest of them.
    series: u32,
    read_at: Duration,
    /// End of the interest of readers that read again and again.
    repeated_until: Duration,
}

impl Reads {
    /// Notes the reads since the previous check. Returns true if the sensor should have its shortest interval.
    fn note(&mut self, reads: u32, is_followed: bool, now: Duration) -> bool {
        let since = now.saturating_sub(self.checked_at).as_secs_f64();
        self.checked_at = now;
        if since > 0.0 {
            let kept = 0.5_f64.powf(since / READS_HALF_LIFE.as_secs_f64());
            let rate = f64::from(reads) / since;
            self.per_second = kept * self.per_second + (1.0 - kept) * rate;
        }
        if is_followed {
            self.followed_until = now + FOLLOWED_FOR;
        }
        if reads > 0 {
            let is_series = now.saturating_sub(self.read_at) <= READS_APART;
            self.series = if is_series { self.series.saturating_add(1) } else { 1 };
            self.read_at = now;
            if self.series >= REPEATED_READS {
                self.repeated_until = now + READS_APART;
            }
        }
        self.are_frequent(now)
    }

    /// Returns true if a reader follows the facts or reads them again and again.
    fn are_frequent(&self, at: Duration) -> bool {
        at < self.followed_until.max(self.repeated_until)
    }
}

/// The limits of a sensor's interval, and the policy that chooses within them.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub policy: Box<dyn Policy>,
    pub shortest: Duration,
    pub longest: Duration,
}

impl PolledSensor {
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
            reported_skips: Vec::new(),
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
            refusal_reported: false,
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

    /// Returns the time of the next poll, on the monotonic clock; never while it is away or broken.
    pub(crate) fn due(&self) -> Duration {
        if self.probe.is_some() && !self.is_broken { self.due } else { Duration::MAX }
    }

    /// Returns the time of the latest poll, on the monotonic clock; zero before the first.
    pub(crate) fn polled_at(&self) -> Duration {
        self.polled_at
    }

    /// Returns the current time between two polls.
    pub(crate) fn interval(&self) -> Duration {
        self.granted.interval
    }

    /// Returns the ratio of that time to the wanted one: more than 1 if the budget stretches it.
    pub(crate) fn stretch(&self) -> f64 {
        self.granted.stretch
    }

    pub(crate) fn reads_per_second(&self) -> f64 {
        self.reads.per_second
    }

    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the error of the latest poll.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the sensor with its facts, unless a lane has it.
    pub(crate) fn probe(&self) -> Option<&Probe> {
        self.probe.as_deref()
    }

    /// Takes the sensor for a poll, after which the caller passes it to [`returned`](Self::returned). `None` if
    /// it is away or broken.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Box<Probe>> {
        let probe = self.probe.take_if(|_| !self.is_broken)?;
        self.away_since = Some(now);
        self.patience = probe.patience();
        Some(probe)
    }

    /// Takes the sensor back because there is no lane for it. It is tried again after its interval.
    pub(crate) fn postponed(
        &mut self,
        refused: RefusedProbe,
        now: Duration,
        events: &mut Vec<Event>,
    ) {
        let RefusedProbe { probe, reason } = refused;
        self.probe = Some(probe);
        self.away_since = None;
        self.waits_since = now;
        self.due = self.after_interval();
        self.cost.errors += 1;
        self.failed(reason, events);
    }

    /// Takes the sensor back after a poll, and computes the time of the next one.
    pub(crate) fn returned(
        &mut self,
        probe: Box<Probe>,
        outcome: PollOutcome,
        events: &mut Vec<Event>,
    ) {
        let PollOutcome { at, spent, refusal, result, .. } = outcome;
        self.away_since = None;
        self.polled_at = at;
        self.waits_since = at;
        self.cost.add(spent);
        let finding = self.judge(at, probe.yielded());
        // A failed poll knows of no change, which differs from a poll that saw no change.
        let finding =
            if result.is_ok() { finding } else { Finding { change: f64::NAN, ..finding } };
        self.wanted = self.policy.next(&finding);
        self.facts = probe.len();
        self.probe = Some(probe);
        self.schedule();
        if let Some(error) = refusal
            && !std::mem::replace(&mut self.refusal_reported, true)
        {
            events.push(Event::FactRefused { sensor: self.name, error });
        }
        // A poll that took too long was counted at that time.
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

    /// Returns the error of the readers' belief until this poll.
    fn judge(&mut self, at: Duration, yielded: &Yielded) -> Finding {
        for change in &yielded.changes {
            if let Change::Added(index, metric) = *change {
                self.surprise.add_fact(index as usize, metric.kind, least_deviation(metric));
            }
        }
        self.surprise.begin(at);
        for &(index, value) in &yielded.numbers {
            self.surprise.fact(index as usize, value.as_f64());
        }
        self.surprise.finish()
    }

    /// Reports the sensor once if it is away for too long.
    pub(crate) fn watch(&mut self, now: Duration, events: &mut Vec<Event>) {
        let away = self.away_since.map(|since| now.saturating_sub(since));
        let is_stuck = away.is_some_and(|away| away > self.patience);
        if is_stuck && !std::mem::replace(&mut self.is_stuck, true) {
            let error = format!(
                "has not answered for {} s: it waits for a source that hangs, and is not polled meanwhile",
                self.patience.as_secs()
            );
            self.cost.errors += 1;
            self.failed(error, events);
        }
    }

    /// Records the error, and reports the first of several.
    fn failed(&mut self, error: String, events: &mut Vec<Event>) {
        if self.error.is_none() {
            events.push(Event::SensorFailed { sensor: self.name, error: error.clone() });
        }
        self.error = Some(error);
    }

    /// Notes the readers of its facts since the previous check. Facts that are followed, or read again and
    /// again, are polled at the shortest interval.
    pub(crate) fn note_interest(&mut self, (reads, is_followed): (u32, bool), now: Duration) {
        if self.reads.note(reads, is_followed, now) {
            let soon = nearest_beat(self.polled_at + self.shortest, self.shortest);
            self.due = self.due.min(soon);
        }
    }

    /// Returns its demand on the budget.
    pub(crate) fn demand(&self, now: Duration) -> Demand {
        let cost = if self.is_broken { 0.0 } else { self.cost.smoothed };
        Demand {
            cost: Duration::try_from_secs_f64(cost).unwrap_or_default(),
            wanted: self.wanted_at(now),
            longest: self.longest.max(self.shortest) * 64,
            reads_per_second: self.reads.per_second,
            waited_for: now < self.reads.followed_until,
        }
    }

    /// Returns the wanted interval: the shortest while readers ask for it, else that of the policy.
    fn wanted_at(&self, at: Duration) -> Duration {
        if self.reads.are_frequent(at) { self.shortest } else { self.wanted }
    }

    /// Sets the interval that the budget grants. A shorter interval takes effect at once, not after the longer
    /// one is over.
    pub(crate) fn grant(&mut self, grant: Grant) {
        self.granted = grant;
        self.due = self.due.min(self.after_interval());
    }

    fn schedule(&mut self) {
        let wanted = self.wanted_at(self.polled_at);
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

    /// Returns the facts that it cannot measure now.
    pub(crate) fn skips(&self) -> Vec<Skip> {
        let probe = self.probe.as_deref().filter(|_| !self.is_broken);
        probe.map_or_else(|| self.skips.clone(), Probe::skips)
    }

    /// Returns the changes since the last call: facts that it cannot measure, with the reason, and facts that it
    /// can measure again.
    pub(crate) fn skip_changes(&mut self) -> Vec<(String, Option<String>)> {
        let mut now = self.skips();
        // A family without any fact yet is missing as a whole.
        if let Some(error) = self.error.as_ref().filter(|_| self.facts == 0) {
            now.push(Skip::new(self.name, error.clone()));
        }
        if now == self.reported_skips {
            return Vec::new();
        }
        let gone = self.reported_skips.iter().filter(|old| now.iter().all(|s| s.what != old.what));
        let mut news: Vec<_> = gone.map(|skip| (skip.what.clone(), None)).collect();
        news.extend(now.iter().map(|skip| (skip.what.clone(), Some(skip.reason.clone()))));
        self.reported_skips = now;
        news
    }
}

impl Cost {
    fn add(&mut self, spent: Duration) {
        self.polls += 1;
        self.latest = spent;
        self.total += spent;
        let spent = spent.as_secs_f64();
        // The first poll opens files and registers facts, so its cost says nothing about later ones.
        let weight = match self.polls {
            1 => 0.0,
            2 => 1.0,
            _ => COST_WEIGHT,
        };
        self.smoothed += weight * (spent - self.smoothed);
    }
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

    /// Makes a sensor with an interval of a second, and its publisher.
    fn wanted_each_second() -> (PolledSensor, Publisher, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let publisher =
            Publisher::builder("polled").dir(folder.path()).create().expect("a segment");
        let probe = Probe::new(&publisher, &"n01".into(), Box::new(Still)).expect("room");
        let policy = Box::new(Fixed::new(SECOND));
        let when = Schedule { policy, shortest: SECOND, longest: 10 * SECOND };
        (PolledSensor::new("still", true, Box::new(probe), when), publisher, folder)
    }

    fn poll(polled: &mut PolledSensor, at: Duration) {
        let mut probe = polled.take(at).expect("it is here");
        let mut outcome = probe.poll((Timestamp::from_nanos(1), at));
        outcome.spent = Duration::from_millis(1);
        polled.returned(probe, outcome, &mut Vec::new());
    }

    /// Distributes a budget of which `other` is spent already.
    fn plan(budget: &mut Budget, polled: &mut PolledSensor, other: f64, now: Duration) {
        let mut grants = Vec::new();
        budget.plan(other, &[polled.demand(now)], &mut grants);
        polled.grant(grants[0]);
    }

    #[test]
    fn a_stretched_sensor_is_polled_within_its_interval_once_there_is_budget_again() {
        let (mut polled, _publisher, _folder) = wanted_each_second();
        let mut budget = Budget::new(0.01).expect("a limit");
        for second in 98..=100 {
            poll(&mut polled, second * SECOND);
        }
        plan(&mut budget, &mut polled, 0.02, 100 * SECOND);
        assert_eq!((polled.stretch(), polled.interval()), (64.0, 64 * SECOND));
        assert_eq!(polled.due(), 101 * SECOND, "an earlier poll stays due");
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

    /// Checks the marks at this second, with `reads` since the previous check.
    fn check(polled: &mut PolledSensor, reads: u32, second: u32) -> bool {
        polled.note_interest((reads, false), second * SECOND);
        let demand = polled.demand(second * SECOND);
        assert!(!demand.waited_for, "a read does not wait for a change");
        demand.wanted == SECOND
    }

    #[test]
    fn a_sensor_whose_facts_are_read_again_and_again_has_its_shortest_interval() {
        let (mut polled, _publisher, _folder) = wanted_each_second();
        poll(&mut polled, 100 * SECOND);
        polled.wanted = 10 * SECOND;
        polled.schedule();
        assert_eq!(polled.due(), 110 * SECOND);
        assert!(!check(&mut polled, 1, 101) && !check(&mut polled, 0, 102), "a single read");
        assert!(!check(&mut polled, 1, 103), "a second one");
        assert!(!check(&mut polled, 0, 104));
        assert_eq!(polled.due(), 110 * SECOND);
        assert!(check(&mut polled, 1, 105), "a series");
        assert_eq!(polled.due(), 101 * SECOND, "its interval has passed: it is polled now");
        polled.wanted = 10 * SECOND;
        assert!(check(&mut polled, 0, 109), "the next read may come");
        assert!(!check(&mut polled, 0, 110), "the series has ended");
    }

    #[test]
    fn reads_that_are_far_apart_or_of_a_single_pass_do_not_shorten_the_interval() {
        let (mut polled, _publisher, _folder) = wanted_each_second();
        poll(&mut polled, 100 * SECOND);
        polled.wanted = 10 * SECOND;
        // A scraper every fifteen seconds, of which each pass is seen by two checks.
        for scrape in 0..10 {
            let second = 101 + 15 * scrape;
            assert!(!check(&mut polled, 7, second) && !check(&mut polled, 3, second + 1));
        }
    }

    #[test]
    fn a_sensor_without_a_lane_waits_for_its_interval_with_every_grant() {
        let (mut polled, _publisher, _folder) = wanted_each_second();
        let mut budget = Budget::new(1.0).expect("a limit");
        poll(&mut polled, 100 * SECOND);
        polled.wanted = 10 * SECOND;
        polled.schedule();
        let probe = polled.take(110 * SECOND).expect("it is here");
        let refused = RefusedProbe { probe, reason: "no lane".to_owned() };
        polled.postponed(refused, 110 * SECOND, &mut Vec::new());
        plan(&mut budget, &mut polled, 0.0, 111 * SECOND);
        assert_eq!(polled.due(), 120 * SECOND);
    }

    #[test]
    fn the_cost_of_the_first_poll_does_not_count_for_later_ones() {
        let mut cost = Cost::default();
        let micros = [80, 2, 2, 10].map(|millis| {
            cost.add(Duration::from_millis(millis));
            (cost.smoothed * 1e6).round()
        });
        assert_eq!(micros, [0.0, 2000.0, 2000.0, 3000.0]);
        assert_eq!((cost.polls, cost.total), (4, Duration::from_millis(94)));
    }
}
