//! The state of this machine at one moment, as plain structs: the only input of the panes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use skopos_model::schema::{self, Family, Metric, cgroup, process, self_sensor};
use skopos_model::{Kind, Timestamp, Topic, Unit, Value, core_list};

use crate::answers::Answers;
use crate::findings::Findings;
use crate::processes::Processes;
use crate::rate::Growth;

/// The segments after the node in the topics of insights, findings and predictions.
pub(crate) const INSIGHTS: &str = "insight";
pub(crate) const FINDINGS: &str = "anomaly";
pub(crate) const PREDICTIONS: &str = "predicted";

/// A fact is stale if its source was not polled for this number of intervals.
const STALE_INTERVALS: u32 = 3;

/// The least age of a stale fact, because the screen is refreshed once a second.
const STALE_AT_LEAST: Duration = Duration::from_secs(2);

/// A publisher is silent after this time without a sign of life, unless its sensors are polled more
/// rarely.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// The greatest plausible number of polls of a walk over all processes: a million processes.
const MAX_WALK_POLLS: f64 = 10_000.0;

/// Metrics that the sensor of control groups reads in a cycle of its own, a group at a poll.
static SLOW_OF_CGROUP: [&Metric; 4] = [
    &cgroup::MEMORY_BYTES_MAX,
    &cgroup::MEMORY_LIMIT_BYTES,
    &cgroup::MEMORY_OOM_KILLS_TOTAL,
    &cgroup::TASKS_LIMIT,
];

/// Number of polls of that cycle: the number of groups, within these bounds of the sensor.
const CGROUP_SLOW_POLLS: (usize, usize) = (32, 256);

/// The most hierarchies in which an instance has a group: v1 has four, for CPU, memory, tasks and IO.
const CGROUP_HIERARCHIES: usize = 4;

/// Number of other files of control groups that the sensor reads at a poll.
const CGROUP_READS_PER_POLL: usize = 64;

/// The most of these files that an instance has; v1 has that number.
const CGROUP_FILES: usize = 6;

/// One topic and its latest value.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub topic: Topic,
    pub unit: Unit,
    pub kind: Kind,
    /// Family and metric of the schema, if the fact belongs to Skopos.
    pub known: Option<(&'static Family, &'static Metric)>,
    /// `None` before the first sample, and while it is unknown.
    pub value: Option<Value>,
    /// The error bound of a predicted value.
    pub bound: Option<f64>,
    /// The reason why the value is unknown; empty where the sample does not have room for a reason.
    pub unknown: Option<String>,
    /// The time of the last change of the value.
    pub since: Timestamp,
    /// The last poll time of its source.
    pub checked_at: Timestamp,
    /// The time from that poll to this refresh, by a clock that never steps.
    pub age: Duration,
    /// Growth per second, of counters.
    pub rate: Option<f64>,
    /// Index into [`Data::publishers`].
    pub publisher: usize,
    /// True if the publisher is gone or silent, or the last poll is too old.
    pub stale: bool,
}

impl Fact {
    pub(crate) fn number(&self) -> Option<f64> {
        self.value.as_ref().and_then(Value::as_f64)
    }

    /// The topic without its node.
    pub(crate) fn below_node(&self) -> &str {
        let topic = self.topic.as_str();
        topic.split_once('/').map_or(topic, |(_, rest)| rest)
    }

    /// True if `segment` is the first segment after the node.
    pub(crate) fn is_below(&self, segment: &str) -> bool {
        self.below_node().split('/').next() == Some(segment)
    }
}

/// A process that publishes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Publisher {
    pub name: String,
    pub node: String,
    pub pid: u32,
    /// The time at which it was first found dead.
    pub gone_at: Option<Timestamp>,
    /// Time since its last sign of life.
    pub silent_for: Duration,
}

