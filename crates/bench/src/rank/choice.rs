//! The choice of clients among replicas, in the simulator.

use skopos_steer::rank::Settings;
use skopos_steer::simulate::{
    JUDGING, MS, Outcome, Peer, SCENARIOS, Scenario, Shape, TUNING, simulate,
};

use crate::plan::Plan;
use crate::report::{Better, Figure, Row};

const LOADS: [f64; 3] = [0.5, 0.7, 0.9];

/// Length of a simulated run: enough requests for a 99th percentile, and several failures.
const LENGTH: u64 = 5_000 * MS;

/// Length of a short run, which only shows that it works.
const SHORT: u64 = 1_000 * MS;

/// Simulates all cases. A short run has the seeds for tuning, so that it can be run often.
pub(super) fn measure(plan: &Plan) -> Vec<Row> {
    let seeds: &[u64] = if plan.is_short { &TUNING } else { &JUDGING };
    let length = if plan.is_short { SHORT } else { LENGTH };
    let mut rows = Vec::new();
    for scenario in SCENARIOS {
        for load in LOADS {
            plan.say(&format!("{} at a load of {load} …", name(scenario)));
            rows.push(row(scenario, load, length, seeds));
        }
    }
    rows
}

fn row(scenario: Scenario, load: f64, length: u64, seeds: &[u64]) -> Row {
    let shape = Shape { length, ..Shape::new(load, scenario) };
    let settings = Settings { clients: shape.clients as f64, ..Settings::default() };
    let each = |peer| -> Vec<f64> {
        let p99 = |seed: &u64| p99(&simulate(&shape, peer, *seed));
        seeds.iter().map(p99).collect()
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let ours = each(Peer::Skopos(settings));
    let peers = [
        ("round robin", Peer::RoundRobin),
        ("random of two", Peer::RandomOfTwo),
        ("C3", Peer::C3),
        ("Prequal", Peer::Prequal),
    ];
    let case = format!("choose, {} at {load}", name(scenario));
    let row = Row::new(case, "p99", "ms", mean(&ours), Better::Lower).rounds("Skopos", &ours);
    let row = peers.into_iter().fold(row, |row, (name, peer)| {
        let theirs = each(peer);
        row.peer(name, Figure::Known(mean(&theirs))).rounds(name, &theirs)
    });
    // Neither is a peer: reports come with responses of servers that send them, and the oracle knows every queue.
    row.beside("with reports", Figure::Known(mean(&each(Peer::SkoposReports(settings)))))
        .beside("oracle", Figure::Known(mean(&each(Peer::Oracle))))
}

fn p99(outcome: &Outcome) -> f64 {
    outcome.quantile(0.99) as f64 / MS as f64
}

fn name(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Steady => "steady",
        Scenario::Failures => "failures",
        Scenario::Gray => "gray failures",
        Scenario::Crowd => "a flash crowd",
        Scenario::Mixed => "mixed",
    }
}
