//! The loop of the agent: a thread that sleeps in `poll(2)` until a sensor is due, a request arrives or a
//! signal ends it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skopos_model::{Timestamp, Topic, TopicPattern};
use skopos_sense::{Skip, open_all, open_peers};
use skopos_shm::Publisher;

use crate::args::AgentArgs;
use crate::beat::nearest_beat;
use crate::clock::{Clock, monotonic};
use crate::config::Config;
use crate::control::{Answer, MIN_REFRESH, Request, SkipStatus, Status};
use crate::event::Event;
use crate::foreign::Foreign;
use crate::insights::Insights;
use crate::lanes::Lanes;
use crate::link::Link;
use crate::names::SEGMENT_NAME;
use crate::overhead::Overhead;
use crate::polled::PolledSensor;
use crate::probe::{PollOutcome, Probe};
use crate::ranks::Ranks;
use crate::self_facts::{AgentState, SelfFacts};
use crate::server::Server;
use crate::settings::Settings;
use crate::shares::Shares;
use crate::signals::Signals;
use crate::sink::Counts;
use crate::telemetry::{self, AnomalyReports};
use crate::traces::Traces;
use crate::user_facts::UserFacts;
use skopos_term::Failure;

/// Time between two checks of the readers' marks: the delay until a new follower is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time until intervals have grown and policies have learned, so that start-up memory can be released.
const SETTLED_AFTER: Duration = Duration::from_secs(60);
/// Time between two questions to the sensors about the facts that they cannot measure.
const EXPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Longest wait of the first tick for sensors that may block, so that their facts appear with the others;
/// and longest wait of a request for a fresh value of such a sensor.
const LANE_PATIENCE: Duration = Duration::from_millis(200);

/// A running agent.
pub struct Agent {
    node: Arc<str>,
    dir: PathBuf,
    publisher: Publisher,
    polled: Vec<PolledSensor>,
    lanes: Lanes,
    overhead: Overhead,
    insights: Insights,
    /// The shortest interval.
    interval: Duration,
    /// Time of the next check of the readers' marks.
    look_at: Duration,
    /// Time of the next question to the sensors about the facts that they cannot measure.
    explain_at: Duration,
    /// Families without a sensor on this machine, and those left out by the user.
    skips: Vec<Skip>,
    self_facts: SelfFacts,
    user_facts: UserFacts,
    foreign: Foreign,
    ranks: Ranks,
    /// The sender of anomaly reports, if the user asked for it.
    reports: Option<AnomalyReports>,
    traces: Traces,
    server: Server,
    signals: Signals,
    /// The connection with other nodes, if the user asked for it.
    link: Option<Box<dyn Link>>,
    counts: Counts,
    /// Sensors that were polled at this tick; kept for its allocation.
    polls: Vec<(usize, Box<Probe>, PollOutcome)>,
    clock: Clock,
    deadline: Option<Duration>,
    /// Events between two ticks, reported at the next one.
    events: Vec<Event>,
}

impl Agent {
    /// Makes the segment and opens the sensors. The caller has installed `signals` before, so that a signal
    /// during the start ends the agent in order.
    ///
    /// # Errors
    /// Another agent runs already; the runtime directory cannot be used; wrong options.
    pub fn start(
        dir: PathBuf,
        args: &AgentArgs,
        config: Config,
        signals: Signals,
    ) -> Result<Self, Failure> {
        let settings = Settings::new(args, config)?;
        crate::server::check_path(&dir)?;
        let node = settings.node.clone();
        let publisher = Publisher::builder(SEGMENT_NAME).dir(&dir).node(&node).create()?;
        let server = Server::listen(&dir)?;
        let self_facts = SelfFacts::new(&publisher, settings.interval)?;
        let now = monotonic();
        let node: Arc<str> = node.into();
        let insights = Insights::new(&node, &settings.config, &publisher)?;
        let state = skopos_term::state::ranks_of_node(&node);
        let ranks = Ranks::new(&node, &dir, &settings.config.rank, state.as_deref(), &publisher)
            .map_err(|e| e.in_file(settings.config.path.as_deref()))?;
        let mut agent = Self {
            node,
            insights,
            publisher,
            polled: Vec::new(),
            lanes: Lanes::new()?,
            overhead: Overhead::new(settings.budget)?,
            interval: settings.interval,
            look_at: now,
            explain_at: Duration::ZERO,
            skips: Vec::new(),
            self_facts,
            user_facts: UserFacts::new(&dir),
            foreign: Foreign::new(&dir),
            ranks,
            reports: None,
            traces: Traces::new(&dir, skopos_term::state::traces()),
            dir,
            server,
            signals,
            link: None,
            counts: Counts::default(),
            polls: Vec::new(),
            clock: Clock::now(),
            deadline: settings.run_for.map(|d| now.saturating_add(d)),
            events: Vec::new(),
        };
        agent.events.extend(agent.ranks.events());
        agent.open_sensors(&settings)?;
        // Before the facts of sensors: in a full segment, the facts that report it have their room.
        agent.publish_self(skopos_shm::now());
        Ok(agent)
    }

