//! The rows of the report.

use super::cells::{Cell, Variant};
use super::client::Ran;
use super::turns::{MOST_FAILURES, Turn};
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

/// Returns the rows of all cells in their order. A number without a turn says why there is none.
pub(super) fn rows(cells: &[Cell], turns: &[Turn]) -> Vec<Row> {
    cells.iter().flat_map(|cell| of_cell(*cell, turns)).collect()
}

/// Returns a note for each turn that failed.
pub(super) fn failures(turns: &[Turn]) -> Vec<String> {
    let failure = |turn: &Turn| {
        let why = turn.ran.as_ref().err()?;
        Some(format!("a turn failed: {}, {}: {why}", turn.cell.name(), turn.variant.name()))
    };
    turns.iter().filter_map(failure).collect()
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
    let own = |variant: Variant| {
        turns.iter().filter(move |turn| turn.cell == cell && turn.variant == variant)
    };
    let rounds = |variant: Variant| -> Vec<f64> {
        own(variant).filter_map(|turn| number(turn.ran.as_ref().ok()?)).collect()
    };
    let figure = |variant: Variant, values: &[f64]| match values.is_empty() {
        false => Figure::Known(median(values)),
        true => Figure::Unknown(reason(own(variant))),
    };
    let ours = rounds(Variant::Jar);
    let mut row = Row::of(cell.name(), metric, unit, figure(Variant::Jar, &ours), better);
    row = row.rounds(Variant::Jar.name(), &ours);
    for variant in [Variant::Stock, Variant::JarLess] {
        let values = rounds(variant);
        row = row.rounds(variant.name(), &values);
        // The jar-less mode is ours as well, so no ratio compares with it.
        row = match variant {
            Variant::Stock => row.peer(variant.name(), figure(variant, &values)),
            _ => row.beside(variant.name(), figure(variant, &values)),
        };
    }
    row
}

/// Returns the reason why the turns of a variant in a cell gave no number.
fn reason<'a>(turns: impl Iterator<Item = &'a Turn>) -> String {
    let mut reason = format!("not measured: the run ended after {MOST_FAILURES} failed turns");
    for turn in turns {
        match &turn.ran {
            Err(why) => return why.clone(),
            Ok(_) => reason = "nothing was read".to_owned(),
        }
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell = Cell { workload: 'C', delay_ms: 2.5, is_cached: true, seek_ms: 2.0 };
    const LATER: Cell = Cell { workload: 'C', delay_ms: 5.0, is_cached: true, seek_ms: 2.0 };

    fn turn(variant: Variant, ran: Result<u64, &str>) -> Turn {
        let ran = ran.map(|operations| {
            let answer = serde_json::json!({
                "operations": operations, "failures": 0, "seconds": 1.0, "p50_ms": 1.0,
                "p99_ms": 2.0, "cold_reads": [0, 0, 0], "reads": [0, 0, 0],
            });
            serde_json::from_value(answer).expect("the form of the client")
        });
        Turn { cell: CELL, variant, ran: ran.map_err(str::to_owned) }
    }

    /// Returns the row of a metric of a cell as JSON.
    fn row(turns: &[Turn], cell: Cell, metric: &str) -> serde_json::Value {
        let rows = rows(&[CELL, LATER], turns);
        let rows = rows.iter().map(|row| serde_json::to_value(row).expect("rows are plain"));
        let mut rows = rows.filter(|row| row["case"] == cell.name() && row["metric"] == metric);
        rows.next().expect("the row")
    }

    #[test]
    fn a_turn_that_failed_takes_no_other_result_away() {
        let turns = [
            turn(Variant::Stock, Ok(10)),
            turn(Variant::Jar, Ok(20)),
            turn(Variant::JarLess, Err("no severity")),
            turn(Variant::Jar, Err("no rank")),
        ];
        let speed = row(&turns, CELL, "operations a second");
        assert_eq!(speed["value"], 20.0);
        assert_eq!(speed["peers"]["stock"], 10.0);
        assert_eq!(speed["peers"]["jar-less"], "unknown: no severity");
        assert_eq!(speed["rounds"]["skopos"], serde_json::json!([20.0]));
        let share = row(&turns, CELL, "reads at the fast replica");
        assert_eq!(share["value"], "unknown: no rank", "the other turn read nothing");
        let later = row(&turns, LATER, "operations a second");
        let ended = "unknown: not measured: the run ended after 3 failed turns";
        assert_eq!((&later["value"], &later["peers"]["stock"]), (&ended.into(), &ended.into()));
        let notes = failures(&turns);
        assert_eq!(notes.len(), 2);
        assert_eq!(notes[0], "a turn failed: C, 5 ms added, cache, jar-less: no severity");
    }
}
