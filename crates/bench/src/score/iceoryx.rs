//! The latest value beside the blackboard of iceoryx2, as the program `skopos-peers-shm` of `bench/peers-shm` measures it.
//!
//! The program has a bare seqlock too, in the same run: its numbers are not compared with those of another program.

use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use skopos_term::Failure;

use super::bench::Bench;
use crate::child::finish;
use crate::programs;
use crate::report::{Better, Figure, Report, Row};

/// The name of iceoryx2 in the rows.
const ICEORYX: &str = "iceoryx2";
/// The name of the seqlock in the rows.
const SEQLOCK: &str = "seqlock";
/// The names of the variants in the report of the program.
const NUMBER: &str = "skopos, number";
const BOARD: &str = "iceoryx2 blackboard";

/// The cases of the program.
const CASES: [&str; 3] =
    ["read the latest value, warm", "read the latest value, cold", "publish with a given time"];

/// Time for one round: several times what a busy machine takes.
const ROUND: Duration = Duration::from_secs(60);

/// The report of the program, as far as it is used here.
#[derive(Deserialize)]
struct Found {
    iceoryx2: String,
    rows: Vec<Variant>,
}

/// A variant in one case.
#[derive(Deserialize)]
struct Variant {
    case: String,
    name: String,
    ns: Middle,
    ns_rounds: Vec<f64>,
}

/// A median; its interval stays in the report of the program.
#[derive(Deserialize)]
struct Middle {
    median: f64,
}

/// Adds a row for each case, which is unknown if the program is absent or fails.
pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> Result<(), Failure> {
    let found = run(bench)?;
    if let Ok(found) = &found {
        report.note(format!(
            "beside iceoryx2 {}: all variants in one process, in turns; handles are kept",
            found.iceoryx2
        ));
    }
    report.add(CASES.map(|case| row(case, &found)));
    Ok(())
}

/// Runs the program; the inner error is the reason why its numbers are unknown.
fn run(bench: &Bench<'_>) -> Result<Result<Found, String>, Failure> {
    let Ok(program) = programs::peers_shm() else {
        return Ok(
            Err("skopos-peers-shm is not built; `scripts/bench score` builds it".to_owned()),
        );
    };
    let dir = bench.scratch.dir("iceoryx2")?;
    let rounds = u32::try_from(bench.plan.rounds).unwrap_or(u32::MAX);
    let mut command = Command::new(program);
    command.arg(rounds.to_string());
    let text = finish(&mut command, &dir, ROUND.saturating_mul(rounds));
    Ok(text.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string())))
}

fn row(case: &str, found: &Result<Found, String>) -> Row {
    let variant = |name: &str| match found {
        Ok(found) => found
            .rows
            .iter()
            .find(|row| row.case == case && row.name == name)
            .ok_or_else(|| format!("skopos-peers-shm has no `{name}`")),
        Err(reason) => Err(reason.clone()),
    };
    let figure = |name: &str| match variant(name) {
        Ok(variant) => Figure::Known(variant.ns.median),
        Err(reason) => Figure::Unknown(reason),
    };
    let mut row =
        Row::of(format!("beside iceoryx2, {case}"), "number", "ns", figure(NUMBER), Better::Lower)
            .peer(SEQLOCK, figure(SEQLOCK))
            .peer(ICEORYX, figure(BOARD));
    for (name, key) in [(NUMBER, "skopos"), (SEQLOCK, SEQLOCK), (BOARD, ICEORYX)] {
        if let Ok(variant) = variant(name) {
            row = row.rounds(key, &variant.ns_rounds);
        }
    }
    row
}
