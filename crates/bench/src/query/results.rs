//! The measurements of all stores, and their rows.

use std::collections::BTreeMap;

use super::load::Slice;
use super::names::{IN_PROCESS, LISTENERS, SOCKET};
use super::question::MAX_COMPLEXITY;
use super::settings::{CLIENTS, COMPLEXITIES, NODES, PAPERS_COMPLEXITY, Setting};
use crate::report::{Better, Figure, Goal, Row};
use crate::stats::{Latencies, median};

/// The greatest slowdown by more nodes that counts as flat.
const FLAT: f64 = 1.25;

/// All rounds of one setting.
struct Rounds {
    latencies: Latencies,
    p50: Vec<f64>,
    per_second: Vec<f64>,
}

/// All measurements.
#[derive(Default)]
pub(super) struct Results {
    rounds: BTreeMap<(&'static str, Setting), Rounds>,
    failed: BTreeMap<&'static str, String>,
}

impl Results {
    /// Adds a round. A store that fails once has no numbers.
    pub(super) fn add(&mut self, name: &'static str, at: Setting, result: Result<Slice, String>) {
        let slice = match result {
            Ok(slice) => slice,
            Err(why) => return self.fail(name, &why),
        };
        let rounds = self.rounds.entry((name, at)).or_insert_with(|| Rounds {
            latencies: Latencies::new(),
            p50: Vec::new(),
            per_second: Vec::new(),
        });
        rounds.p50.push(micros(&slice.latencies, 50.0));
        rounds.per_second.push(slice.per_second);
        rounds.latencies.add(&slice.latencies);
    }

    /// Discards the numbers of a store, for this reason.
    pub(super) fn fail(&mut self, name: &'static str, why: &str) {
        self.failed.entry(name).or_insert_with(|| why.to_owned());
    }

    fn figure(&self, store: &str, at: Setting, of: impl Fn(&Rounds) -> f64) -> Figure {
        if let Some(why) = self.failed.get(store) {
            return Figure::Unknown(why.clone());
        }
        let mut all = self.rounds.iter();
        match all.find(|((name, setting), _)| *name == store && *setting == at) {
            Some((_, rounds)) => Figure::Known(of(rounds)),
            None => Figure::Unknown("it was not measured".to_owned()),
        }
    }

    /// All rows of all listeners.
    pub(super) fn rows(&self) -> Vec<Row> {
        LISTENERS.iter().flat_map(|(name, peers)| self.of_listener(name, peers)).collect()
    }

    fn of_listener(&self, listener: &'static str, peers: &[&'static str]) -> Vec<Row> {
        let mut rows = Vec::new();
        let nodes = NODES[NODES.len() - 1];
        let row = |metric: String, unit, better, figure: &dyn Fn(&str) -> Figure| {
            let row = Row::of(listener, metric, unit, figure(listener), better);
            peers.iter().fold(row, |row, peer| row.peer(peer, figure(peer)))
        };
        let latency = |what: String, at, percent: f64| {
            let figure =
                |store: &str| self.figure(store, at, |rounds| micros(&rounds.latencies, percent));
            row(format!("{what}, p{percent:.0}"), "µs", Better::Lower, &figure)
        };
        for complexity in COMPLEXITIES {
            let at = Setting { complexity, nodes, clients: 1 };
            let what = format!("{} of {nodes} nodes", count(complexity, "table"));
            let p50 = latency(what.clone(), at, 50.0);
            let goal = goal(listener).filter(|_| complexity == MAX_COMPLEXITY);
            rows.push(goal.into_iter().fold(p50, Row::goal));
            rows.push(latency(what, at, 99.0));
        }
        let of_nodes = |nodes| Setting { complexity: PAPERS_COMPLEXITY, nodes, clients: 1 };
        for nodes in NODES {
            let what = format!("{PAPERS_COMPLEXITY} tables of {}", count(nodes, "node"));
            rows.push(latency(what, of_nodes(nodes), 50.0));
        }
        let growth = |store: &str| {
            let p50 = |nodes| self.figure(store, of_nodes(nodes), |r| micros(&r.latencies, 50.0));
            match (p50(nodes), p50(NODES[0])) {
                (Figure::Known(all), Figure::Known(one)) => Figure::Known(all / one),
                (Figure::Unknown(why), _) | (_, Figure::Unknown(why)) => Figure::Unknown(why),
            }
        };
        let metric = format!("{PAPERS_COMPLEXITY} tables, p50 of {nodes} nodes ÷ of 1");
        rows.push(row(metric, "times", Better::Neither, &growth).goal(Goal::AtMost(FLAT)));
        let of_clients = |clients| Setting { complexity: MAX_COMPLEXITY, nodes, clients };
        let rate = |store: &str, clients| {
            self.figure(store, of_clients(clients), |r| median(&r.per_second))
        };
        for clients in CLIENTS {
            let what = format!("{MAX_COMPLEXITY} tables, {}", count(clients, "client"));
            if clients > 1 {
                rows.push(latency(what.clone(), of_clients(clients), 50.0));
                rows.push(latency(what.clone(), of_clients(clients), 99.0));
            }
            let rates = |store: &str| rate(store, clients);
            rows.push(row(format!("{what}, rate"), "1/s", Better::Higher, &rates));
        }
        let most = |store: &str| {
            let rates = CLIENTS.map(|clients| rate(store, clients));
            rates.into_iter().reduce(greater).unwrap_or(Figure::Unknown(String::new()))
        };
        let best = row(format!("{MAX_COMPLEXITY} tables, best rate"), "1/s", Better::Higher, &most);
        let goal = (listener == IN_PROCESS).then_some(Goal::AtLeast(50_000.0));
        rows.push(goal.into_iter().fold(best, Row::goal));
        rows
    }
}

