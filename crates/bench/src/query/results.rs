//! What was measured of whom, and the rows that it makes.

use std::collections::BTreeMap;

use super::load::Slice;
use super::question::MAX_COMPLEXITY;
use super::{CLIENTS, COMPLEXITIES, NODES, PAPERS_COMPLEXITY};
use crate::report::{Better, Figure, Goal, Row};
use crate::stats::{Latencies, median};

pub(super) const IN_PROCESS: &str = "in process";
pub(super) const SOCKET: &str = "UNIX socket";
pub(super) const HTTP: &str = "HTTP";
pub(super) const FLIGHT: &str = "Flight SQL";

pub(super) const SQLITE: &str = "sqlite";
pub(super) const DUCKDB: &str = "duckdb";
pub(super) const REDIS: &str = "redis";
pub(super) const POSTGRES: &str = "postgresql";
pub(super) const PROMETHEUS: &str = "prometheus";
pub(super) const VICTORIA: &str = "victoriametrics";

/// Our doors, and who is reached in the same way.
pub(super) const DOORS: [(&str, &[&str]); 4] = [
    (IN_PROCESS, &[SQLITE, DUCKDB]),
    (SOCKET, &[REDIS, POSTGRES]),
    (HTTP, &[PROMETHEUS, VICTORIA]),
    (FLIGHT, &[]),
];

/// By how much more nodes may slow a query down to be called flat.
const FLAT: f64 = 1.25;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setting {
    pub(super) complexity: usize,
    pub(super) nodes: usize,
    pub(super) clients: usize,
}

/// All rounds of one setting.
struct Rounds {
    latencies: Latencies,
    p50: Vec<f64>,
    per_second: Vec<f64>,
}

/// What was measured.
#[derive(Default)]
pub(super) struct Found {
    rounds: BTreeMap<(&'static str, Setting), Rounds>,
    failed: BTreeMap<&'static str, String>,
}

impl Found {
    /// Takes in one round; who failed once has no numbers.
    pub(super) fn take(&mut self, who: &'static str, at: Setting, result: Result<Slice, String>) {
        let slice = match result {
            Ok(slice) => slice,
            Err(why) => return self.fails(who, &why),
        };
        let rounds = self.rounds.entry((who, at)).or_insert_with(|| Rounds {
            latencies: Latencies::new(),
            p50: Vec::new(),
            per_second: Vec::new(),
        });
        rounds.p50.push(micros(&slice.latencies, 50.0));
        rounds.per_second.push(slice.per_second);
        rounds.latencies.add(&slice.latencies);
    }

    /// What was measured of it says nothing.
    pub(super) fn fails(&mut self, who: &'static str, why: &str) {
        self.failed.entry(who).or_insert_with(|| why.to_owned());
    }

    fn figure(&self, who: &str, at: Setting, of: impl Fn(&Rounds) -> f64) -> Figure {
        if let Some(why) = self.failed.get(who) {
            return Figure::Unknown(why.clone());
        }
        let mut all = self.rounds.iter();
        match all.find(|((name, setting), _)| *name == who && *setting == at) {
            Some((_, rounds)) => Figure::Known(of(rounds)),
            None => Figure::Unknown("it was not measured".to_owned()),
        }
    }

    /// Every row of every door.
    pub(super) fn rows(&self) -> Vec<Row> {
        DOORS.iter().flat_map(|(door, peers)| self.of_door(door, peers)).collect()
    }

