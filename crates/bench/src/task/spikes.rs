//! Programs that hold 1 GiB for a moment and end at once, in all ways in which programs end.

use std::path::Path;
use std::process::Command;

use super::limits::COMPILE;
use super::measure::{measure, over};
use super::watchers::{Program, Truth, WATCHERS};
use crate::child::finish;
use crate::plan::Plan;
use crate::report::{Better, Goal, Row};

/// The greatest error of the memory, in per cent.
const MOST_PERCENT: f64 = 0.1;

pub(super) fn rows(plan: &Plan, dir: &Path) -> Vec<Row> {
    let words = |name: &str, words: &[&str]| Program {
        command: [dir.join(name).display().to_string()]
            .into_iter()
            .chain(words.iter().map(|w| (*w).to_owned()))
            .collect(),
        file: None,
        limit: None,
        may_fail: false,
    };
    let fixed = compile_static(dir).map(|()| words("static", &["spike", "1024", "_exit"]));
    let go = compile_go(dir).map(|()| words("spike-go", &[]));
    let mut rows = Vec::new();
    for (case, program) in [
        ("spike of 1 GiB, exit", Ok(words("work", &["spike", "1024", "exit"]))),
        ("spike of 1 GiB, _exit", Ok(words("work", &["spike", "1024", "_exit"]))),
        ("spike of 1 GiB, static", fixed),
        ("spike of 1 GiB, Go", go),
    ] {
        plan.say(&format!("{case} …"));
        let among = |watcher: &super::watchers::Watcher| {
            watcher.is_peer() || watcher.ours().is_some_and(|ours| ours.level >= 2)
        };
        let found = measure(plan.rounds.min(3), &program, dir, among);
        let error = |at: usize| {
            over(&found[at], |ran| {
                let Truth { resident_bytes: Some(truth), .. } = ran.truth else { return None };
                Some(100.0 * (ran.seen.resident_bytes? - truth).abs() / truth)
            })
        };
        for (at, watcher) in WATCHERS.iter().enumerate() {
            let Some(ours) = watcher.ours().filter(|ours| ours.level >= 2) else { continue };
            let metric = format!("error of resident memory, {}", watcher.name);
            let mut row = Row::of(case, metric, "%", error(at), Better::Lower);
            if ours.level == 2 && ours.by.is_none() {
                for (at, peer) in WATCHERS.iter().enumerate().filter(|(_, w)| w.is_peer()) {
                    row = row.peer(peer.name, error(at));
                }
            }
            rows.push(row.goal(Goal::AtMost(MOST_PERCENT)));
        }
    }
    rows
}

fn compile_static(dir: &Path) -> Result<(), String> {
    let mut command = Command::new("cc");
    command.args(["-O2", "-static", "-o"]).arg(dir.join("static")).arg(dir.join("work.c"));
    finish(command.arg("-lm"), dir, COMPILE).map(drop)
}

fn compile_go(dir: &Path) -> Result<(), String> {
    let source = dir.join("spike.go");
    std::fs::write(&source, include_str!("../../../../bench/task/spike.go"))
        .map_err(|e| e.to_string())?;
    let mut command = Command::new("go");
    // The user's own cache stays unchanged.
    command.env("GOCACHE", dir.join("go-cache"));
    command.args(["build", "-o"]).arg(dir.join("spike-go")).arg(&source);
    finish(&mut command, dir, COMPILE).map(drop)
}