/// The samples of a topic that memory still holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Nanoseconds and value, oldest first; NaN from the time at which the value became unknown.
    pub samples: Vec<(i64, f64)>,
}

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub now: Timestamp,
    /// The node whose facts the panes show.
    pub node: String,
    pub publishers: Vec<Publisher>,
    /// Index of the agent among them.
    agent: Option<usize>,
    /// By topic.
    pub facts: Vec<Fact>,
    /// Members of the lists among the facts, as facts of their own; see [`set_members`](Self::set_members).
    pub members: Vec<Fact>,
    /// Samples of the topics whose history the screen shows.
    pub histories: HashMap<Topic, History>,
    /// The error of the last search for publishers.
    pub trouble: Option<String>,
    /// Values that detectors found unusual.
    pub findings: Findings,
    /// Processes, while a pane shows them.
    pub processes: Processes,
    /// The agent's latest answers.
    pub answers: Answers,
    /// Facts of a family by instance, in natural order of the instances' names.
    families: HashMap<&'static str, BTreeMap<Natural, Vec<usize>>>,
    /// Facts that neither belong to a family of this node nor are computed.
    published: Vec<usize>,
}

impl Data {
    /// Requires `facts` sorted by topic. The agent is the publisher with most facts of the families:
    /// an application with a few such names must not take over the panes.
    pub(crate) fn new(publishers: Vec<Publisher>, facts: Vec<Fact>) -> Self {
        let known_by = |index: usize| {
            let node = &publishers[index].node;
            let own = facts.iter().filter(|f| f.publisher == index && f.topic.node() == node);
            own.filter(|f| f.known.is_some()).count()
        };
        // Of several, the first one: the living come before the dead.
        let agent = (0..publishers.len()).rev().max_by_key(|&index| known_by(index));
        let node = agent.map(|index| publishers[index].node.clone()).unwrap_or_default();
        let mut data = Self { agent, node, publishers, facts, ..Self::default() };
        for (index, fact) in data.facts.iter().enumerate() {
            match fact.known.filter(|_| fact.topic.node() == data.node) {
                // A list is shown by its members.
                Some((family, _)) if core_list::first_core(instance(fact, family)).is_some() => {}
                Some((family, _)) => {
                    let instance = Natural(instance(fact, family).to_owned());
                    let instances = data.families.entry(family.name).or_default();
                    instances.entry(instance).or_default().push(index);
                }
                None => {
                    let computed = [INSIGHTS, FINDINGS, PREDICTIONS];
                    let is_own = fact.topic.node() == data.node;
                    if !(is_own && computed.iter().any(|segment| fact.is_below(segment))) {
                        data.published.push(index);
                    }
                }
            }
        }
        data
    }

    /// Takes the members of lists, and drops those of earlier lists. They are instances of their families.
    pub(crate) fn set_members(&mut self, members: Vec<Fact>) {
        let facts = self.facts.len();
        for instances in self.families.values_mut() {
            instances.retain(|_, of| {
                of.retain(|index| *index < facts);
                !of.is_empty()
            });
        }
        for (index, fact) in members.iter().enumerate() {
            let own = fact.known.filter(|_| fact.topic.node() == self.node);
            let Some((family, _)) = own else { continue };
            let instance = Natural(instance(fact, family).to_owned());
            let instances = self.families.entry(family.name).or_default();
            instances.entry(instance).or_default().push(facts + index);
        }
        self.members = members;
    }

    /// A fact or a member of a list, by its index in `families`.
    fn at(&self, index: usize) -> &Fact {
        let member = index.checked_sub(self.facts.len());
        member.map_or_else(|| &self.facts[index], |member| &self.members[member])
    }

    /// The publisher of the facts of this node's families.
    pub(crate) fn agent(&self) -> Option<&Publisher> {
        self.publishers.get(self.agent?)
    }

    /// The age of the freshest fact of the node's families.
    pub(crate) fn age(&self) -> Option<Duration> {
        let known = self.facts.iter().filter(|f| f.known.is_some() && f.value.is_some());
        known.map(|f| f.age).min()
    }

    pub(crate) fn fact(&self, topic: &Topic) -> Option<&Fact> {
        let index = self.facts.binary_search_by(|f| f.topic.cmp(topic)).ok()?;
        self.facts.get(index)
    }

