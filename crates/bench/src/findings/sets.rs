//! All jobs of a set.

use super::case::{Case, Cases, Set};
use super::{clean, composed, faults};

/// Returns all jobs of a set.
pub(super) fn all(set: Set, seed: u64) -> Vec<Case> {
    let mut cases = Cases::new(set, seed);
    faults::add(&mut cases);
    composed::add(&mut cases);
    clean::add(&mut cases);
    cases.done()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use skopos_score::finding::{CLASS, RULES};

    use super::*;

    /// Each set is large enough: 60 jobs, 20 of them clean, and two with each fault.
    #[test]
    fn sets_have_clean_jobs_and_each_fault() {
        for set in [Set::Development, Set::HeldOut] {
            let cases = all(set, 1);
            assert!(cases.len() >= 60, "{}", cases.len());
            assert!(cases.iter().filter(|case| case.faults.is_empty()).count() >= 20);
            let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
            assert_eq!(names.len(), cases.len());
            for rule in RULES.iter().copied().chain([&CLASS]) {
                let with = cases.iter().filter(|case| case.faults.contains(&rule.name)).count();
                assert!(with >= 2, "{}: {with}", rule.name);
            }
        }
    }
}
