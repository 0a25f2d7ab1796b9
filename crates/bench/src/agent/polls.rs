//! The cost of each sensor's poll, from the facts that the agent publishes about itself.

use std::collections::BTreeMap;

use skopos_model::TopicPattern;
use skopos_shm::{Segment, Vertex};

use crate::report::{Better, Goal, Row};
use skopos_term::Failure;

/// The counters of every sensor.
pub(super) struct Polls {
    sensors: BTreeMap<String, Counters>,
}

struct Counters {
    cpu_seconds: Vertex,
    polls: Vertex,
    at_start: (f64, f64),
}

/// The growth of the counters over a window.
pub(super) struct Costs {
    /// Mean cost of a poll in microseconds, for each sensor that was polled.
    each: BTreeMap<String, f64>,
    /// Number of sensors.
    pub(super) sensors: usize,
    /// Number of polls of all sensors together.
    pub(super) polls: f64,
}

impl Polls {
    /// Reads the counters of every sensor for the first time.
    pub(super) fn start(segment: &Segment) -> Result<Self, Failure> {
        let polls = select(segment, "polls_total")?;
        let mut sensors = BTreeMap::new();
        for (name, cpu_seconds) in select(segment, "poll_cpu_seconds_total")? {
            let Some(polls) = polls.get(&name).cloned() else { continue };
            let at_start = (value(&cpu_seconds)?, value(&polls)?);
            sensors.insert(name, Counters { cpu_seconds, polls, at_start });
        }
        if sensors.is_empty() {
            return Err(Failure::new("the agent does not publish facts about its sensors"));
        }
        Ok(Self { sensors })
    }

    /// A vertex that changes at every tick.
    pub(super) fn any(segment: &Segment) -> Result<Vertex, Failure> {
        let mut all = select(segment, "polls_total")?;
        let first = all.pop_first().map(|(_, vertex)| vertex);
        first.ok_or_else(|| Failure::new("the agent does not publish facts about its sensors"))
    }

    /// Reads the counters again.
    pub(super) fn stop(self) -> Result<Costs, Failure> {
        let mut costs = Costs { each: BTreeMap::new(), sensors: self.sensors.len(), polls: 0.0 };
        for (name, counters) in self.sensors {
            let cpu = value(&counters.cpu_seconds)? - counters.at_start.0;
            let polls = value(&counters.polls)? - counters.at_start.1;
            if polls > 0.0 {
                costs.each.insert(name, cpu / polls * 1e6);
                costs.polls += polls;
            }
        }
        Ok(costs)
    }
}

/// The vertices `NODE/self/sensor/NAME/metric`, by name.
fn select(segment: &Segment, metric: &str) -> Result<BTreeMap<String, Vertex>, Failure> {
    let pattern = TopicPattern::new(&format!("*/self/sensor/*/{metric}"))?;
    let name = |vertex: &Vertex| vertex.topic().as_str().split('/').nth(3).map(str::to_owned);
    Ok(segment
        .vertices()
        .into_iter()
        .filter(|vertex| pattern.matches(vertex.topic()))
        .filter_map(|vertex| Some((name(&vertex)?, vertex)))
        .collect())
}

fn value(vertex: &Vertex) -> Result<f64, Failure> {
    Ok(vertex.latest()?.as_f64().unwrap_or(f64::NAN))
}

impl Costs {
    /// The rows of all sensors together and of each.
    pub(super) fn rows(&self) -> Vec<Row> {
        let row =
            |metric: &str, micros| Row::new("cost of a poll", metric, "µs", micros, Better::Lower);
        let all = row("all sensors together", self.each.values().sum()).goal(Goal::AtMost(500.0));
        let mut each: Vec<(&String, f64)> =
            self.each.iter().map(|(name, cost)| (name, *cost)).collect();
        each.sort_by(|a, b| b.1.total_cmp(&a.1));
        std::iter::once(all).chain(each.into_iter().map(|(name, cost)| row(name, cost))).collect()
    }
}