    /// Returns the names of configured insights that a hub computes, not this agent.
    pub fn left_to_hub(&self) -> &[String] {
        self.insights.left_to_hub()
    }

    /// Connects the agent with other nodes.
    pub fn join(&mut self, link: Box<dyn Link>) {
        self.link = Some(link);
    }

    fn open_sensors(&mut self, settings: &Settings) -> Result<(), Failure> {
        let peers = settings.peers();
        peers.check().map_err(|e| Failure::new(format!("[peers]: {e}")))?;
        let mut root = crate::root::root();
        let config = &settings.config;
        config
            .host
            .apply(&mut root)
            .map_err(|e| Failure::new(format!("[host]: {e}")).in_file(config.path.as_deref()))?;
        let mut opened = open_all(&root);
        let others = open_peers(&peers);
        opened.sensors.extend(others.sensors);
        opened.skips.extend(others.skips);
        let parts = telemetry::open(&self.node, &settings.config)?;
        self.reports = parts.reports;
        opened.sensors.extend(parts.sensors);
        self.events.extend(parts.skips.iter().map(|skip| Event::TelemetryLost {
            part: skip.what.clone(),
            reason: skip.reason.clone(),
        }));
        opened.skips.extend(parts.skips);
        let mut unknown: Vec<&String> = settings.skip.iter().collect();
        // The skips of a sensor may change, so they are read from the sensor whenever they are shown.
        let of_sensor = |skip: &Skip| opened.sensors.iter().any(|s| s.skips().contains(skip));
        self.skips = opened.skips.iter().filter(|skip| !of_sensor(skip)).cloned().collect();
        unknown.retain(|name| self.skips.iter().all(|skip| skip.what != **name));
        for sensor in opened.sensors {
            let name = sensor.family().name;
            if settings.skip.iter().any(|skipped| skipped == name) {
                unknown.retain(|skipped| *skipped != name);
                self.skips.push(Skip::new(name, "left out by --skip"));
                continue;
            }
            let schedule = settings.schedule(name, sensor.interval_hint())?;
            let may_block = sensor.may_block();
            let probe = Box::new(Probe::new(&self.publisher, &self.node, sensor)?);
            self.polled.push(PolledSensor::new(name, may_block, probe, schedule));
        }
        for skip in &self.skips {
            self.insights.set_missing(&skip.what, Some(&skip.reason));
        }
        if let Some(name) = unknown.first() {
            let families: Vec<_> = self.polled.iter().map(PolledSensor::name).collect();
            return Err(Failure::new(format!("--skip: there is no family `{name}`"))
                .hint(format!("the families are {}", families.join(", "))));
        }
        Ok(())
    }

    /// Returns the node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the runtime directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the segment's file.
    pub fn segment_path(&self) -> &Path {
        self.publisher.path()
    }

