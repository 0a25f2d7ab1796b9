//! `skopos bench task`: what `skopos run` costs a task, and how true its report is, beside what one
//! would use instead (the paper's Tables 3 and 4).
//!
//! `cases` are the paper's programs, rebuilt; `watchers` is who runs them: nobody, each level of ours
//! and the peers, in turns, so that noise hits all of them.

mod cases;
mod watchers;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::cases::{CASES, Case, Truth};
use self::watchers::{Seen, WATCHERS, Watcher};
use super::Plan;
use super::child::finish;
use super::machine::Machine;
use super::report::{Better, Figure, Goal, Report, Row};
use super::scratch::Scratch;
use super::stats::median;
use crate::failure::Failure;

/// How long the compiler may take.
const COMPILE: Duration = Duration::from_secs(60);

/// A run of at least this long says something about a share of its time; of a shorter one the fixed
/// cost counts.
const LONG_SECONDS: f64 = 0.5;

/// What one watcher gave, run by run.
#[derive(Debug, Default)]
struct Runs {
    seconds: Vec<f64>,
    truths: Vec<Truth>,
    seen: Vec<Seen>,
    /// Why it does not run here.
    unknown: Option<String>,
}

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("resource_monitor", "resource_monitor", &["--version"]);
    machine.version("time", "/usr/bin/time", &["--version"]);
    machine.version("strace", "strace", &["--version"]);
    let mut report = Report::new("task", machine);
    let place = Scratch::on_disk()?;
    compile(place.path())
        .map_err(|e| Failure::new("the programs cannot be compiled").because(&e))?;
    for case in CASES {
        plan.say(&format!("{} …", case.name));
        let found = measure(plan, case, place.path());
        report.add(rows(case, &found));
    }
    report.note(format!(
        "medians of {} runs in turns; overhead: wall time beside that of the same run without a \
         monitor, start and end of the monitor included; errors against what the program says of \
         itself: getrusage, the bytes that it asked for, the memory that it touched",
        plan.rounds
    ));
    Ok(report)
}

fn compile(dir: &Path) -> Result<(), std::io::Error> {
    let source = dir.join("work.c");
    std::fs::write(&source, include_str!("../../../../../bench/task/work.c"))?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-o"]).arg(dir.join("work")).arg(&source).arg("-lm");
    finish(&mut command, dir, COMPILE).map(drop).map_err(std::io::Error::other)
}

fn measure(plan: &Plan, case: &Case, dir: &Path) -> Vec<Runs> {
    let mut found: Vec<Runs> = WATCHERS.iter().map(|_| Runs::default()).collect();
    for round in 0..plan.rounds {
        for turn in 0..WATCHERS.len() {
            // Everybody's turn comes at another time in each round.
            let at = (turn + round) % WATCHERS.len();
            let runs = &mut found[at];
            if runs.unknown.is_some() {
                continue;
            }
            match WATCHERS[at].run(case, dir) {
                Ok((seconds, truth, seen)) => {
                    runs.seconds.push(seconds);
                    runs.truths.push(truth);
                    runs.seen.push(seen);
                }
                Err(why) => runs.unknown = Some(why),
            }
        }
    }
    found
}

impl Runs {
    /// The median over its runs, or why there is none.
    fn median(&self, of: impl Fn(usize) -> Option<f64>) -> Figure {
        if let Some(why) = &self.unknown {
            return Figure::Unknown(why.clone());
        }
        let values: Option<Vec<f64>> = (0..self.seconds.len()).map(of).collect();
        match values.filter(|values| !values.is_empty()) {
            Some(values) => Figure::Known(median(&values)),
            None => Figure::Unknown("it does not say".to_owned()),
        }
    }
}

fn rows(case: &Case, found: &[Runs]) -> Vec<Row> {
    let of = |watcher: Watcher| &found[WATCHERS.iter().position(|w| *w == watcher).unwrap_or(0)];
    let bare = median(&of(Watcher::Nobody).seconds);
    let mut rows = vec![Row::new(case.name, "time without a monitor", "s", bare, Better::Neither)];
    let is_long = bare >= LONG_SECONDS || case.is_of_many();
    let overhead = |runs: &Runs| {
        runs.median(|at| {
            let more = runs.seconds[at] - bare;
            Some(if is_long { 100.0 * more / bare } else { 1e3 * more })
        })
    };
    let (what, unit) = if is_long { ("overhead", "%") } else { ("added time", "ms") };
    for (name, watcher) in
        [("level 1", Watcher::Level1), ("level 2", Watcher::Level2), ("level 3", Watcher::Level3)]
    {
        let metric = format!("{what}, {name}");
        let mut row = Row::of(case.name, metric, unit, overhead(of(watcher)), Better::Lower);
        if watcher == Watcher::Level2 {
            for (name, peer) in watchers::PEERS {
                row = row.peer(name, overhead(of(peer)));
            }
        }
        row = row
            .rounds("without", &of(Watcher::Nobody).seconds)
            .rounds("with", &of(watcher).seconds);
        let most = if is_long { case.most_percent(watcher) } else { Some(cases::MOST_FIXED_MS) };
        rows.push(most.map_or(row.clone(), |most| row.goal(Goal::AtMost(most))));
    }
    for (what, truth_of, seen_of, most) in case.checked() {
        for (name, watcher) in [
            ("level 1", Watcher::Level1),
            ("level 2", Watcher::Level2),
            ("level 3", Watcher::Level3),
        ] {
            let error = |runs: &Runs| {
                runs.median(|at| {
                    let truth = truth_of(&runs.truths[at]);
                    Some(100.0 * (seen_of(&runs.seen[at])? - truth).abs() / truth)
                })
            };
            let metric = format!("error of {what}, {name}");
            let mut row = Row::of(case.name, metric, "%", error(of(watcher)), Better::Lower);
            if watcher == Watcher::Level2 {
                for (name, peer) in watchers::PEERS {
                    row = row.peer(name, error(of(peer)));
                }
            }
            let row = if watcher == Watcher::Level1 { row } else { row.goal(Goal::AtMost(most)) };
            rows.push(row);
        }
    }
    rows
}
