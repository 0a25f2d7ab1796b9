//! `skopos-bench estimate`: the memory that tasks hold and do not use, by the method that chooses
//! their allocation.
//!
//! The workload comes from [`skopos_store::replay`], with the moments of Table 5 of Juve et al. All
//! methods choose from the history of the first tasks, and the last half tests their choices.

use skopos_store::estimate::{MAX_RISK, Minimize, Record, estimate};
use skopos_store::replay::{
    CPU, Cost, MEMORY, Shape, TASKS, Task, WALL, moments, replay, workload,
};

use super::machine::Machine;
use super::report::{Better, Figure, Report, Row};
use skopos_term::Failure;

const SEED: u64 = 1;

/// Number of records that are known at the time of the choice.
const HISTORIES: [usize; 4] = [10, 100, 1_000, TASKS / 2];

/// The choices of a user without a method.
const MAXIMUM: &str = "maximum ever";
const SPREAD: &str = "mean + 2 sigma";

pub(super) fn run() -> Result<Report, Failure> {
    let mut report = Report::new("estimate", Machine::this());
    report.note(format!(
        "{TASKS} tasks made from seed {SEED}, with the moments of Table 5 of Juve et al.; the \
         tasks themselves are not published. Memory is independent of time. The kurtosis is the \
         excess. Each choice is made from the first tasks and tried on the last {}.",
        TASKS - TASKS / 2
    ));
    report.note(
        "A task that needs more than it was first given is run again with the maximum of the \
         history; if that, too, is too little, with twice as much until it is enough. An attempt \
         that fails does so at its end."
            .to_owned(),
    );
    let tasks = workload(SEED);
    shape(&mut report, "wall time", WALL, 1.0, tasks.iter().map(|t| t.wall_seconds));
    shape(&mut report, "processor time", CPU, 1.0, tasks.iter().map(|t| t.cpu_seconds));
    shape(&mut report, "resident memory", MEMORY, 1e6, tasks.iter().map(|t| t.memory_bytes));
    let record = |t: &Task| Record { value: t.memory_bytes, seconds: t.wall_seconds };
    let records: Vec<Record> = tasks.iter().map(record).collect();
    let future = &records[TASKS / 2..];
    for size in HISTORIES {
        choices(&mut report, &records[..size], future);
    }
    Ok(report)
}

/// The moments of the tasks, beside those of the paper.
fn shape(
    report: &mut Report,
    of: &str,
    paper: Shape,
    scale: f64,
    values: impl Iterator<Item = f64>,
) {
    let found = moments(values);
    let rows = [
        ("mean", found.mean().map(|v| v / scale), paper.mean / scale),
        ("deviation", found.deviation().map(|v| v / scale), paper.deviation / scale),
        ("skewness", found.skewness(), paper.skewness),
        ("kurtosis", found.kurtosis(), paper.kurtosis),
    ];
    for (what, value, paper) in rows {
        let unit = match what {
            "mean" | "deviation" if scale > 1.0 => "MB",
            "mean" | "deviation" => "s",
            _ => "",
        };
        let row = Row::new(of, what, unit, value.unwrap_or(f64::NAN), Better::Neither);
        report.add([row.peer("paper", Figure::Known(paper))]);
    }
}

fn choices(report: &mut Report, past: &[Record], future: &[Record]) {
    let (Some(waste), Some(free)) =
        (estimate(past, Minimize::Waste, MAX_RISK), estimate(past, Minimize::Waste, 1.0))
    else {
        return;
    };
    let known = moments(past.iter().map(|r| r.value));
    let far = known.mean().unwrap_or(0.0) + 2.0 * known.deviation().unwrap_or(0.0);
    let maximum = waste.maximum;
    let ours = replay(future, waste.allocation, maximum);
    let others = [
        (MAXIMUM, replay(future, maximum, maximum)),
        (SPREAD, replay(future, far, maximum.max(far))),
    ];
    let case = format!("after {} tasks", past.len());
    let mut add = |metric: &str, unit, better, of: &dyn Fn(&Cost) -> f64| {
        let row = Row::new(&case, metric, unit, of(&ours), better);
        report.add([others.iter().fold(row, |row, (who, c)| row.peer(who, Figure::Known(of(c))))]);
    };
    add("first allocation", "MB", Better::Neither, &|c| c.allocation / 1e6);
    add("held and not used", "%", Better::Lower, &|c| 100.0 * c.waste_share);
    add("held for a task", "GB s", Better::Lower, &|c| c.held / 1e9);
    add("run twice", "%", Better::Neither, &|c| 100.0 * c.retried);
    add("beyond the maximum", "tasks", Better::Neither, &|c| c.beyond as f64);
    let cost = replay(future, free.allocation, maximum);
    for (what, value) in [("held and not used", cost.waste_share), ("run twice", cost.retried)] {
        let metric = format!("{what}, chosen at any risk");
        report.add([Row::new(&case, metric, "%", 100.0 * value, Better::Neither)]);
    }
    let bound = 100.0 * waste.risk_bound;
    let row = Row::new(&case, "run twice, as estimated", "%", 100.0 * waste.risk, Better::Neither);
    report.add([row]);
    let row = Row::new(&case, "run twice, its bound (95 %)", "%", bound, Better::Neither);
    report.add([row]);
}