    /// Runs until a signal or the deadline ends it.
    ///
    /// # Errors
    /// `poll(2)` fails, or `observe` does.
    pub fn run(
        &mut self,
        observe: &mut dyn FnMut(&Self, Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.run_to_end(observe)?;
        for event in self.ranks.end() {
            observe(self, event)?;
        }
        Ok(())
    }

    fn run_to_end(
        &mut self,
        observe: &mut dyn FnMut(&Self, Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.tick(observe)?;
        self.overhead.begin(monotonic());
        // Parsing and opening are done: most pages of the program are not needed any more.
        skopos_shm::release_program_pages();
        // The pages that policies and detectors needed to learn are released later.
        let mut settled_at = Some(monotonic() + SETTLED_AFTER);
        loop {
            let now = monotonic();
            let polls = self.polled.iter().map(PolledSensor::due);
            let wakes = polls.chain(self.deadline).chain(self.insights.predictions_due());
            let wake = wakes.chain(self.ranks.due()).chain([self.look_at]).min();
            let wait = wake.map(|at| at.saturating_sub(now));
            if self.sleep(wait.into_iter().chain(self.server.patience_left()).min())? {
                return Ok(());
            }
            let now = monotonic();
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(());
            }
            if settled_at.take_if(|at| *at <= now).is_some() {
                skopos_shm::release_program_pages();
            }
            // Insights also age and move with time: a check each second is often enough.
            let is_look_due = self.look_at <= now;
            if is_look_due {
                self.check_segment()?;
                self.look(now);
            }
            if self.polled.iter().any(|p| p.due() <= now) || self.lanes.has_returned() {
                self.tick(observe)?;
            } else if is_look_due || self.is_between_polls_due(now) {
                self.between_polls(now, observe)?;
            }
        }
    }

    /// Sleeps in `poll(2)` and answers requests. Returns true if a signal asked the agent to end.
    fn sleep(&mut self, wait: Option<Duration>) -> Result<bool, Failure> {
        let timeout = wait.map(|d| Timespec {
            tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: d.subsec_nanos().into(),
        });
        let mut fds = Vec::with_capacity(3 + self.server.connections());
        fds.push(PollFd::from_borrowed_fd(self.signals.descriptor(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.lanes.descriptor(), PollFlags::IN));
        self.server.add_to(&mut fds);
        match poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(e) => return Err(Failure::new("cannot wait").because(&e)),
            Ok(_) => {}
        }
        let signalled = !fds[0].revents().is_empty();
        let returned = !fds[1].revents().is_empty();
        let ready = fds[2..].iter().any(|fd| !fd.revents().is_empty());
        drop(fds);
        if returned {
            self.lanes.note_returned();
        }
        if ready {
            let since = self.overhead.answering();
            for (token, request) in self.server.receive(&mut self.counts) {
                if self.is_forwarded(token, &request) {
                    continue;
                }
                let answer = request.map_or_else(|refused| refused, |r| self.answer(r));
                self.server.send(token, &answer, &mut self.counts);
            }
            self.overhead.answered(since);
        }
        self.server.expire(&mut self.counts);
        Ok(signalled)
    }

    /// Hands a request about another node to the link, which answers the client. Returns false for other
    /// requests. This thread does not wait for the network.
    fn is_forwarded(&mut self, token: u64, request: &Result<Request, Answer>) -> bool {
        let Ok(Request::Refresh { topic }) = request else { return false };
        let Some(link) = self.link.as_ref().filter(|link| link.can_refresh()) else { return false };
        let Some(topic) = Topic::new(topic).ok().filter(|topic| topic.node() != &*self.node) else {
            return false;
        };
        let Some(stream) = self.server.hand_over(token) else { return false };
        self.counts.requests += 1;
        link.refresh(topic, stream);
        true
    }

    /// Returns true if predictions or rankings are due.
    fn is_between_polls_due(&self, now: Duration) -> bool {
        let due = self.insights.predictions_due().into_iter().chain(self.ranks.due());
        due.min().is_some_and(|at| at <= now)
    }

    /// Does the work that cannot wait for the next poll, which may be minutes away.
    fn between_polls(
        &mut self,
        now: Duration,
        observe: &mut dyn FnMut(&Self, Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let clock = Clock::now();
        if self.self_facts.due(&self.publisher) <= now {
            self.publish_self(clock.wall);
        }
        self.insights.run(&self.publisher, clock, &mut self.counts);
        self.ranks.run(clock, &mut self.counts);
        for event in std::mem::take(&mut self.events) {
            observe(self, event)?;
        }
        Ok(())
    }

    /// Polls every sensor that is due, then publishes the cost.
    fn tick(
        &mut self,
        observe: &mut dyn FnMut(&Self, Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut events = std::mem::take(&mut self.events);
        // All polls of this wake have the same time.
        let clock = Clock::now();
        let Clock { wall: time, monotonic: now } = clock;
        if let Some(by) = self.clock.stepped_back(clock) {
            self.publisher.count_clock_step();
            self.counts.clock_steps += 1;
            self.insights.clock_set_back(by);
            events.push(Event::ClockSteppedBack { by });
        }
        let was_first = self.polled.iter().all(|p| p.polled_at().is_zero());
        self.poll_due((time, now), &mut events);
        if was_first {
            while let Some(poll) = self.lanes.wait(LANE_PATIENCE) {
                self.settle(poll.number, poll.probe, poll.outcome, &mut events);
            }
        }
        while let Some(poll) = self.lanes.take() {
            self.settle(poll.number, poll.probe, poll.outcome, &mut events);
        }
        for polled in &mut self.polled {
            polled.watch(now, &mut events);
        }
        if let Some(reports) = &mut self.reports {
            reports.run(time, now);
        }
        self.explain_missing(now);
        self.insights.run(&self.publisher, clock, &mut self.counts);
        self.ranks.run(clock, &mut self.counts);
        if self.self_facts.due(&self.publisher) <= now {
            self.publish_self(time);
        }
        self.server.expire(&mut self.counts);
        for event in events {
            observe(self, event)?;
        }
        observe(self, Event::Ticked)
    }

    /// Fails if the segment's file was removed: readers could not find its facts any more.
    fn check_segment(&self) -> Result<(), Failure> {
        if self.publisher.is_published() {
            return Ok(());
        }
        let path = self.publisher.path().display();
        Err(Failure::new(format!("the segment {path} was removed: no reader can find it")).hint(
            "start the agent again; if a login manager empties the directory, set SKOPOS_DIR",
        ))
    }

    /// Polls every sensor that is due, here or in a lane.
    fn poll_due(&mut self, times: (Timestamp, Duration), events: &mut Vec<Event>) {
        let (_, now) = times;
        let mut polls = std::mem::take(&mut self.polls);
        let mut shares = Shares::begin();
        for at in 0..self.polled.len() {
            let polled = &mut self.polled[at];
            if polled.due() > now {
                continue;
            }
            let Some(mut probe) = polled.take(now) else { continue };
            if polled.may_block() {
                if let Err(refused) = self.lanes.lend(at, probe, times) {
                    polled.postponed(refused, now, events);
                }
                continue;
            }
            shares.begin_poll();
            let outcome = probe.poll(times);
            polls.push((at, probe, PollOutcome { spent: shares.end_poll(), ..outcome }));
        }
        let share = shares.end(polls.iter().map(|(_, _, outcome)| outcome.spent).sum());
        for (at, probe, outcome) in polls.drain(..) {
            let spent = outcome.spent.mul_f64(share);
            self.settle(at, probe, PollOutcome { spent, ..outcome }, events);
        }
        self.polls = polls;
    }

    /// Takes a sensor back after a poll.
    fn settle(
        &mut self,
        at: usize,
        probe: Box<Probe>,
        outcome: PollOutcome,
        events: &mut Vec<Event>,
    ) {
        self.counts.add(&outcome.counts);
        let yielded = (probe.yielded(), probe.facts());
        self.insights.take(at + 1, yielded, outcome.time, &self.publisher);
        if let Some(reports) = &mut self.reports {
            reports.take(at, yielded, outcome.time);
        }
        self.overhead.polled(outcome.spent, self.polled[at].may_block());
        self.polled[at].returned(probe, outcome, events);
    }

    /// Reads the readers' marks, and distributes the budget anew.
    fn look(&mut self, now: Duration) {
        self.look_at = next_look(now, self.interval);
        if let Some(link) = &mut self.link {
            self.events.extend(link.take_events().into_iter().map(Event::Link));
        }
        let has_readers = self.publisher.has_interest();
        for polled in &mut self.polled {
            let Some(probe) = polled.probe() else { continue };
            let unread = (0, false);
            let interest = if has_readers { probe.take_interest(&self.publisher) } else { unread };
            polled.note_interest(interest, now);
        }
        if let Some(over) = self.overhead.plan(&mut self.polled, now) {
            self.events.push(Event::BudgetExceeded { limit: self.overhead.limit(), over });
        }
        self.foreign.look(&mut self.insights, &self.publisher, now);
        self.traces.look();
    }

    /// Tells insights why facts that they need are missing.
    fn explain_missing(&mut self, now: Duration) {
        if now < self.explain_at {
            return;
        }
        self.explain_at = now + EXPLAIN_EVERY;
        for polled in &mut self.polled {
            for (what, reason) in polled.skip_changes() {
                self.insights.set_missing(&what, reason.as_deref());
            }
        }
    }

    fn publish_self(&mut self, time: Timestamp) {
        let Self { publisher, node, polled, counts, overhead, .. } = self;
        let state = AgentState {
            counts,
            overhead,
            busy_lanes: self.lanes.busy(),
            insights: self.insights.counts(),
            left_out: self.foreign.left_out(),
            link: self.link.as_deref(),
            traces: self.traces.counts(),
        };
        self.self_facts.publish(publisher, node, polled, &state, time);
        // The numbers of sensors begin at 1.
        self.insights.take(0, self.self_facts.yielded(), time, &self.publisher);
    }

    fn answer(&mut self, request: Request) -> Answer {
        self.counts.requests += 1;
        let answer = match request {
            Request::Publish { topic, value, value_type, unit, kind } => {
                self.in_full(&topic).and_then(|topic| {
                    let texts = [&*value, &*value_type, &*unit, &*kind];
                    self.user_facts.publish(&self.publisher, &mut self.insights, topic, texts)
                })
            }
            Request::Remove { topic } => self.in_full(&topic).and_then(|topic| {
                self.user_facts.remove(&self.publisher, &mut self.insights, &topic)
            }),
            Request::Refresh { topic } => self.refresh(&topic),
            Request::Status => Ok(Answer::Status(self.status())),
            Request::Vertices { pattern, insights_only, after } => {
                self.vertices(&pattern, insights_only, after.as_deref())
            }
            Request::Definitions => Ok(self.insights.definitions()),
            Request::Findings { after } => Ok(self.insights.raised(after.as_ref())),
            Request::Rank { profile, candidates, after } => {
                self.ranks.page(profile.as_deref(), &candidates, after)
            }
            Request::Outcomes { profile, outcomes } => {
                self.ranks.learn(profile.as_deref(), &outcomes)
            }
        };
        self.insights.run(&self.publisher, Clock::now(), &mut self.counts);
        answer.unwrap_or_else(|refused| {
            self.counts.requests_refused += 1;
            refused
        })
    }

    fn vertices(
        &self,
        pattern: &str,
        insights_only: bool,
        after: Option<&str>,
    ) -> Result<Answer, Answer> {
        let pattern = TopicPattern::new(pattern).map_err(|e| Answer::Refused {
            error: e.to_string(),
            hint: Some("a pattern looks like `*/insight/**`".to_owned()),
        })?;
        Ok(self.insights.page(&pattern, insights_only, after, skopos_shm::now()))
    }

    /// Returns the topic with this node in front.
    fn in_full(&self, text: &str) -> Result<Topic, Answer> {
        let refused = |e: skopos_model::Error| Answer::Refused {
            error: e.to_string(),
            hint: Some("a topic looks like `my-app/queue/depth`".to_owned()),
        };
        let topic = Topic::new(text).map_err(refused)?;
        if topic.node() == &*self.node && topic.segments().count() > 1 {
            return Ok(topic);
        }
        Topic::new(&format!("{}/{topic}", self.node)).map_err(refused)
    }

    fn refresh(&mut self, topic: &str) -> Result<Answer, Answer> {
        let Clock { wall, monotonic: now } = Clock::now();
        let has = |p: &PolledSensor| p.probe().is_some_and(|probe| probe.has(topic));
        let Some(at) = self.polled.iter().position(has) else {
            return Err(Answer::Refused {
                error: format!("no sensor that is free measures `{topic}`"),
                hint: Some("only the topic of a sensor can be refreshed".to_owned()),
            });
        };
        // Rates over a shorter time would come from a few ticks of the kernel's clock, for every reader.
        if now.saturating_sub(self.polled[at].polled_at()) >= MIN_REFRESH {
            self.poll_now(at, (wall, now));
        }
        let polled = &self.polled[at];
        match polled.error() {
            None => Ok(Answer::Done { topic: topic.to_owned() }),
            Some(error) => Err(Answer::Refused { error: error.to_owned(), hint: None }),
        }
    }

    /// Polls a sensor before its time. A sensor that may block has a moment to return.
    fn poll_now(&mut self, at: usize, times: (Timestamp, Duration)) {
        let mut events = std::mem::take(&mut self.events);
        let polled = &mut self.polled[at];
        let (_, now) = times;
        if let Some(mut probe) = polled.take(now) {
            if !polled.may_block() {
                let outcome = probe.poll_alone(times);
                self.settle(at, probe, outcome, &mut events);
            } else if let Err(refused) = self.lanes.lend(at, probe, times) {
                polled.postponed(refused, now, &mut events);
            } else {
                while let Some(poll) = self.lanes.wait(LANE_PATIENCE) {
                    let is_wanted = poll.number == at;
                    self.settle(poll.number, poll.probe, poll.outcome, &mut events);
                    if is_wanted {
                        break;
                    }
                }
            }
        }
        self.events = events;
    }

    /// Returns the state of every sensor, and the reasons for what is not sensed.
    pub fn status(&self) -> Status {
        let skip = |s: Skip| SkipStatus { what: s.what, reason: s.reason };
        Status {
            node: self.node.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sensors: self.polled.iter().map(PolledSensor::status).collect(),
            skips: self
                .polled
                .iter()
                .flat_map(PolledSensor::skips)
                .chain(self.skips.clone())
                .map(skip)
                .collect(),
            user_facts: self.user_facts.len(),
            facts_refused: self.counts.refused,
        }
    }
}

/// Returns the time of the check after a check at `now`, for an agent with this shortest interval. It is on the
/// beat, so that it shares its wake with sensors, and later than `now` even if beats are far apart.
fn next_look(now: Duration, interval: Duration) -> Duration {
    nearest_beat(now + LOOK_EVERY, interval.min(LOOK_EVERY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_come_about_once_a_second_for_every_interval() {
        for interval in [1, 10, 333, 700, 999, 1000, 1001, 5000, 10_000, 60_000, 86_400_000] {
            let interval = Duration::from_millis(interval);
            for now in (0..200_000).step_by(77).map(Duration::from_millis) {
                let wait = next_look(now, interval).saturating_sub(now).as_millis();
                assert!((500..=1500).contains(&wait), "{wait} ms at {now:?}, {interval:?}");
            }
        }
    }

    /// A long start with many insights must not look like a step of the clock.
    #[test]
    fn both_clocks_are_read_together_after_a_long_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("skopos.toml");
        let insight = |n| {
            format!(
                "[[insight]]\nname = \"i{n}\"\nsql = \"SELECT count(*) FROM latest WHERE topic = 'n01/load/load_1m'\"\n"
            )
        };
        std::fs::write(&config, (0..1000).map(insight).collect::<String>()).expect("written");
        let args = AgentArgs { node: Some("n01".to_owned()), ..AgentArgs::default() };
        let config = Config::load(Some(&config)).expect("a configuration");
        let dir = folder.path().to_owned();
        let (signals, _sender) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let agent = Agent::start(dir, &args, config, Signals(signals)).expect("it starts");
        let ahead = |c: &Clock| c.wall.as_nanos() - c.monotonic.as_nanos() as i64;
        let apart = ahead(&agent.clock).abs_diff(ahead(&Clock::now()));
        // A pair is read within ten milliseconds; a thousand insights take hundreds.
        assert!(apart < 20_000_000, "{apart} ns apart");
    }
}
