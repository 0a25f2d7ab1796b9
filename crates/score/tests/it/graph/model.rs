//! A model of the graph without any memory: it computes everything from the facts, each time.

use std::collections::{BTreeMap, BTreeSet};

use skopos_model::{TopicPattern, Unit};
use skopos_score::graph::MAX_HEIGHT;

/// The outcome of a vertex: a number, or the reason why it is unknown; `None` before the first.
pub(super) type Found = Option<Result<f64, String>>;

/// A topic that matches an input, its outcome, and the time of its last poll.
type Stood<'a> = (&'a str, Found, Option<i64>);

#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub(super) unit: Unit,
    found: Found,
    polled_at: i64,
    before: Option<(i64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Formula {
    /// The sum of all numbers of all inputs.
    Sum,
    /// The rate of the first topic of the first input, which is a fact.
    Rate,
}

#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) pattern: String,
    pub(super) unit: Option<Unit>,
    pub(super) needed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Computed {
    pub(super) formula: Formula,
    pub(super) inputs: Vec<Wanted>,
    /// In seconds.
    pub(super) max_age: Option<i64>,
}

/// The expected state of an insight.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expected {
    /// `Err` with an empty text stands for any reason.
    pub(super) found: Result<f64, String>,
    /// The time at which the oldest needed input was polled; `None` if none is known.
    pub(super) polled_at: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) facts: BTreeMap<String, Fact>,
    pub(super) insights: BTreeMap<String, Computed>,
}

impl Fact {
    pub(super) fn new(unit: Unit) -> Self {
        Self { unit, found: None, polled_at: 0, before: None }
    }

    pub(super) fn set(&mut self, second: i64, found: Result<f64, String>) {
        let second = second.max(self.polled_at);
        match (&self.found, &found) {
            (Some(Ok(_)), Ok(_)) if second == self.polled_at => {}
            (Some(Ok(before)), Ok(_)) => self.before = Some((self.polled_at, *before)),
            _ => self.before = None,
        }
        self.polled_at = second;
        self.found = Some(found);
    }

    fn rate(&self) -> Option<f64> {
        let (then, before) = self.before?;
        match self.found {
            Some(Ok(now)) => Some((now - before) / (self.polled_at - then) as f64),
            _ => None,
        }
    }
}

impl Model {
    pub(super) fn has(&self, topic: &str) -> bool {
        self.facts.contains_key(topic) || self.insights.contains_key(topic)
    }

    /// Returns the matching topics in order; all insights are plain numbers.
    pub(super) fn matching(&self, own: &str, wanted: &Wanted) -> Vec<(&str, Unit)> {
        let pattern = TopicPattern::new(&wanted.pattern).expect("a pattern");
        let facts = self.facts.iter().map(|(topic, fact)| (topic.as_str(), fact.unit));
        let insights = self.insights.keys().map(|topic| (topic.as_str(), Unit::NONE));
        let mut found: Vec<_> = if pattern.as_topic().is_some() {
            // The same, but faster.
            let topic = pattern.as_str();
            let fact = self.facts.get_key_value(topic).map(|(t, fact)| (t.as_str(), fact.unit));
            let insight =
                || self.insights.get_key_value(topic).map(|(t, _)| (t.as_str(), Unit::NONE));
            fact.or_else(insight).into_iter().collect()
        } else {
            facts.chain(insights).filter(|(topic, _)| pattern.matches_str(topic)).collect()
        };
        found.retain(|(topic, _)| *topic != own);
        found.sort_unstable_by_key(|(topic, _)| *topic);
        found
    }

    /// Returns true if the graph may accept `topic` as an insight.
    pub(super) fn admits(&self, topic: &str, computed: &Computed) -> bool {
        if self.has(topic) {
            return false;
        }
        let fits = |wanted: &Wanted| {
            let other = |(_, unit): &(&str, Unit)| wanted.unit.is_some_and(|u| u != *unit);
            !self.matching(topic, wanted).iter().any(other)
        };
        if !computed.inputs.iter().all(fits) {
            return false;
        }
        let mut with = self.clone();
        with.insights.insert(topic.to_owned(), computed.clone());
        with.heights().is_some_and(|heights| heights.values().all(|&h| h <= MAX_HEIGHT))
    }

