//! Random worlds against the model: facts and insights come, go and change, and after each run the
//! graph must equal the model and must have reported every change.
//!
//! One seed determines a world, and a failure prints it; `SKOPOS_SIMULATION_SEED=7` runs that world
//! alone.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use skopos_model::{Scalar, SplitMix64, Unit};
use skopos_score::{Graph, Input, Inputs, Insight, Outcome, Unknown, VertexId};

use super::model::{Computed, Expected, Fact, Formula, Model, Wanted};
use super::support::{Sum, at, spec};

/// The size of a world, and its duration.
#[derive(Clone, Copy)]
struct Size {
    facts: u64,
    insights: u64,
    /// The number of groups of topics; a pattern matches about the vertices of a layer divided by
    /// this.
    groups: u64,
    layers: u64,
    steps: usize,
    /// The number of steps between two runs, after each of which everything is compared.
    steps_a_run: usize,
}

const SMALL: Size =
    Size { facts: 12, insights: 14, groups: 3, layers: 5, steps: 600, steps_a_run: 3 };
const LARGE: Size =
    Size { facts: 2000, insights: 1000, groups: 150, layers: 40, steps: 30_000, steps_a_run: 3000 };
const SMALL_WORLDS: u64 = 40;

#[test]
fn small_worlds_match_the_model() {
    live(SMALL, SMALL_WORLDS);
}

#[test]
fn a_world_of_thousands_matches_the_model() {
    live(LARGE, 1);
}

/// Runs that many worlds, in which enough outcomes must have been known.
fn live(size: Size, worlds: u64) {
    let (mut known, mut all) = (0, 0);
    for seed in seeds(worlds) {
        let tally = World::new(seed, size).live();
        (known, all) = (known + tally.0, all + tally.1);
    }
    assert!(all > 0 && known * 5 > all, "{known} of {all} known: such worlds test little");
}

fn seeds(count: u64) -> Vec<u64> {
    let asked = std::env::var("SKOPOS_SIMULATION_SEED").ok();
    match asked.map(|text| text.parse().expect("SKOPOS_SIMULATION_SEED is a number")) {
        Some(seed) => vec![seed],
        None => (0..count).collect(),
    }
}

/// Random choices of a seed.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.bits() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, from: impl ExactSizeIterator<Item = T> + 'a) -> Option<T> {
        let mut from = from;
        match from.len() {
            0 => None,
            len => from.nth(self.below(len as u64) as usize),
        }
    }
}

/// The rate of the first topic of the first input.
struct Rate;

impl Insight for Rate {
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
        Ok(skopos_model::Value::F64(inputs.rate(0)?))
    }
}

/// Prints its seed if a failure drops it.
struct World {
    seed: u64,
    size: Size,
    random: Random,
    second: i64,
    graph: Graph,
    model: Model,
    ids: BTreeMap<String, VertexId>,
    /// The reports of the runs: outcome and time of the last poll.
    reports: BTreeMap<String, (Result<f64, String>, i64)>,
    /// Compared outcomes that were known, and all compared outcomes.
    tally: (usize, usize),
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (seed, facts) = (self.seed, self.size.facts);
            eprintln!("the world of {facts} facts failed with SKOPOS_SIMULATION_SEED={seed}");
        }
    }
}

impl World {
    fn new(seed: u64, size: Size) -> Self {
        Self {
            seed,
            size,
            random: Random(SplitMix64::new(seed)),
            second: 1,
            graph: Graph::default(),
            model: Model::default(),
            ids: BTreeMap::new(),
            reports: BTreeMap::new(),
            tally: (0, 0),
        }
    }

    fn live(mut self) -> (usize, usize) {
        for step in 1..=self.size.steps {
            self.step();
            if step % self.size.steps_a_run == 0 {
                self.run();
            }
        }
        self.tally
    }

    fn step(&mut self) {
        let (facts, insights) = (self.model.facts.len() as u64, self.model.insights.len() as u64);
        match self.random.below(100) {
            0..18 if facts < self.size.facts => self.add_fact(),
            18 => self.remove_fact(),
            20..38 if insights < self.size.insights => self.add_insight(),
            38 => self.remove_insight(),
            40..43 => self.limit_age(),
            _ => self.set(),
        }
    }

    /// Returns one of the groups over which `among` vertices are spread.
    fn group(&mut self, among: u64) -> u64 {
        self.random.below(self.size.groups.min(among))
    }