/// The goal of the most complex query, over all nodes.
fn goal(listener: &str) -> Option<Goal> {
    match listener {
        IN_PROCESS => Some(Goal::AtMost(20.0)),
        SOCKET => Some(Goal::AtMost(100.0)),
        _ => None,
    }
}

fn greater(one: Figure, other: Figure) -> Figure {
    match (one, other) {
        (Figure::Known(one), Figure::Known(other)) => Figure::Known(one.max(other)),
        (unknown @ Figure::Unknown(_), _) | (_, unknown) => unknown,
    }
}

fn micros(latencies: &Latencies, percent: f64) -> f64 {
    latencies.percentile(percent) / 1e3
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::super::names::{DUCKDB, SQLITE};
    use super::*;

    fn slice(nanos: u64) -> Result<Slice, String> {
        let mut latencies = Latencies::new();
        latencies.record(nanos);
        Ok(Slice { latencies, per_second: 1e9 / nanos as f64 })
    }

    fn json(found: &Results, metric: &str) -> serde_json::Value {
        let rows = serde_json::to_value(found.rows()).expect("rows are plain");
        let all = rows.as_array().expect("a list");
        let of = |row: &&serde_json::Value| row["case"] == IN_PROCESS && row["metric"] == metric;
        all.iter().find(of).unwrap_or_else(|| panic!("no row {metric}")).clone()
    }

    #[test]
    fn rows_have_numbers_or_reasons() {
        let mut found = Results::default();
        let at = |nodes| Setting { complexity: PAPERS_COMPLEXITY, nodes, clients: 1 };
        for _ in 0..3 {
            found.add(IN_PROCESS, at(1), slice(4000));
            found.add(IN_PROCESS, at(16), slice(5000));
            found.add(SQLITE, at(1), slice(8000));
        }
        found.add(DUCKDB, at(1), Err("not installed".to_owned()));
        let row = json(&found, "3 tables of 1 node, p50");
        assert_eq!(row["ratio"], 2.0);
        assert_eq!(row["peers"][DUCKDB], "unknown: not installed");
        let growth = json(&found, "3 tables, p50 of 16 nodes ÷ of 1");
        assert_eq!((&growth["value"], &growth["met"]), (&1.25.into(), &true.into()));
        assert_eq!(growth["peers"][SQLITE], "unknown: it was not measured");
        let best = json(&found, "8 tables, best rate");
        assert_eq!((&best["goal"], &best["met"]), (&"≥ 50000".into(), &serde_json::Value::Null));
    }
}