    /// Returns the height of each insight; `None` if there is a cycle.
    pub(super) fn heights(&self) -> Option<BTreeMap<&str, usize>> {
        let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (topic, computed) in &self.insights {
            let inputs = computed.inputs.iter().flat_map(|wanted| self.matching(topic, wanted));
            let insights =
                inputs.map(|(input, _)| input).filter(|i| self.insights.contains_key(*i));
            below.insert(topic, insights.collect());
        }
        let mut heights: BTreeMap<&str, usize> = BTreeMap::new();
        loop {
            let before = heights.len();
            for (topic, inputs) in &below {
                let known: Option<Vec<usize>> =
                    inputs.iter().map(|input| heights.get(input).copied()).collect();
                if let Some(known) = known {
                    heights.insert(topic, 1 + known.into_iter().max().unwrap_or(0));
                }
            }
            if heights.len() == below.len() {
                return Some(heights);
            }
            if heights.len() == before {
                return None;
            }
        }
    }

    /// Returns the expected state of every insight at `now`.
    pub(super) fn expected(&self, now: i64) -> BTreeMap<String, Expected> {
        let mut done = BTreeMap::new();
        for topic in self.insights.keys() {
            self.expect(topic, now, &mut done);
        }
        done
    }

    fn expect(&self, topic: &str, now: i64, done: &mut BTreeMap<String, Expected>) -> Expected {
        if let Some(known) = done.get(topic) {
            return known.clone();
        }
        let expected = self.compute(topic, now, done);
        done.insert(topic.to_owned(), expected.clone());
        expected
    }

    fn compute(&self, topic: &str, now: i64, done: &mut BTreeMap<String, Expected>) -> Expected {
        let computed = &self.insights[topic];
        let mut inputs = Vec::new();
        let mut conflict = false;
        for wanted in &computed.inputs {
            let mut cells = Vec::new();
            for (input, unit) in self.matching(topic, wanted) {
                if wanted.unit.is_some_and(|wanted| wanted != unit) {
                    conflict = true;
                    continue;
                }
                let (found, polled_at) = match self.facts.get(input) {
                    Some(fact) => (fact.found.clone(), Some(fact.polled_at)),
                    None => {
                        let below = self.expect(input, now, done);
                        (Some(below.found), below.polled_at)
                    }
                };
                cells.push((input, found, polled_at));
            }
            inputs.push((wanted, cells));
        }
        let any_needed = inputs.iter().any(|(wanted, _)| wanted.needed);
        let polled_at = inputs
            .iter()
            .filter(|(wanted, _)| wanted.needed || !any_needed)
            .flat_map(|(_, cells)| cells)
            .filter(|(_, found, _)| matches!(found, Some(Ok(_))))
            .filter_map(|(_, _, polled_at)| *polled_at)
            .min();
        let found = if conflict {
            Err(String::new())
        } else {
            self.outcome(computed, &inputs, polled_at, now)
        };
        Expected { found, polled_at }
    }

    fn outcome(
        &self,
        computed: &Computed,
        inputs: &[(&Wanted, Vec<Stood<'_>>)],
        polled_at: Option<i64>,
        now: i64,
    ) -> Result<f64, String> {
        let number = |topic: &str, found: &Found| match found {
            Some(Ok(number)) => Ok(*number),
            // The reason of a conflict further down is not known here.
            Some(Err(why)) if why.is_empty() => Err(String::new()),
            Some(Err(why)) => Err(format!("{topic} is unknown: {why}")),
            None => Err(format!("{topic} has no value yet")),
        };
        for (wanted, cells) in inputs.iter().filter(|(wanted, _)| wanted.needed) {
            let Some((first, found, _)) = cells.first() else {
                return Err(format!("no {}", wanted.pattern));
            };
            if cells.iter().all(|(_, found, _)| !matches!(found, Some(Ok(_)))) {
                return number(first, found);
            }
        }
        if let (Some(max_age), Some(polled_at)) = (computed.max_age, polled_at)
            && now - polled_at > max_age
        {
            return Err(String::new());
        }
        if computed.formula == Formula::Rate {
            let first = inputs[0].1.first();
            return first.and_then(|(topic, ..)| self.facts[*topic].rate()).ok_or_else(String::new);
        }
        let (mut sum, mut any) = (0.0, false);
        for (wanted, cells) in inputs {
            for (topic, found, _) in cells {
                match number(topic, found) {
                    Ok(number) => (sum, any) = (sum + number, true),
                    Err(why) if wanted.needed => return Err(why),
                    Err(_) => {}
                }
            }
        }
        any.then_some(sum).ok_or_else(|| "nothing is known".to_owned())
    }
}
