//! Precision and recall of the verdicts.

use std::collections::BTreeSet;

use skopos_score::finding::{CLASS, RULES};

use super::case::{Case, Set};
use super::run::Judged;
use crate::report::{Better, Goal, Report, Row};

/// The goals on the held-out set. A user that is blamed without a reason stops reading, so precision counts more.
const PRECISION: f64 = 95.0;
const RECALL: f64 = 90.0;

/// Counts of the verdicts of a rule.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Jobs with the fault.
    with: usize,
    /// Jobs with the fault for which it was found.
    found: usize,
    /// Jobs with the fault that were not judged.
    not_judged: usize,
    /// Jobs without the fault for which it was found.
    wrong: usize,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.with += other.with;
        self.found += other.found;
        self.not_judged += other.not_judged;
        self.wrong += other.wrong;
    }
}

/// Adds the rows of a set, and a note for each verdict that was wrong.
pub(super) fn add(report: &mut Report, set: Set, seed: u64, cases: &[Case], judged: &[Judged]) {
    let jobs: Vec<(&Case, &Judged)> = cases.iter().zip(judged).collect();
    let made: Vec<_> = jobs.iter().filter(|(_, judged)| judged.is_ok()).collect();
    for (case, judged) in &jobs {
        if let Err(why) = judged {
            report.note(format!("{} could not be made: {why}", case.name));
        }
    }
    let mut all = Counts::default();
    let mut wrong_jobs = BTreeSet::new();
    for rule in RULES.iter().copied().chain([&CLASS]) {
        let mut counts = Counts::default();
        for (case, judged) in &made {
            let Ok(said) = judged else { continue };
            let Some(said) = said.get(rule.name) else { continue };
            let (has, is_found) = (case.faults.contains(&rule.name), said.verdict == "found");
            counts.with += usize::from(has);
            counts.found += usize::from(has && is_found);
            counts.not_judged += usize::from(has && said.verdict == "unknown");
            counts.wrong += usize::from(!has && is_found);
            if has != is_found {
                let verdict = if has { "missed" } else { "wrongly found" };
                report.note(format!("{}: {} {verdict}: {}", case.name, rule.name, said.text));
            }
            if !has && is_found {
                wrong_jobs.insert(case.name.as_str());
            }
        }
        let of = |metric, value: usize, better| {
            Row::new(format!("{}: {}", set.name(), rule.name), metric, "jobs", value as f64, better)
        };
        report.add([
            of("with the fault", counts.with, Better::Neither),
            of("found", counts.found, Better::Higher),
            of("not judged", counts.not_judged, Better::Lower),
            of("wrongly found", counts.wrong, Better::Lower),
        ]);
        all.add(counts);
    }
    let clean: Vec<_> = made.iter().filter(|(case, _)| case.faults.is_empty()).collect();
    let blamed = clean.iter().filter(|(case, _)| wrong_jobs.contains(case.name.as_str())).count();
    let is_goal = set == Set::HeldOut;
    let case = format!("{}: all", set.name());
    let row = |metric, unit, value: f64, better| Row::new(&case, metric, unit, value, better);
    let goal = |row: Row, goal| if is_goal { row.goal(goal) } else { row };
    let share = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    let precision = share(all.found, all.found + all.wrong);
    let recall = share(all.found, all.with);
    report.add([
        row("jobs", "jobs", made.len() as f64, Better::Neither),
        row("clean jobs", "jobs", clean.len() as f64, Better::Neither),
        row("clean jobs with a finding", "jobs", blamed as f64, Better::Lower),
        goal(row("precision", "%", precision, Better::Higher), Goal::AtLeast(PRECISION)),
        goal(row("recall", "%", recall, Better::Higher), Goal::AtLeast(RECALL)),
    ]);
    report.note(format!("The {} set is made from seed {seed}.", set.name()));
}