    fn topic(&mut self, layer: u64, among: u64) -> String {
        let each = 1 + among / self.size.groups;
        format!("l{layer}/g{}/v{}", self.group(among), self.random.below(each))
    }

    fn unit(&mut self) -> Unit {
        if self.random.one_in(20) { Unit::SECONDS } else { Unit::NONE }
    }

    fn add_fact(&mut self) {
        // Sometimes in a layer of insights, where their patterns match.
        let layer = if self.random.one_in(10) { self.random.below(self.size.layers) } else { 0 };
        let (topic, unit) = (self.topic(layer, self.size.facts), self.unit());
        let added =
            self.graph.add_fact(topic.parse().expect("a topic"), unit, skopos_model::Kind::Gauge);
        assert_eq!(added.is_err(), self.model.has(&topic), "{topic}: {added:?}");
        if let Ok(id) = added {
            self.ids.insert(topic.clone(), id);
            self.model.facts.insert(topic, Fact::new(unit));
        }
    }

    fn add_insight(&mut self) {
        let layer = 1 + self.random.below(self.size.layers - 1);
        let topic = self.topic(layer, self.size.insights / self.size.layers);
        let formula = if self.random.one_in(5) { Formula::Rate } else { Formula::Sum };
        let wanted = |world: &mut Self| world.wanted(layer, formula);
        let inputs: Vec<_> = match formula {
            Formula::Rate => vec![wanted(self)],
            Formula::Sum => (0..1 + self.random.below(3)).map(|_| wanted(self)).collect(),
        };
        let computed = Computed { formula, inputs, max_age: None };
        let mut spec = spec(&topic, &[]);
        spec.inputs = computed.inputs.iter().map(Wanted::input).collect();
        let insight: Box<dyn Insight> = match formula {
            Formula::Rate => Box::new(Rate),
            Formula::Sum => Box::new(Sum(computed.inputs.iter().map(|w| w.needed).collect())),
        };
        let added = self.graph.add_insight(spec, insight);
        if self.size.steps_a_run < LARGE.steps_a_run {
            let admits = self.model.admits(&topic, &computed);
            assert_eq!(added.is_ok(), admits, "{topic} {computed:?}: {added:?}");
        }
        if let Ok(id) = added {
            self.ids.insert(topic.clone(), id);
            self.model.insights.insert(topic, computed);
        }
    }

    fn wanted(&mut self, layer: u64, formula: Formula) -> Wanted {
        let below = match formula {
            Formula::Rate => 0,
            // Sometimes not below the layer at all, which can close cycles.
            Formula::Sum if self.random.one_in(6) => self.random.below(self.size.layers),
            Formula::Sum => self.random.below(layer),
        };
        let among =
            if below == 0 { self.size.facts } else { self.size.insights / self.size.layers };
        let pattern = match self.random.below(10) {
            0 | 1 if formula == Formula::Sum => format!("l{below}/g{}/*", self.group(among)),
            2 if formula == Formula::Sum => format!("*/g{}/v0", self.group(self.size.facts)),
            _ => self.topic(below, among),
        };
        let unit = self.random.one_in(3).then_some(Unit::NONE);
        Wanted { pattern, unit, needed: !self.random.one_in(4) || formula == Formula::Rate }
    }

    fn remove_fact(&mut self) {
        let Some(topic) = self.random.pick(self.model.facts.keys()).cloned() else { return };
        self.model.facts.remove(&topic);
        self.remove(&topic);
    }

    fn remove_insight(&mut self) {
        let Some(topic) = self.random.pick(self.model.insights.keys()).cloned() else { return };
        self.model.insights.remove(&topic);
        self.remove(&topic);
        self.reports.remove(&topic);
    }

    fn remove(&mut self, topic: &str) {
        let id = self.ids.remove(topic).expect("an id for each");
        self.graph.remove(id).expect("it is there");
        assert!(self.graph.remove(id).is_err(), "{topic} is gone");
    }

    fn limit_age(&mut self) {
        let max_age = self.random.one_in(2).then(|| self.random.below(10) as i64);
        let topics = self.model.insights.keys();
        let Some(topic) = self.random.pick(topics).cloned() else { return };
        self.model.insights.get_mut(&topic).expect("it is there").max_age = max_age;
        let max_age = max_age.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
        self.graph.limit_age(self.ids[&topic], max_age).expect("an insight");
    }

