//! A limit of 500 MB for a program that touches memory as fast as it can: the memory that it had touched
//! at its end, by its own log, and whether the report names it.

use std::fs;
use std::path::Path;

use super::measure::known;
use super::watchers::{Program, Ran, WATCHERS, Watcher};
use crate::plan::Plan;
use crate::report::{Better, Goal, Row};
use crate::stats::median;

/// The limit, in the syntax of each monitor. `resource_monitor` counts in units of 1,048,576.
const LIMIT: (&str, &str) = ("memory=500MB", "memory: 477");
const LIMIT_BYTES: f64 = 500e6;

/// The memory that it would touch without a limit.
const WOULD_MIB: &str = "4096";

/// The greatest excess over the limit, in per cent.
const MOST_PERCENT: f64 = 1.0;

pub(super) fn rows(plan: &Plan, dir: &Path) -> Vec<Row> {
    let case = "limit of 500 MB";
    plan.say(&format!("{case} …"));
    let log = dir.join("log");
    // It is not the first process of its task, so that a report that always names the first is wrong.
    let grows =
        format!("'{}' grow {WOULD_MIB} '{}'; exit $?", dir.join("work").display(), log.display());
    let program = Program {
        command: ["sh", "-c", &grows].map(str::to_owned).to_vec(),
        file: Some(log.clone()),
        limit: Some(LIMIT),
        may_fail: true,
    };
    let above = |watcher: &Watcher| -> Result<(f64, Vec<Ran>), String> {
        let (mut most, mut runs) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds.min(3) {
            runs.push(watcher.run(&program, dir)?);
            let bytes = fs::read(&log).map_err(|e| format!("its log: {e}"))?;
            let touched = bytes.first_chunk().map(|b| u64::from_ne_bytes(*b)).unwrap_or_default();
            most.push(100.0 * (touched as f64 / LIMIT_BYTES - 1.0));
        }
        Ok((median(&most), runs))
    };
    let mut rows = Vec::new();
    let peer = WATCHERS.iter().find(|watcher| watcher.name == "resource_monitor");
    for watcher in WATCHERS.iter().filter(|watcher| watcher.ours().is_some()) {
        let found = above(watcher);
        let figure = known(found.as_ref().map(|(most, _)| *most).map_err(Clone::clone));
        let metric = format!("held above it, {}", watcher.name);
        let mut row = Row::of(case, metric, "%", figure, Better::Neither);
        if let Some(peer) = peer.filter(|_| watcher.name == "level 2") {
            row = row.peer(peer.name, known(above(peer).map(|(most, _)| most)));
        }
        rows.push(row.goal(Goal::AtMost(MOST_PERCENT)));
        let named = found.map(|(_, runs)| runs.iter().filter(|ran| names(ran)).count() as f64);
        let share = named.map(|count| 100.0 * count / plan.rounds.min(3) as f64);
        let metric = format!("reports that name the guilty, {}", watcher.name);
        let row = Row::of(case, metric, "%", known(share), Better::Higher);
        let names_guilty = watcher.ours().is_some_and(|ours| ours.level >= 2);
        rows.push(if names_guilty { row.goal(Goal::AtLeast(100.0)) } else { row });
    }
    let _ = fs::remove_file(&log);
    rows
}

fn names(ran: &Ran) -> bool {
    let ended = &ran.summary["ended"];
    let guilty = ended["guilty"].as_str().unwrap_or("");
    ended["exit_type"] == "limit" && guilty.contains("work grow")
}
