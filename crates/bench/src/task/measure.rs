//! Runs of all monitors in turns, round by round, so that noise affects all of them.

use std::path::Path;

use super::watchers::{Kind, Program, Ran, WATCHERS, Watcher};
use crate::report::Figure;
use crate::stats::median;

/// The runs of a monitor, or the reason why it does not run here.
pub(super) type Runs = Result<Vec<Ran>, String>;

/// Runs each of [`WATCHERS`]. `strace` has one run, because its overhead is far above noise.
pub(super) fn measure(
    rounds: usize,
    program: &Result<Program, String>,
    dir: &Path,
    takes_part: impl Fn(&Watcher) -> bool,
) -> Vec<Runs> {
    let program = match program {
        Ok(program) => program,
        Err(why) => return WATCHERS.iter().map(|_| Err(why.clone())).collect(),
    };
    let mut found: Vec<Runs> = WATCHERS
        .iter()
        .map(|w| if takes_part(w) { Ok(Vec::new()) } else { Err("it was left out".to_owned()) })
        .collect();
    for round in 0..rounds {
        for turn in 0..WATCHERS.len() {
            // The order differs in each round.
            let at = (turn + round) % WATCHERS.len();
            let is_once = matches!(WATCHERS[at].kind, Kind::Strace);
            let Ok(runs) = &mut found[at] else { continue };
            if is_once && !runs.is_empty() {
                continue;
            }
            match WATCHERS[at].run(program, dir) {
                Ok(ran) => runs.push(ran),
                Err(why) => found[at] = Err(why),
            }
        }
    }
    found
}

/// The median over its runs, or the reason why it is unknown.
pub(super) fn over(runs: &Runs, of: impl Fn(&Ran) -> Option<f64>) -> Figure {
    let runs = match runs {
        Ok(runs) => runs,
        Err(why) => return Figure::Unknown(why.clone()),
    };
    let values: Option<Vec<f64>> = runs.iter().map(of).collect();
    match values.filter(|values| !values.is_empty()) {
        Some(values) => Figure::Known(median(&values)),
        None => Figure::Unknown("it does not report that".to_owned()),
    }
}

/// The seconds of each run.
pub(super) fn seconds(runs: &Runs) -> Vec<f64> {
    runs.iter().flatten().map(|ran| ran.seconds).collect()
}

/// The number, or the reason why it is unknown.
pub(super) fn known(result: Result<f64, String>) -> Figure {
    result.map_or_else(Figure::Unknown, Figure::Known)
}
