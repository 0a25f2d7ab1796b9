//! The ranker: a profile, its scorer, and the memory of past rankings.

use std::time::Duration;

use skopos_model::{SplitMix64, Timestamp};

use crate::error::Error;
use crate::rank::experience::Experience;
use crate::rank::history::{History, Now};
use crate::rank::inputs::Inputs;
use crate::rank::learned::Learned;
use crate::rank::limits::MAX_CANDIDATES;
use crate::rank::outcome::{Outcome, Reference};
use crate::rank::pareto::Pareto;
use crate::rank::profile::{HOLD_AGES, Method, Profile, Stale};
use crate::rank::ranking::{
    Basis, CONTRADICTED, Confidence, EXTRAS, HELD, LAYER, Ranked, Ranking, State, UNKNOWN,
};
use crate::rank::scorer::{Parts, Scorer, View};
use crate::rank::trust::{Checked, Fault, badness, check};
use crate::rank::utility::{Collection, EVERY, RELAXED_FACTOR, Utility, weight};
use crate::rank::weighted::Weighted;

/// Part of a score for values that are all missing, in proportion for some: the candidate counts as twice as bad,
/// because the unknown is rarely as good as the known median.
const UNKNOWN_PART: f64 = 1.0;

/// Ranks candidates by one profile. Equal calls from one seed give equal rankings.
pub struct Ranker {
    profile: Profile,
    scorer: Box<dyn Scorer>,
    history: History,
    utility: Utility,
    reference: Reference,
    random: SplitMix64,
    rankings: u64,
    stretch: Vec<f64>,
    checked: Vec<Checked>,
    badness: Vec<f64>,
    parts: Parts,
    learned_rows: usize,
}

impl Ranker {
    /// Makes a ranker; `seed` decides the order of candidates with equal scores.
    ///
    /// # Errors
    /// The profile is not valid, see [`Profile::check`].
    pub fn new(profile: Profile, seed: u64) -> Result<Self, Error> {
        profile.check()?;
        let metrics = &profile.metrics;
        let scorer: Box<dyn Scorer> = match profile.method {
            Method::Latency => Box::new(Weighted::latency(metrics)),
            Method::Equal => Box::new(Weighted::equal(metrics)),
            Method::Given => Box::new(Weighted::given(metrics)),
            Method::Learned => Box::new(Learned::new(metrics)),
            Method::Pareto => Box::new(Pareto::new(metrics)),
        };
        Ok(Self {
            utility: Utility::new(metrics.len()),
            stretch: vec![1.0; metrics.len()],
            profile,
            scorer,
            history: History::default(),
            reference: Reference::default(),
            random: SplitMix64::new(seed),
            rankings: 0,
            checked: Vec::new(),
            badness: Vec::new(),
            parts: Parts::default(),
            learned_rows: 0,
        })
    }

    /// Ranks `candidates`, which stand in the order that the caller would use without Skopos.
    ///
    /// # Errors
    /// Too many candidates, a candidate twice, or inputs of another size. The state is as before the call, except for
    /// candidates in front of the repeated one.
    pub fn rank(
        &mut self,
        now: Timestamp,
        candidates: &[&str],
        inputs: &Inputs,
    ) -> Result<Ranking, Error> {
        self.check_size(candidates, inputs)?;
        self.rankings += 1;
        let metrics = self.profile.metrics.len();
        for (at, stretch) in self.stretch.iter_mut().enumerate() {
            let relaxed = self.utility.collection(at) == Collection::Relaxed;
            *stretch = if relaxed { RELAXED_FACTOR } else { 1.0 };
        }
        check(now, &self.profile, inputs, &self.stretch, &mut self.checked);
        badness(&self.profile.metrics, &self.checked, &mut self.badness);
        self.parts.reset(candidates.len(), metrics);
        let view = View { metrics: &self.profile.metrics, badness: &self.badness };
        self.scorer.score(&view, &mut self.parts);
        self.learned_rows = candidates.len();

        let mut ranking = self.empty(now, candidates.len());
        for (row, name) in candidates.iter().enumerate() {
            self.one(now, row, name, &mut ranking)?;
        }
        self.history.evict(self.rankings);
        self.distribute(&mut ranking);
        if self.rankings % EVERY == 1 && ranking.basis == Basis::Scores {
            let width = metrics + EXTRAS.len();
            let scores: Vec<f64> = ranking.entries.iter().map(|e| e.score).collect();
            let part = |row: usize, metric: usize| ranking.parts[row * width + metric];
            self.utility.evaluate(&scores, part, self.profile.sharpness);
        }
        self.sort(&mut ranking);
        Ok(ranking)
    }