    fn set(&mut self) {
        let Some(topic) = self.random.pick(self.model.facts.keys()).cloned() else { return };
        // Small whole numbers, so that a sum is the same in every order; often the same value
        // again.
        let found = match self.random.below(30) {
            0 => Err("unplugged".to_owned()),
            n => Ok((n / 8) as f64),
        };
        let late = i64::from(self.random.one_in(10));
        let (time, id) = (self.second - late, self.ids[&topic]);
        match &found {
            Ok(number) => self.graph.set(id, at(time), Scalar::F64(*number)),
            Err(why) => self.graph.set_unknown(id, at(time), Unknown::new(why.as_str())),
        }
        .expect("a fact");
        self.model.facts.get_mut(&topic).expect("it is there").set(time, found);
    }

    fn run(&mut self) {
        let mut order = Vec::new();
        let reports = &mut self.reports;
        let ran = self.graph.run(at(self.second), &mut |computed| {
            let found = match computed.outcome {
                Ok(value) => Ok(value.as_f64().expect("a number")),
                Err(unknown) => Err(unknown.to_string()),
            };
            let polled_at = computed.checked_at.as_nanos() / 1_000_000_000;
            let topic = computed.topic.to_string();
            let before = reports.insert(topic.clone(), (found.clone(), polled_at));
            let same = before.as_ref().is_some_and(|(before, _)| *before == found);
            assert_eq!(same, !computed.changed, "{topic} was {before:?} and is {found:?}");
            order.push(computed.id);
        });
        assert!(ran.evaluated <= self.model.insights.len(), "one was evaluated twice");
        self.check_order(&order);
        self.compare();
        self.tally.0 += self.reports.values().filter(|(found, _)| found.is_ok()).count();
        self.tally.1 += self.reports.len();
        let again = self.graph.run(at(self.second), &mut |computed| {
            panic!("{} was reported twice", computed.topic);
        });
        assert_eq!((again.evaluated, again.changed), (0, 0), "nothing is left to do");
        self.second += self.random.below(3) as i64;
    }

    /// Each insight comes once, and after its inputs.
    fn check_order(&self, order: &[VertexId]) {
        let mut later: HashSet<VertexId> = order.iter().copied().collect();
        assert_eq!(later.len(), order.len(), "an insight was reported twice");
        for &id in order {
            later.remove(&id);
            for input in self.graph.view(id).expect("it is there").inputs() {
                for below in input.matched() {
                    assert!(!later.contains(&below.id()), "{} came too late", below.topic());
                }
            }
        }
    }

    fn compare(&self) {
        let expected = self.model.expected(self.second);
        assert_eq!(self.graph.len(), self.model.facts.len() + expected.len());
        for (topic, expected) in &expected {
            let (found, polled_at) = &self.reports[topic];
            self.compare_one(topic, expected, found, *polled_at);
        }
        let heights = self.model.heights().expect("no cycle");
        for (topic, height) in heights {
            let view = self.graph.view(self.ids[topic]).expect("it is there");
            assert_eq!(usize::from(view.height()), height, "height of {topic}");
        }
    }

    fn compare_one(
        &self,
        topic: &str,
        expected: &Expected,
        found: &Result<f64, String>,
        polled_at: i64,
    ) {
        let view = self.graph.view(self.ids[topic]).expect("it is there");
        match (&expected.found, found) {
            (Ok(expected), Ok(found)) => assert!(
                (expected - found).abs() < 1e-9,
                "{topic} is {found}, and should be {expected}"
            ),
            // Any reason is accepted if the model does not know the reason.
            (Err(why), Err(_)) if why.is_empty() => {}
            (expected, found) => assert_eq!(expected, found, "{topic}"),
        }
        if let Some(expected) = expected.polled_at {
            assert_eq!(polled_at, expected, "{topic}: time of the last poll");
            let oldest = view.oldest().expect("one is the oldest");
            let oldest = self.graph.view(oldest).expect("it is there");
            let says = oldest.checked_at().as_nanos() / 1_000_000_000;
            assert_eq!(says, expected, "{topic}: {} is not the oldest", oldest.topic());
        } else {
            assert_eq!(view.oldest(), None, "{topic}");
        }
    }
}

impl Wanted {
    fn input(&self) -> Input {
        Input {
            name: self.pattern.clone(),
            pattern: self.pattern.clone(),
            unit: self.unit,
            needed: self.needed,
        }
    }
}