    /// The instances of a family, in natural order.
    pub(crate) fn instances(&self, family: &Family) -> impl Iterator<Item = Instance<'_>> {
        let instances = self.families.get(family.name).into_iter().flatten();
        instances.map(|(name, facts)| Instance { data: self, name: &name.0, facts })
    }

    /// One instance of a family; `""` for a family that has just one.
    pub(crate) fn instance(&self, family: &Family, name: &str) -> Option<Instance<'_>> {
        let (name, facts) =
            self.families.get(family.name)?.get_key_value(&Natural(name.to_owned()))?;
        Some(Instance { data: self, name: &name.0, facts })
    }

    /// Facts that do not belong to a family: users and applications publish them.
    pub(crate) fn published(&self) -> impl ExactSizeIterator<Item = &Fact> {
        self.published.iter().map(|&index| &self.facts[index])
    }

    /// Insights, by topic.
    pub(crate) fn insights(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().filter(|fact| fact.is_below(INSIGHTS))
    }

    /// The reason why a fact is unknown; `None` if it is known or was never published.
    pub(crate) fn reason<'a>(&'a self, fact: &'a Fact) -> Option<&'a str> {
        match fact.unknown.as_deref()? {
            "" => {
                let answer = self.answers.unknown.get(fact.topic.as_str());
                Some(answer.map_or_else(|| self.missing_reason(), String::as_str))
            }
            reason => Some(reason),
        }
    }

    /// The text in place of a reason that the agent has not given.
    pub(crate) fn missing_reason(&self) -> &str {
        match self.answers.trouble {
            Some(_) => "the agent does not answer",
            None => "waiting for the agent's answer",
        }
    }

    /// Time between two polls of a family's sensor, if the agent publishes it.
    pub(crate) fn interval(&self, family: &str) -> Option<Duration> {
        let sensor = self.instance(&self_sensor::FAMILY, family)?;
        let seconds = sensor.value(&self_sensor::INTERVAL_SECONDS)?;
        Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero())
    }

    /// Time between two reads of a fact's source, if the agent publishes the interval of its sensor.
    pub(crate) fn time_between_reads(&self, fact: &Fact) -> Option<Duration> {
        let (family, metric) = fact.known?;
        Some(self.interval(family.name)?.max(metric.read_every()))
    }

    /// True if the last values of this publisher are not reliable any more.
    pub(crate) fn is_lost(&self, publisher: &Publisher) -> bool {
        publisher.gone_at.is_some() || self.is_silent(publisher)
    }

    fn is_silent(&self, publisher: &Publisher) -> bool {
        // Only the agent gives signs of life; an application publishes when a value changes.
        let is_agent = self.agent().is_some_and(|agent| agent == publisher);
        let sensors = self.instances(&self_sensor::FAMILY);
        let shortest = sensors.filter_map(|s| self.interval(s.name)).min().unwrap_or_default();
        is_agent && publisher.silent_for > SILENT_AFTER.max(shortest * STALE_INTERVALS)
    }

    /// The time in which all facts of a family are read: some families need several polls.
    fn round(&self, family: &Family) -> Option<Duration> {
        let interval = self.interval(family.name)?;
        if family.name == cgroup::FAMILY.name {
            let files = self.instances(family).count() * CGROUP_FILES;
            return Some(interval.mul_f64(files.div_ceil(CGROUP_READS_PER_POLL).max(1) as f64));
        }
        if family.name != process::FAMILY.name {
            return Some(interval);
        }
        let node = self.instance(&process::FAMILY, "")?;
        let polls = node.value(&process::WALK_POLLS).unwrap_or(1.0).max(1.0);
        Some(interval.mul_f64(polls.min(MAX_WALK_POLLS)))
    }

    /// The time in which all limits and peaks of control groups are read.
    fn slow_round_of_cgroup(&self) -> Option<Duration> {
        let groups = self.instances(&cgroup::FAMILY).count() * CGROUP_HIERARCHIES;
        let (least, most) = CGROUP_SLOW_POLLS;
        Some(self.interval(cgroup::FAMILY.name)?.mul_f64(groups.clamp(least, most) as f64))
    }

    /// Marks the facts that are stale now.
    pub(crate) fn mark_stale(&mut self) {
        let lost: Vec<bool> = self.publishers.iter().map(|p| self.is_lost(p)).collect();
        let rounds: HashMap<&str, Duration> = schema::FAMILIES
            .iter()
            .filter_map(|family| Some((family.name, self.round(family)?)))
            .collect();
        let slow_round = self.slow_round_of_cgroup();
        let is_slow =
            |metric: &Metric| SLOW_OF_CGROUP.iter().any(|slow| std::ptr::eq(*slow, metric));
        for fact in self.facts.iter_mut().chain(&mut self.members) {
            let round = fact.known.and_then(|(family, metric)| match is_slow(metric) {
                true => slow_round,
                false => rounds.get(family.name).map(|round| metric.read_every().max(*round)),
            });
            let old = round.is_some_and(|r| fact.age > STALE_AT_LEAST.max(r * STALE_INTERVALS));
            fact.stale = old || lost.get(fact.publisher).copied().unwrap_or(true);
        }
    }

    /// The growth of a counter over the samples in memory.
    pub(crate) fn growth(&self, fact: &Fact) -> Option<Growth> {
        let history = self.histories.get(&fact.topic)?;
        let interval = self.time_between_reads(fact);
        let samples = history.samples.iter().copied().filter(|(_, value)| value.is_finite());
        let samples: Vec<(i64, f64)> = samples.collect();
        Some(Growth::new(&samples, fact.checked_at.as_nanos(), interval))
    }
}