    /// Takes the outcome of a request that a candidate of the last ranking served.
    ///
    /// # Errors
    /// The candidate was not in the last ranking, or the cost is not a number of seconds.
    pub fn learn(&mut self, outcome: &Outcome<'_>) -> Result<(), Error> {
        let unknown = || Error::UnknownCandidate(outcome.candidate.to_owned());
        let past = self.history.get(outcome.candidate).ok_or_else(unknown)?;
        if past.seen != self.rankings {
            return Err(unknown());
        }
        let metrics = self.profile.metrics.len();
        let row = self.badness.chunks_exact(metrics).nth(past.row as usize).ok_or_else(unknown)?;
        let cost = self.reference.relative(outcome)?;
        self.scorer.learn(row, cost);
        Ok(())
    }

    /// Returns the state of the learned weights; `None` if the method does not learn.
    pub fn experience(&self) -> Option<Experience> {
        let experience = self.scorer.experience()?;
        Some(Experience { good_seconds: self.reference.good_seconds(), ..experience })
    }

    /// Goes on from the learned weights of a ranker with the same metrics. A method that does not learn keeps its weights.
    ///
    /// # Errors
    /// The state is of another number of metrics, or a number is out of range; the ranker is as before.
    pub fn restore(&mut self, experience: &Experience) -> Result<(), Error> {
        let reference = Reference::new(experience.good_seconds)?;
        self.scorer.restore(experience)?;
        self.reference = reference;
        Ok(())
    }

    /// Returns the utility of the metrics.
    pub fn utility(&self) -> &Utility {
        &self.utility
    }

    /// Returns the present weights of the metrics.
    pub fn weights(&self) -> &[f64] {
        self.scorer.weights()
    }

