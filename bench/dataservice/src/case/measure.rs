//! Measures cases again and again in turn, and compares their times.

use serde::Serialize;
use skopos_rpc::{Interval, Kind, Stage};

use crate::case::folder::Folder;
use crate::case::{Case, Outcome};
use crate::children::Launcher;
use crate::error::Result;
use crate::statistics::{Estimate, estimate};
use crate::view::View;

/// The RPC of the data loader.
const RPC: &str = "sdskv_put_packed";

/// The changes of configuration that the paper makes: from a case to a better one.
const CHANGES: [(&str, &str, &str); 5] = [
    ("c1", "c2", "more execution streams"),
    ("c2", "c3", "fewer databases"),
    ("c5", "c6", "more events in each completion read"),
    ("c6", "c7", "a progress thread"),
    ("c5", "c4", "larger batches"),
];

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
    pub seconds: Estimate,
    /// Sum of the latencies of all calls, in seconds.
    pub cumulative_seconds: Estimate,
    /// The parts of that sum in the last round.
    pub shares: Shares,
    /// Each round.
    pub outcomes: Vec<Outcome>,
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
    /// The change.
    pub change: &'static str,
    /// Wall time that is saved, in percent of that before.
    pub seconds_saved_percent: Estimate,
    /// Cumulative time of calls that is saved, in percent of that before.
    pub cumulative_saved_percent: Estimate,
}

/// Runs `cases` in turn, `rounds` times. `seen` gets each traced case's folder in the last round, before it is removed.
///
/// # Errors
/// A case fails, or `seen` does.
pub fn measure(
    launcher: &Launcher,
    cases: &[Case],
    rounds: u32,
    mut seen: impl FnMut(&Case, &std::path::Path) -> Result<()>,
) -> Result<Measured> {
    let mut outcomes: Vec<Vec<Outcome>> = cases.iter().map(|_| Vec::new()).collect();
    let mut shares = vec![Shares::default(); cases.len()];
    for round in 0..rounds {
        for (number, case) in cases.iter().enumerate() {
            let folder = Folder::new()?;
            let trace = Some(folder.path().to_owned());
            let traced = Launcher { stage: Stage::Full, trace, ..launcher.clone() };
            let outcome = case.run(&traced)?;
            outcomes[number].push(Outcome { trace: None, ..outcome });
            if round + 1 == rounds {
                shares[number] = shares_of(&View::read(folder.path())?);
                seen(case, folder.path())?;
            }
        }
    }
    let measured: Vec<MeasuredCase> = cases
        .iter()
        .zip(outcomes)
        .zip(shares)
        .map(|((case, outcomes), shares)| MeasuredCase {
            case: case.name,
            summary: case.summary,
            seconds: over(&outcomes, |outcome| outcome.seconds),
            cumulative_seconds: over(&outcomes, |outcome| outcome.cumulative_seconds),
            shares,
            outcomes,
        })
        .collect();
    let changes = CHANGES.iter().filter_map(|change| compare(&measured, *change)).collect();
    Ok(Measured { rounds, cases: measured, changes })
}

fn over(outcomes: &[Outcome], of: fn(&Outcome) -> f64) -> Estimate {
    estimate(&outcomes.iter().map(of).collect::<Vec<_>>())
}

/// Compares two cases round by round.
fn compare(
    cases: &[MeasuredCase],
    (from, to, change): (&'static str, &'static str, &'static str),
) -> Option<Change> {
    let find = |name| cases.iter().find(|case| case.case == name);
    let (before, after) = (find(from)?, find(to)?);
    let saved = |of: fn(&Outcome) -> f64| {
        let pairs = before.outcomes.iter().zip(&after.outcomes);
        estimate(&pairs.map(|(a, b)| (1.0 - of(b) / of(a)) * 100.0).collect::<Vec<_>>())
    };
    Some(Change {
        from,
        to,
        change,
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
