//! Measures cases again and again in turn, and compares their times.

use serde::Serialize;
use skopos_rpc::{Interval, Kind, Stage};

use crate::case::findings::{Finding, findings, predicted};
use crate::case::folder::Folder;
use crate::case::{Case, Outcome};
use crate::children::Launcher;
use crate::error::Result;
use crate::statistics::{Median, median};
use crate::view::View;

/// The RPC of the data loader.
const RPC: &str = "sdskv_put_packed";

/// A change of configuration that the paper makes.
struct Step {
    from: &'static str,
    to: &'static str,
    key: &'static str,
    value: &'static str,
    /// The findings that name the cause.
    causes: &'static [&'static str],
}

const STEPS: [Step; 5] = [
    step("c1", "c2", "execution_streams", "20", &["execution_streams"]),
    step("c2", "c3", "databases", "8", &["databases"]),
    step("c5", "c6", "max_completion_events", "64", &["starved_progress"]),
    step("c6", "c7", "progress_thread", "true", &["starved_progress"]),
    step("c5", "c4", "batch_size", "1024", &["starved_progress", "large_messages"]),
];

const fn step(
    from: &'static str,
    to: &'static str,
    key: &'static str,
    value: &'static str,
    causes: &'static [&'static str],
) -> Step {
    Step { from, to, key, value, causes }
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Number of rounds; each runs every case once.
    pub rounds: u32,
    /// The cases.
    pub cases: Vec<MeasuredCase>,
    /// The changes from one case to another.
    pub changes: Vec<Change>,
}

/// A case.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredCase {
    /// Name.
    pub case: &'static str,
    /// The case in one sentence.
    pub summary: &'static str,
    /// Seconds until the last client was done.
    pub seconds: Median,
    /// Sum of the latencies of all calls, in seconds.
    pub cumulative_seconds: Median,
    /// The parts of that sum in the last round.
    pub shares: Shares,
    /// Each round.
    pub outcomes: Vec<Outcome>,
    /// The findings of each round, those with the greatest gain first.
    pub findings: Vec<Vec<Finding>>,
}

/// Parts of the cumulative time of a case's calls, from 0 to 1.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Shares {
    /// Waiting in the pool of the target (target handler time).
    pub queue: f64,
    /// Waiting for the backend of the target.
    pub backend_wait: f64,
    /// Not covered by any interval.
    pub unaccounted: f64,
    /// Calls, not time: those that were completed by a read at its limit.
    pub full_reads: f64,
}

/// A change of configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The case before.
    pub from: &'static str,
    /// The case after.
    pub to: &'static str,
    /// The key of the configuration that is changed.
    pub key: &'static str,
    /// Its new value.
    pub value: &'static str,
    /// Rounds in which the first finding about the case before names the cause.
    pub named_first: usize,
    /// The prediction of the findings for `cumulative_saved_percent`, over the rounds that have one.
    pub predicted_percent: Median,
    /// Wall time that is saved, in percent of that before.
    pub seconds_saved_percent: Median,
    /// Cumulative time of calls that is saved, in percent of that before.
    pub cumulative_saved_percent: Median,
}

/// Runs `cases` in turn, `rounds` times, with traces.
///
/// # Errors
/// A case fails, or its traces cannot be read.
pub fn measure(launcher: &Launcher, cases: &[Case], rounds: u32) -> Result<Measured> {
    let unknown = median(&[]);
    let new = |case: &Case| MeasuredCase {
        case: case.name,
        summary: case.summary,
        seconds: unknown,
        cumulative_seconds: unknown,
        shares: Shares::default(),
        outcomes: Vec::new(),
        findings: Vec::new(),
    };
    let mut measured: Vec<MeasuredCase> = cases.iter().map(new).collect();
    for _ in 0..rounds {
        for (case, measured) in cases.iter().zip(&mut measured) {
            let folder = Folder::new()?;
            let trace = Some(folder.path().to_owned());
            let traced = Launcher { stage: Stage::Full, trace, ..launcher.clone() };
            let outcome = case.run(&traced)?;
            measured.outcomes.push(Outcome { trace: None, ..outcome });
            measured.findings.push(findings(folder.path())?);
            measured.shares = shares_of(&View::read(folder.path())?);
        }
    }
    for case in &mut measured {
        case.seconds = over(&case.outcomes, |outcome| outcome.seconds);
        case.cumulative_seconds = over(&case.outcomes, |outcome| outcome.cumulative_seconds);
    }
    let changes = STEPS.iter().filter_map(|step| compare(&measured, step)).collect();
    Ok(Measured { rounds, cases: measured, changes })
}

fn over(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> Median {
    median(&outcomes.iter().map(of).collect::<Vec<_>>())
}

/// Compares two cases round by round.
fn compare(cases: &[MeasuredCase], step: &Step) -> Option<Change> {
    let find = |name| cases.iter().find(|case| case.case == name);
    let (before, after) = (find(step.from)?, find(step.to)?);
    let first = before.findings.iter().filter_map(|findings| findings.first());
    let named_first = first.filter(|finding| step.causes.contains(&finding.name)).count();
    let predictions = before.findings.iter();
    let predictions: Vec<f64> =
        predictions.filter_map(|found| predicted(found, step.key, step.value)).collect();
    let saved = |of: fn(&Outcome) -> f64| {
        let pairs = before.outcomes.iter().zip(&after.outcomes);
        median(&pairs.map(|(a, b)| (1.0 - of(b) / of(a)) * 100.0).collect::<Vec<_>>())
    };
    Some(Change {
        from: step.from,
        to: step.to,
        key: step.key,
        value: step.value,
        named_first,
        predicted_percent: median(&predictions),
        seconds_saved_percent: saved(|outcome| outcome.seconds),
        cumulative_saved_percent: saved(|outcome| outcome.cumulative_seconds),
    })
}

/// The parts of the cumulative time of the loader's calls.
fn shares_of(view: &View) -> Shares {
    let all = view.duration_seconds(RPC);
    if all <= 0.0 {
        return Shares::default();
    }
    let seconds = |interval| view.interval_seconds(RPC, interval);
    // Deserialisation is inside of the execution, and output serialisation inside of the target's completion callback.
    let accounted: f64 = [
        Interval::InputSerialization,
        Interval::TargetInternalRdmaTransfer,
        Interval::TargetHandler,
        Interval::TargetExecutionExclusive,
        Interval::Children,
        Interval::TargetCompletionCallback,
        Interval::OriginCompletionCallback,
    ]
    .into_iter()
    .map(seconds)
    .sum();
    let calls = view.of(Kind::Origin, RPC).count();
    let full = view.of(Kind::Origin, RPC).filter(|side| {
        let read = view.pvar(side, "completion_queue_read");
        read.is_some() && read >= view.pvar(side, "completion_queue_limit")
    });
    Shares {
        queue: seconds(Interval::TargetHandler) / all,
        backend_wait: view.pvar_sum(RPC, "database_wait_ns") as f64 / 1e9 / all,
        unaccounted: (1.0 - accounted / all).max(0.0),
        full_reads: full.count() as f64 / calls as f64,
    }
}