/// One instance of a family: a device, a core, the node itself.
#[derive(Clone, Copy)]
pub(crate) struct Instance<'a> {
    data: &'a Data,
    pub name: &'a str,
    facts: &'a [usize],
}

impl<'a> Instance<'a> {
    pub(crate) fn fact(&self, metric: &Metric) -> Option<&'a Fact> {
        let of_metric = |f: &&Fact| {
            f.known.is_some_and(|(_, m)| m.name == metric.name && m.path == metric.path)
        };
        self.facts.iter().map(|&index| self.data.at(index)).find(of_metric)
    }

    pub(crate) fn facts(&self) -> impl Iterator<Item = &'a Fact> {
        let data = self.data;
        self.facts.iter().map(move |&index| data.at(index))
    }

    pub(crate) fn value(&self, metric: &Metric) -> Option<f64> {
        self.fact(metric)?.number()
    }

    /// Growth per second.
    pub(crate) fn rate(&self, metric: &Metric) -> Option<f64> {
        self.fact(metric)?.rate
    }

    /// The sum of the known growths of several counters.
    pub(crate) fn rates(&self, metrics: &[&Metric]) -> Option<f64> {
        let known: Vec<f64> = metrics.iter().filter_map(|m| self.rate(m)).collect();
        if known.is_empty() { None } else { Some(known.iter().sum()) }
    }

    pub(crate) fn topic(&self, metric: &Metric) -> Option<Topic> {
        self.fact(metric).map(|f| f.topic.clone())
    }

    /// The value if the last poll set it: a poll sets a latency only if there were requests.
    pub(crate) fn value_of_last_poll(&self, metric: &Metric) -> Option<f64> {
        let last_poll = self.facts().map(|f| f.checked_at).max()?;
        self.fact(metric).filter(|f| f.checked_at == last_poll)?.number()
    }

    /// True if all of its facts are stale: a single fact may just not have been set lately.
    pub(crate) fn is_stale(&self) -> bool {
        self.facts().filter(|f| f.value.is_some()).all(|f| f.stale)
    }
}

/// The instance in a fact's topic: the segments between the family's path and the metric.
fn instance<'a>(fact: &'a Fact, family: &Family) -> &'a str {
    let below_node = fact.below_node();
    let rest = below_node.strip_prefix(family.path).unwrap_or_default();
    rest.trim_start_matches('/').rsplit_once('/').map_or("", |(instance, _)| instance)
}

/// A name whose numbers count as numbers: `sda2` comes before `sda10`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Natural(String);

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        natural(&self.0, &other.0)
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares names in natural order: numbers in them compare as numbers.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        match (number_prefix(left), number_prefix(right)) {
            (Some((x, rest_x)), Some((y, rest_y))) => {
                let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
                match x.len().cmp(&y.len()).then_with(|| x.cmp(y)) {
                    Ordering::Equal => (left, right) = (rest_x, rest_y),
                    unequal => return unequal,
                }
            }
            _ => match (left.chars().next(), right.chars().next()) {
                (Some(x), Some(y)) if x == y => {
                    (left, right) = (&left[x.len_utf8()..], &right[y.len_utf8()..]);
                }
                // Names that differ only in leading zeros are not the same.
                (None, None) => return a.cmp(b),
                (x, y) => return x.cmp(&y),
            },
        }
    }
}

fn number_prefix(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 { None } else { Some(text.split_at(end)) }
}