    fn of_door(&self, door: &'static str, peers: &[&'static str]) -> Vec<Row> {
        let mut rows = Vec::new();
        let nodes = NODES[NODES.len() - 1];
        let row = |metric: String, unit, better, figure: &dyn Fn(&str) -> Figure| {
            let row = Row::of(door, metric, unit, figure(door), better);
            peers.iter().fold(row, |row, peer| row.peer(peer, figure(peer)))
        };
        let latency = |what: String, at, percent: f64| {
            let figure =
                |who: &str| self.figure(who, at, |rounds| micros(&rounds.latencies, percent));
            row(format!("{what}, p{percent:.0}"), "µs", Better::Lower, &figure)
        };
        for complexity in COMPLEXITIES {
            let at = Setting { complexity, nodes, clients: 1 };
            let what = format!("{} of {nodes} nodes", count(complexity, "table"));
            let p50 = latency(what.clone(), at, 50.0);
            let goal = goal(door).filter(|_| complexity == MAX_COMPLEXITY);
            rows.push(goal.into_iter().fold(p50, Row::goal));
            rows.push(latency(what, at, 99.0));
        }
        let of_nodes = |nodes| Setting { complexity: PAPERS_COMPLEXITY, nodes, clients: 1 };
        for nodes in NODES {
            let what = format!("{PAPERS_COMPLEXITY} tables of {}", count(nodes, "node"));
            rows.push(latency(what, of_nodes(nodes), 50.0));
        }
        let growth = |who: &str| {
            let p50 = |nodes| self.figure(who, of_nodes(nodes), |r| micros(&r.latencies, 50.0));
            match (p50(nodes), p50(NODES[0])) {
                (Figure::Known(all), Figure::Known(one)) => Figure::Known(all / one),
                (Figure::Unknown(why), _) | (_, Figure::Unknown(why)) => Figure::Unknown(why),
            }
        };
        let metric = format!("{PAPERS_COMPLEXITY} tables, p50 of {nodes} nodes ÷ of 1");
        rows.push(row(metric, "times", Better::Neither, &growth).goal(Goal::AtMost(FLAT)));
        let of_clients = |clients| Setting { complexity: MAX_COMPLEXITY, nodes, clients };
        let rate =
            |who: &str, clients| self.figure(who, of_clients(clients), |r| median(&r.per_second));
        for clients in CLIENTS {
            let what = format!("{MAX_COMPLEXITY} tables, {}", count(clients, "client"));
            if clients > 1 {
                rows.push(latency(what.clone(), of_clients(clients), 50.0));
                rows.push(latency(what.clone(), of_clients(clients), 99.0));
            }
            let rates = |who: &str| rate(who, clients);
            rows.push(row(format!("{what}, rate"), "1/s", Better::Higher, &rates));
        }
        let most = |who: &str| {
            let rates = CLIENTS.map(|clients| rate(who, clients));
            rates.into_iter().reduce(greater).unwrap_or(Figure::Unknown(String::new()))
        };
        let best = row(format!("{MAX_COMPLEXITY} tables, best rate"), "1/s", Better::Higher, &most);
        let goal = (door == IN_PROCESS).then_some(Goal::AtLeast(50_000.0));
        rows.push(goal.into_iter().fold(best, Row::goal));
        rows
    }
}

/// For the most complex query, over all nodes.
fn goal(door: &str) -> Option<Goal> {
    match door {
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
    use super::*;

    fn slice(nanos: u64) -> Result<Slice, String> {
        let mut latencies = Latencies::new();
        latencies.record(nanos);
        Ok(Slice { latencies, per_second: 1e9 / nanos as f64 })
    }

    fn json(found: &Found, metric: &str) -> serde_json::Value {
        let rows = serde_json::to_value(found.rows()).expect("rows are plain");
        let all = rows.as_array().expect("a list");
        let of = |row: &&serde_json::Value| row["case"] == IN_PROCESS && row["metric"] == metric;
        all.iter().find(of).unwrap_or_else(|| panic!("no row {metric}")).clone()
    }

    #[test]
    fn rows_have_what_was_measured_and_why_not() {
        let mut found = Found::default();
        let at = |nodes| Setting { complexity: PAPERS_COMPLEXITY, nodes, clients: 1 };
        for _ in 0..3 {
            found.take(IN_PROCESS, at(1), slice(4000));
            found.take(IN_PROCESS, at(16), slice(5000));
            found.take(SQLITE, at(1), slice(8000));
        }
        found.take(DUCKDB, at(1), Err("not installed".to_owned()));
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
