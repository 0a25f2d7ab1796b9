//! The jobs of a set, with the truth about each.

use std::path::Path;

use serde_json::Value as Json;
use skopos_model::SplitMix64;

use super::work::{Doing, Work};

/// A set of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// Thresholds may be chosen on it.
    Development,
    /// It is only judged.
    HeldOut,
}

impl Set {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Development => "development",
            Self::HeldOut => "held-out",
        }
    }
}

/// A job with its truth.
pub(super) struct Case {
    pub(super) name: String,
    /// The faults that the job has by its making.
    pub(super) faults: &'static [&'static str],
    pub(super) job: Job,
}

/// The way to make a job.
pub(super) enum Job {
    /// A program under `skopos run`.
    Run(Run),
    /// Ranks of a parallel job, each under `skopos run`, at one time.
    Ranks(Vec<Vec<(Doing, f64)>>),
    /// A program that ran before with other work so many times.
    Class { before: Vec<(Doing, f64)>, times: usize, run: Run },
    /// Records composed by hand: kind, node, seconds since the start, document.
    Composed(Vec<Composed>),
}

/// A record.
pub(super) struct Composed {
    pub(super) kind: &'static str,
    pub(super) node: String,
    pub(super) seconds: f64,
    pub(super) document: Json,
}

/// A program and the options of its monitor.
#[derive(Default)]
pub(super) struct Run {
    pub(super) doing: Vec<(Doing, f64)>,
    /// Requested resources and limits: `cores=2,memory=1GiB`.
    pub(super) limits: &'static str,
    /// Exit status.
    pub(super) status: i32,
    /// The cores that its control group may use.
    pub(super) cpu_max: Option<f64>,
}

impl Run {
    pub(super) fn of(doing: Doing, seconds: f64) -> Self {
        Self { doing: vec![(doing, seconds)], ..Self::default() }
    }

    pub(super) fn limits(self, limits: &'static str) -> Self {
        Self { limits, ..self }
    }

    pub(super) fn work(&self, folder: &Path) -> Work {
        Work { doing: self.doing.clone(), folder: folder.to_owned(), status: self.status }
    }
}

/// Collects cases and numbers them.
pub(super) struct Cases {
    set: Set,
    pub(super) random: SplitMix64,
    all: Vec<Case>,
}

impl Cases {
    /// Returns an empty collection.
    pub(super) fn new(set: Set, seed: u64) -> Self {
        Self { set, random: SplitMix64::new(seed), all: Vec::new() }
    }

    /// Returns the collected cases.
    pub(super) fn done(self) -> Vec<Case> {
        self.all
    }

    pub(super) fn is_held_out(&self) -> bool {
        self.set == Set::HeldOut
    }

    /// Returns a length of a job, in seconds.
    pub(super) fn seconds(&mut self) -> f64 {
        self.random.between(3.0, 4.0)
    }

    pub(super) fn add(&mut self, what: &str, faults: &'static [&'static str], job: Job) {
        let name = format!("{}/{:02} {what}", self.set.name(), self.all.len());
        self.all.push(Case { name, faults, job });
    }
}
