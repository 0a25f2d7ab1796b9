//! `skopos-bench findings`: how many faults of jobs are found, and how many jobs without a fault are blamed.
//!
//! Small programs with and without each fault run under `skopos run` beside a hub. What this machine cannot make (GPUs,
//! several nodes, swap) are records composed by hand. There are two sets of jobs, made from two seeds and with other shapes
//! of each fault. Thresholds may be chosen on the development set; the held-out set is only judged.

mod work;
mod case;
mod clean;
mod composed;
mod faults;
mod sets;
mod run;
mod tally;

use super::machine::Machine;
use super::plan::Plan;
use super::report::Report;
use skopos_term::Failure;

pub(super) use self::work::Work;

use self::case::Set;

/// The seeds of the two sets.
const SEEDS: [(Set, u64); 2] = [(Set::Development, 1), (Set::HeldOut, 20_261_125)];

pub(super) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut report = Report::new("findings", Machine::this());
    report.note(
        "Thresholds may be chosen on the development set. The held-out set has other seeds and other shapes of each \
         fault, and was written before it was first run."
            .to_owned(),
    );
    // A short run judges the development set alone, so that trying things does not wear out the other.
    let sets = if plan.is_short { &SEEDS[..1] } else { &SEEDS[..] };
    for (set, seed) in sets {
        let cases = sets::all(*set, *seed);
        let judged = run::run(plan, *set, &cases)?;
        tally::add(&mut report, *set, *seed, &cases, &judged);
    }
    Ok(report)
}