    /// Returns the profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn check_size(&self, candidates: &[&str], inputs: &Inputs) -> Result<(), Error> {
        if candidates.len() > MAX_CANDIDATES {
            return Err(Error::Candidates(candidates.len()));
        }
        let metrics = self.profile.metrics.len();
        if (inputs.candidates(), inputs.metrics()) != (candidates.len(), metrics) {
            return Err(Error::Inputs {
                inputs_candidates: inputs.candidates(),
                inputs_metrics: inputs.metrics(),
                candidates: candidates.len(),
                metrics,
            });
        }
        Ok(())
    }

    fn empty(&self, now: Timestamp, candidates: usize) -> Ranking {
        let value = |c: &Checked| ((c.trust > 0.0).then_some(c.value), c.fault);
        let names = self.profile.metrics.iter().map(|m| m.name.as_str().into());
        Ranking {
            at: now,
            basis: Basis::Scores,
            entries: Vec::with_capacity(candidates),
            metrics: names.collect(),
            parts: Vec::with_capacity(candidates * (self.profile.metrics.len() + EXTRAS.len())),
            values: self.checked.iter().map(value).collect(),
        }
    }

    /// Appends the entry of a candidate, not yet with its weight.
    fn one(
        &mut self,
        now: Timestamp,
        row: usize,
        name: &str,
        ranking: &mut Ranking,
    ) -> Result<(), Error> {
        let metrics = self.profile.metrics.len();
        let checked = &self.checked[row * metrics..][..metrics];
        let (confidence, mut state) = standing(checked, self.scorer.weights(), &self.profile);
        let begin = ranking.parts.len();
        let parts = self.parts.row(row);
        ranking.parts.extend_from_slice(&parts[..metrics]);
        let mut extras = [0.0; EXTRAS.len()];
        extras[LAYER] = parts[metrics];
        extras[UNKNOWN] = UNKNOWN_PART * (1.0 - confidence.trust);
        let sum: f64 = ranking.parts[begin..].iter().chain(&extras).sum();
        let lied = checked.iter().any(|c| c.fault == Some(Fault::Contradicted));
        let hysteresis = self.profile.hysteresis;
        let present = Now { at: now, ranking: self.rankings, row: row as u32, hysteresis };
        let Some(verdict) = self.history.judge(name, present, sum, lied) else {
            return Err(Error::CandidateTwice(name.to_owned()));
        };
        extras[CONTRADICTED] = verdict.discredit;
        extras[HELD] = verdict.held;
        if state == State::Known {
            state = match (lied, verdict.flapping) {
                (true, _) => State::Contradicted,
                (false, true) => State::Flapping,
                (false, false) => State::Known,
            };
        }
        ranking.parts.extend_from_slice(&extras);
        let score = ranking.parts[begin..].iter().sum();
        ranking.entries.push(Ranked { candidate: row, weight: 0.0, score, confidence, state });
        Ok(())
    }

    /// Sets weights that sum to 1. Candidates about which nothing is known share the exploration.
    fn distribute(&self, ranking: &mut Ranking) {
        let known = |e: &Ranked| !matches!(e.state, State::Unknown | State::Excluded);
        let unknown = ranking.entries.iter().filter(|e| e.state == State::Unknown).count();
        if !ranking.entries.iter().any(known) {
            ranking.basis = Basis::Native;
            let equal = 1.0 / ranking.entries.len().max(1) as f64;
            ranking.entries.iter_mut().for_each(|e| e.weight = equal);
            return;
        }
        let sharpness = self.profile.sharpness;
        let best = ranking.entries.iter().filter(|e| known(e)).map(|e| e.score);
        let best = best.fold(f64::INFINITY, f64::min);
        let sum: f64 = ranking
            .entries
            .iter()
            .filter(|e| known(e))
            .map(|e| weight(e.score - best, sharpness))
            .sum();
        let explored = if unknown > 0 { self.profile.exploration } else { 0.0 };
        for entry in &mut ranking.entries {
            entry.weight = match entry.state {
                State::Excluded => 0.0,
                State::Unknown => explored / unknown as f64,
                _ => (1.0 - explored) * weight(entry.score - best, sharpness) / sum,
            };
        }
    }

    /// Orders the entries; the native order stays as it is. Equal scores stand in random order.
    fn sort(&mut self, ranking: &mut Ranking) {
        if ranking.basis == Basis::Native {
            return;
        }
        let class = |state: State| match state {
            State::Unknown => 1,
            State::Excluded => 2,
            _ => 0,
        };
        let entries = std::mem::take(&mut ranking.entries);
        let mut keyed: Vec<(u8, f64, u64, Ranked)> =
            entries.into_iter().map(|e| (class(e.state), e.score, self.random.bits(), e)).collect();
        keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        ranking.entries = keyed.into_iter().map(|(.., entry)| entry).collect();
    }
}

/// Returns the confidence in the values of a candidate, and its standing by them alone.
fn standing(checked: &[Checked], weights: &[f64], profile: &Profile) -> (Confidence, State) {
    let mut trust = 0.0;
    let (mut samples, mut age) = (u32::MAX, Duration::ZERO);
    let mut is_stale = false;
    for ((cell, weight), metric) in checked.iter().zip(weights).zip(&profile.metrics) {
        if *weight <= 0.0 {
            continue;
        }
        trust += weight * cell.trust;
        is_stale |= cell.fault == Some(Fault::Stale) || cell.age > metric.max_age() * HOLD_AGES;
        if cell.trust > 0.0 {
            samples = samples.min(cell.samples);
            age = age.max(cell.age);
        }
    }
    if trust <= 0.0 {
        let state = match profile.stale == Stale::Exclude && is_stale {
            true => State::Excluded,
            false => State::Unknown,
        };
        return (Confidence { trust: 0.0, samples: 0, age: Duration::MAX }, state);
    }
    let state = match profile.stale == Stale::Exclude && is_stale {
        true => State::Excluded,
        false => State::Known,
    };
    (Confidence { trust: trust.min(1.0), samples, age }, state)
}
