//! Jobs of which every answer is known.

use skopos_model::SplitMix64;
use skopos_model::job::{JobEnd, JobId, JobStart, JobState};
use skopos_model::task::{ExitType, RESOURCES};

use super::super::super::entry::{Dated, JobEntry};
use super::super::super::part::PartRef;

/// Words of which jobs are made: few, so that conditions meet; some odd, so that they hurt.
pub(super) const WORDS: [&str; 10] =
    ["ann", "bob", "it's \"x\"", "", "Übung 7", "a/../b", "gromacs_mpi", "%_", "\0nul", "*"];

/// Jobs by a seed.
pub struct Jobs(SplitMix64);

impl Jobs {
    /// Returns the jobs of a seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0.below(most)
    }

    pub(super) fn word(&mut self) -> String {
        WORDS[self.below(WORDS.len())].to_owned()
    }

    pub(super) fn words<C: FromIterator<String>>(&mut self, most: usize) -> C {
        (0..self.below(most + 1)).map(|_| self.word()).collect()
    }

    /// Returns a number that decimal texts have exactly.
    pub(super) fn amount(&mut self) -> f64 {
        self.below(5) as f64 * 0.5
    }

    fn amounts(&mut self) -> std::collections::BTreeMap<String, f64> {
        (0..self.below(4)).map(|at| (RESOURCES[at].name.to_owned(), self.amount())).collect()
    }

    /// Returns a job. It may be an orphan, run, or have ended.
    pub fn job(&mut self) -> JobEntry {
        let generation = self.below(2) as u32;
        let mut entry = entry(&format!("{}{}", self.below(60), self.word().replace('\0', "")), &[]);
        entry.id = JobId::new(entry.id.job(), generation).expect("an id");
        entry.site = ["hpc1", "it's", "hpc2"][self.below(3)].to_owned();
        let at = self.below(40) as i64;
        entry.times = (self.below(9) > 0).then_some((at, at + self.below(9) as i64));
        if entry.times.is_some() && self.below(6) > 0 {
            let start = JobStart {
                user: self.word(),
                project: self.word(),
                name: self.word(),
                application: self.word(),
                queue: self.word(),
                command: self.words(3),
                tags: self.words(3),
                requested: self.amounts(),
                start_seconds: (self.below(2) > 0).then(|| self.below(40) as f64 * 1e-9),
                details: [(self.word(), self.word())].into(),
                ..JobStart::default()
            };
            entry.start = Some(Dated { at, value: start });
        }
        if entry.times.is_some() && self.below(3) > 0 {
            let end = JobEnd {
                state: JobState::ALL[self.below(JobState::ALL.len())],
                exit_type: [None, Some(ExitType::Normal), Some(ExitType::Limit)][self.below(3)],
                used: self.amounts(),
                ..JobEnd::default()
            };
            entry.end = Some(Dated { at: at + self.below(20) as i64, value: end });
        }
        entry.nodes = self.words(3);
        entry.tags =
            self.words::<Vec<_>>(2).into_iter().map(|tag| (tag, (at, at % 2 == 0))).collect();
        entry.used = self.amounts();
        entry.findings = self.words(2);
        entry.samples = self.below(9) as u64;
        let parts: Vec<u32> = (0..4).filter(|_| self.below(2) > 0).collect();
        entry.parts = parts.into_iter().map(part).collect();
        entry
    }
}

/// Returns the entry of a job with parts of these numbers, and nothing else.
pub fn entry(job: &str, parts: &[u32]) -> JobEntry {
    let mut entry = JobEntry::new("hpc1", JobId::new(job, 0).expect("an id"));
    entry.parts = parts.iter().copied().map(part).collect();
    entry
}

fn part(number: u32) -> PartRef {
    PartRef { number, segment: format!("segment-{}", number / 2), rows: 7 }
}
