//! `skopos-bench task`: the overhead of `skopos run` and the accuracy of its report, beside other
//! monitors (the paper's Tables 3 and 4).
//!
//! `cases` has the paper's programs, rebuilt, and `real` has programs of everyday work. `watchers` has the
//! monitors: none, `skopos run` by level and by mechanism, and the peers; `measure` runs them in turns.
//! `spikes`, `unseen` and `growth` are programs that are hard to measure or to stop.

mod limits;
mod cases;
mod real;
mod watchers;
mod measure;
mod spikes;
mod unseen;
mod growth;

use std::fs;
use std::path::Path;
use std::process::Command;

use self::cases::{Case, cases};
use self::limits::COMPILE;
use self::measure::{Runs, measure, over, seconds};
use self::watchers::{Kind, WATCHERS};
use super::child::finish;
use super::machine::Machine;
use super::report::{Better, Figure, Goal, Report, Row};
use super::scratch::Scratch;
use crate::plan::Plan;
use skopos_term::Failure;

/// The most rounds of programs that take seconds: the benchmark takes twelve minutes at most.
const LONG_ROUNDS: usize = 3;

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("resource_monitor", "resource_monitor", &["--version"]);
    machine.version("time", "/usr/bin/time", &["--version"]);
    machine.version("strace", "strace", &["--version"]);
    let mut report = Report::new("task", machine);
    let place = Scratch::on_disk()?;
    let dir = place.path();
    compile(dir).map_err(|e| Failure::new("the programs cannot be compiled").because(&e))?;
    for case in cases(dir, free_mib().unwrap_or(0)) {
        plan.say(&format!("{} …", case.name));
        let rounds = if case.is_long { plan.rounds.min(LONG_ROUNDS) } else { plan.rounds };
        let takes_part =
            |watcher: &watchers::Watcher| !(case.is_long && matches!(watcher.kind, Kind::Strace));
        let found = measure(rounds, &case.program, dir, takes_part);
        report.add(overheads(&case, &found));
        report.add(errors(&case, &found));
    }
    report.add(spikes::rows(plan, dir));
    report.add(unseen::rows(plan, dir));
    report.add(growth::rows(plan, dir));
    report.note(format!(
        "medians of {} runs in turns, {} of what takes seconds and one of strace; overhead: wall time \
         beside that of the same run without a monitor, start and end of the monitor included; errors \
         against what the program says of itself: getrusage, the bytes that it asked for, the memory \
         that it touched",
        plan.rounds,
        plan.rounds.min(LONG_ROUNDS)
    ));
    report.note(
        "± where rounds differ by more than the goal: half of the range of that watcher's runs or of \
         those without a monitor, whichever is wider",
    );
    Ok(report)
}

fn compile(dir: &Path) -> Result<(), std::io::Error> {
    let source = dir.join("work.c");
    fs::write(&source, include_str!("../../../../bench/task/work.c"))?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-o"]).arg(dir.join("work")).arg(&source).arg("-lm");
    finish(&mut command, dir, COMPILE).map(drop).map_err(std::io::Error::other)
}

/// The available memory, in MiB.
fn free_mib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib / 1024)
}

/// The overhead of monitors, in per cent of the time, or in milliseconds for short programs.
fn overheads(case: &Case, found: &[Runs]) -> Vec<Row> {
    let name = case.name.as_str();
    let bare = over(&found[0], |ran| Some(ran.seconds));
    let mut rows =
        vec![Row::of(name, "time without a monitor", "s", bare.clone(), Better::Neither)];
    let Figure::Known(bare) = bare else { return rows };
    let tells_share = case.tells_share(bare);
    let scale = if tells_share { 100.0 / bare } else { 1e3 };
    let (what, unit) = if tells_share { ("overhead", "%") } else { ("added time", "ms") };
    let overhead = |at: usize| over(&found[at], |ran| Some(scale * (ran.seconds - bare)));
    for (at, watcher) in WATCHERS.iter().enumerate() {
        let Some(ours) = watcher.ours() else { continue };
        let most = if tells_share { case.most_percent(ours) } else { Some(cases::MOST_FIXED_MS) };
        let (without, with) = (seconds(&found[0]), seconds(&found[at]));
        let spread = scale * half_range(&without).max(half_range(&with));
        let noise = match most {
            Some(most) if spread > most && !with.is_empty() => format!(" (± {spread:.1})"),
            _ => String::new(),
        };
        let metric = format!("{what}, {}{noise}", watcher.name);
        let mut row = Row::of(name, metric, unit, overhead(at), Better::Lower);
        if ours.level == 2 && ours.by.is_none() {
            for (at, peer) in WATCHERS.iter().enumerate().filter(|(_, w)| w.is_peer()) {
                row = row.peer(peer.name, overhead(at));
            }
        }
        row = row.rounds("without", &without).rounds("with", &with);
        rows.push(match most {
            Some(most) => row.goal(Goal::AtMost(most)),
            None => row,
        });
    }
    rows
}

fn half_range(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if values.is_empty() { 0.0 } else { (most - least) / 2.0 }
}

/// The difference between a report and the program's own numbers, in per cent.
fn errors(case: &Case, found: &[Runs]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (what, truth_of, seen_of, most) in case.checked() {
        let error = |at: usize| {
            over(&found[at], |ran| {
                let truth = truth_of(&ran.truth)?;
                Some(100.0 * (seen_of(&ran.seen)? - truth).abs() / truth)
            })
        };
        for (at, watcher) in WATCHERS.iter().enumerate() {
            let Some(ours) = watcher.ours() else { continue };
            let metric = format!("error of {what}, {}", watcher.name);
            let mut row = Row::of(case.name.as_str(), metric, "%", error(at), Better::Lower);
            if ours.level == 2 && ours.by.is_none() {
                for (at, peer) in WATCHERS.iter().enumerate().filter(|(_, w)| w.is_peer()) {
                    row = row.peer(peer.name, error(at));
                }
            }
            rows.push(if ours.level >= 2 { row.goal(Goal::AtMost(most)) } else { row });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_rounds_is_halved() {
        assert_eq!(
            (half_range(&[3.0, 1.0, 2.0]), half_range(&[]), half_range(&[5.0])),
            (1.0, 0.0, 0.0)
        );
    }
}
