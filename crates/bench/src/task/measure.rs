//! Runs in turns: everybody who takes part, round by round, so that noise hits all of them.

use std::path::Path;

use super::watchers::{Kind, Program, Ran, WATCHERS, Watcher};
use crate::report::Figure;
use crate::stats::median;

/// What one watcher gave, run by run; or why it does not run here.
pub(super) type Runs = Result<Vec<Ran>, String>;

/// Runs of each of [`WATCHERS`]. `strace` has one: what it takes is far from what noise is.
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
            // Everybody's turn comes at another time in each round.
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

/// The median over its runs, or why there is none.
pub(super) fn over(runs: &Runs, of: impl Fn(&Ran) -> Option<f64>) -> Figure {
    let runs = match runs {
        Ok(runs) => runs,
        Err(why) => return Figure::Unknown(why.clone()),
    };
    let values: Option<Vec<f64>> = runs.iter().map(of).collect();
    match values.filter(|values| !values.is_empty()) {
        Some(values) => Figure::Known(median(&values)),
        None => Figure::Unknown("it does not say".to_owned()),
    }
}

/// The seconds of each run.
pub(super) fn seconds(runs: &Runs) -> Vec<f64> {
    runs.iter().flatten().map(|ran| ran.seconds).collect()
}
