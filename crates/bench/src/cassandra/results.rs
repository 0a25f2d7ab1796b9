//! The rows of the report.

use super::cells::{Cell, Variant};
use super::client::Ran;
use super::turns::Turn;
use crate::report::{Better, Figure, Goal, Row};
use crate::stats::median;

/// The method, and its limits.
pub(super) const NOTES: [&str; 5] = [
    "three nodes, the client and the disks share this machine, so throughput swings; reads per replica are what a snitch decides",
    "each turn begins with a snitch that has seen no request, as after a restart; stock learns in the first seconds of it",
    "slow replicas seek for 2 ms, unless a case says otherwise, and transfer 15 MB/s; the fast one does not seek; pages of slow ones leave memory each second",
    "added latency is that of a round trip to the fast replica; the agent ranks by measured round trips and disk reads",
    "jar-less: Cassandra's dynamic snitch with severities that a program sets by JMX from the same rank",
];

/// A number of a turn.
type Number = fn(&Ran) -> Option<f64>;

/// Returns the rows of all cells in their order.
pub(super) fn rows(turns: &[Turn]) -> Vec<Row> {
    let mut cells: Vec<Cell> = Vec::new();
    for turn in turns {
        if !cells.contains(&turn.cell) {
            cells.push(turn.cell);
        }
    }
    cells.into_iter().flat_map(|cell| of_cell(cell, turns)).collect()
}

fn of_cell(cell: Cell, turns: &[Turn]) -> Vec<Row> {
    let row = |metric, unit, better, number| of(cell, turns, (metric, unit, better), number);
    let mut rows = vec![
        row("reads at the fast replica", "%", Better::Neither, Ran::fast_percent as Number),
        row("operations a second", "1/s", Better::Higher, |ran| {
            Some(ran.operations as f64 / ran.seconds)
        }),
        row("p50 of reads", "ms", Better::Lower, |ran| Some(ran.p50_ms)),
        row("p99 of reads", "ms", Better::Lower, |ran| Some(ran.p99_ms)),
        row("failed operations", "", Better::Neither, |ran| Some(ran.failures as f64)),
    ];
    if cell.delay_ms == 0.0 {
        let metric = "reads at slow replicas, first 5 s";
        let cold = row(metric, "%", Better::Lower, Ran::cold_slow_percent as Number);
        rows.insert(1, cold.goal(Goal::AtMost(10.0)));
    }
    rows
}

/// Returns the row of a metric: the median of each variant, with its rounds.
fn of(
    cell: Cell,
    turns: &[Turn],
    (metric, unit, better): (&str, &'static str, Better),
    number: Number,
) -> Row {
    let rounds = |variant: Variant| -> Vec<f64> {
        let own = turns.iter().filter(|turn| turn.cell == cell && turn.variant == variant);
        own.filter_map(|turn| number(&turn.ran)).collect()
    };
    let figure = |values: &[f64]| match values.is_empty() {
        true => Figure::Unknown("no turn".to_owned()),
        false => Figure::Known(median(values)),
    };
    let ours = rounds(Variant::Jar);
    let mut row = Row::of(cell.name(), metric, unit, figure(&ours), better);
    row = row.rounds(Variant::Jar.name(), &ours);
    for variant in [Variant::Stock, Variant::JarLess] {
        let values = rounds(variant);
        row = row.rounds(variant.name(), &values);
        // The jar-less mode is ours as well, so no ratio compares with it.
        row = match variant {
            Variant::Stock => row.peer(variant.name(), figure(&values)),
            _ => row.beside(variant.name(), figure(&values)),
        };
    }
    row
}
