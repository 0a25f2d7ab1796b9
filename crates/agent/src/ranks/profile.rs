//! One `[[rank]]`: the inputs of its ranking, the ranking, and its facts.

use std::path::Path;
use std::time::{Duration, Instant};

use skopos_model::Timestamp;
use skopos_shm::{Group, Publisher, VertexWriter};
use skopos_steer::rank::{Basis, Collection, Inputs, Outcome, Profile, Ranker, Ranking};
use skopos_term::Failure;

use super::counts::ProfileCounts;
use super::learned_file::LearnedFile;
use super::rank::RankFacts;
use super::rank_profile::{ProfileFacts, ProfileState, reasons};
use super::recording::Recording;
use super::source::{Source, Vertices, combined};
use crate::config::{RankConfig, filled};
use crate::control::OutcomeReport;
use crate::event::Event;
use crate::probe::thread_time;
use crate::sink::{Counts, SegmentSink, Yielded};

/// Intervals for which a ranking is valid: a late ranking on a busy machine takes no client its ranks.
const VALID_INTERVALS: u32 = 5;

/// The seed of the order of candidates with equal scores.
const SEED: u64 = 1;

/// The sources of a metric of a candidate.
#[derive(Default)]
struct Cell {
    own: Vec<Source>,
    /// Sources of other nodes about the candidate, by node.
    peers: Vec<Vec<Source>>,
}

/// A profile with its candidates.
pub(super) struct RankedProfile {
    config: RankConfig,
    /// Names of the candidates, in the order of the configuration.
    names: Vec<String>,
    ranker: Ranker,
    /// By candidate, then by metric.
    cells: Vec<Cell>,
    inputs: Inputs,
    ranking: Option<Ranking>,
    recording: Option<Recording>,
    learned: Option<LearnedFile>,
    counts: ProfileCounts,
    /// Processor time of the last ranking.
    spent: Duration,
    due: Duration,
    group: Group,
    writers: Vec<Option<VertexWriter>>,
    yielded: Yielded,
    /// Ids of the facts, once they are registered.
    facts: Option<(ProfileFacts, Vec<RankFacts>)>,
}

impl RankedProfile {
    /// Makes the ranker of a configuration that was checked. It goes on with the learned weights in the folder `state`.
    ///
    /// # Errors
    /// The profile is not valid; the segment has no room for another group; the system has no more threads.
    pub(super) fn new(
        config: &RankConfig,
        state: Option<&Path>,
        publisher: &Publisher,
    ) -> Result<Self, Failure> {
        let profile = &config.profile;
        let wrong = |e: &dyn std::error::Error| {
            Failure::new(format!("[[rank]] `{}`", profile.name)).because(e)
        };
        let mut ranker = Ranker::new(profile.clone(), SEED).map_err(|e| wrong(&e))?;
        let group = publisher.group(&format!("rank:{}", profile.name)).map_err(|e| wrong(&e))?;
        let record = |path| Recording::new(path, config.record_max_bytes(), profile);
        let recording = config.record.as_deref().map(record).transpose();
        let recording = recording.map_err(|e| wrong(&e))?;
        let path = state.map(|folder| folder.join(format!("{}.json", profile.name)));
        let learned = path.map(|path| LearnedFile::open(&path, &mut ranker)).transpose();
        let learned = learned.map_err(|e| wrong(&e))?.flatten();
        let cells = config.candidates.len() * profile.metrics.len();
        Ok(Self {
            names: config.candidates.iter().map(|c| c.name.clone()).collect(),
            ranker,
            cells: std::iter::repeat_with(Cell::default).take(cells).collect(),
            inputs: Inputs::new(config.candidates.len(), profile.metrics.len()),
            ranking: None,
            recording,
            learned,
            counts: ProfileCounts::default(),
            spent: Duration::ZERO,
            due: Duration::ZERO,
            group,
            writers: Vec::new(),
            yielded: Yielded::default(),
            facts: None,
            config: config.clone(),
        })
    }

    /// Returns the name of the profile.
    pub(super) fn name(&self) -> &str {
        &self.config.profile.name
    }

    /// Returns its configuration.
    pub(super) fn config(&self) -> &RankConfig {
        &self.config
    }

    /// Returns its ranker.
    pub(super) fn ranker(&self) -> &Ranker {
        &self.ranker
    }

    /// Returns the last ranking.
    pub(super) fn ranking(&self) -> Option<&Ranking> {
        self.ranking.as_ref()
    }

    /// Returns its counts.
    pub(super) fn counts(&self) -> ProfileCounts {
        let recording = self.recording.as_ref();
        ProfileCounts {
            recorded: recording.map_or(0, Recording::recorded),
            left_out: recording.map_or(0, Recording::left_out),
            weights_not_kept: self.learned.as_ref().map_or(0, LearnedFile::failures),
            ..self.counts
        }
    }

    /// Returns the reason why outcomes cannot be recorded.
    pub(super) fn record_error(&self) -> Option<String> {
        self.recording.as_ref().and_then(Recording::error)
    }

    /// Returns the reason why the learned weights could not be read.
    pub(super) fn unread_weights(&self) -> Option<&str> {
        self.learned.as_ref()?.unread()
    }

    /// Keeps the learned weights if it is time, `now` on the monotonic clock.
    pub(super) fn save_when_due(&mut self, now: Duration) {
        if let Some(learned) = &mut self.learned {
            learned.save_when_due(&self.ranker, now);
        }
    }

    /// Returns the time after a ranking for which it is valid.
    pub(super) fn valid(&self) -> Duration {
        self.config.every() * VALID_INTERVALS
    }

    /// Returns the processor time of the last ranking.
    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns the time of the next ranking, on the monotonic clock.
    pub(super) fn due(&self) -> Duration {
        self.due
    }

    /// Sets the time of the next ranking.
    pub(super) fn set_due(&mut self, due: Duration) {
        self.due = due;
    }

    /// Finds the vertices of all values anew.
    pub(super) fn find_sources(&mut self, node: &str, vertices: &Vertices<'_>) {
        let metrics = &self.config.profile.metrics;
        for (at, candidate) in self.config.candidates.iter().enumerate() {
            let row = self.cells.iter_mut().skip(at * metrics.len());
            for (cell, metric) in row.zip(metrics) {
                let pattern =
                    |template: &Option<String>| filled(template.as_deref()?, node, candidate).ok();
                let Cell { own, peers } = std::mem::take(cell);
                let mut before: Vec<Source> =
                    own.into_iter().chain(peers.into_iter().flatten()).collect();
                let own = pattern(&metric.topic);
                cell.own = own.map_or_else(Vec::new, |p| vertices.sources(&p, |_| true));
                // The candidate's own word is not that of a peer.
                let is_peer = |topic: &skopos_model::Topic| topic.node() != candidate.node;
                let peers = pattern(&metric.peers);
                let peers = peers.map_or_else(Vec::new, |p| vertices.sources(&p, is_peer));
                cell.peers = by_node(peers);
                let found = cell.own.iter_mut().chain(cell.peers.iter_mut().flatten());
                found.for_each(|source| source.adopt(&mut before));
            }
        }
    }

    /// Reads all values, ranks the candidates and publishes their ranks.
    pub(super) fn rank(&mut self, node: &str, time: Timestamp, counts: &mut Counts) {
        let started = thread_time();
        self.read(time);
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        // The configuration was checked, so the ranker takes these candidates.
        let Ok(ranking) = self.ranker.rank(time, &names, &self.inputs) else { return };
        if let Some(recording) = &mut self.recording {
            recording.next_ranking();
        }
        self.publish(node, time, &ranking, counts);
        self.ranking = Some(ranking);
        self.spent = thread_time().saturating_sub(started);
    }

    fn read(&mut self, now: Timestamp) {
        self.inputs.clear();
        let metrics = &self.config.profile.metrics;
        let relaxed = self.ranker.utility();
        for (at, cell) in self.cells.iter_mut().enumerate() {
            let (candidate, column) = (at / metrics.len(), at % metrics.len());
            let metric = &metrics[column];
            let rule = (metric.combine, metric.better);
            // A read without a mark leaves the sensor its own interval.
            let mark = relaxed.collection(column) == Collection::Full;
            if let Some(reading) = combined(&mut cell.own, rule, now, mark) {
                self.inputs.set(candidate, column, reading);
            }
            for peer in &mut cell.peers {
                if let Some(reading) = combined(peer, rule, now, mark) {
                    self.inputs.add_peer(candidate, column, reading);
                }
            }
        }
        self.counts.values_refused = self.inputs.refused();
    }

    fn publish(&mut self, node: &str, time: Timestamp, ranking: &Ranking, counts: &mut Counts) {
        let state = ProfileState {
            candidates: self.names.len(),
            is_native: ranking.basis() == Basis::Native,
            valid_seconds: self.valid().as_secs_f64(),
            rank_seconds: self.spent.as_secs_f64(),
            relaxed_metrics: self.relaxed().filter(|is_relaxed| *is_relaxed).count(),
            counts: self.counts(),
        };
        let reasons = reasons(ranking, &self.names);
        self.yielded.clear();
        let tick = self.group.tick(time);
        let mut sink = SegmentSink::new(tick, &mut self.writers, node, &mut self.yielded);
        let profile = &self.config.profile.name;
        let (profile_facts, rank_facts) = self.facts.get_or_insert_with(|| {
            let profile_facts = ProfileFacts::register(&mut sink, profile);
            let ranks = self.names.iter();
            (profile_facts, ranks.map(|c| RankFacts::register(&mut sink, profile, c)).collect())
        });
        profile_facts.publish(&mut sink, state, &reasons);
        for (at, ranked) in ranking.entries().iter().enumerate() {
            rank_facts[ranked.candidate].publish(&mut sink, at + 1, ranked);
        }
        let (published, _) = sink.finish(true);
        counts.add(&published);
    }

    /// Returns for each metric whether its collection is relaxed.
    pub(super) fn relaxed(&self) -> impl Iterator<Item = bool> + '_ {
        let utility = self.ranker.utility();
        let metrics = 0..self.config.profile.metrics.len();
        metrics.map(|at| utility.collection(at) == Collection::Relaxed)
    }

    /// Takes the outcome of a request.
    ///
    /// # Errors
    /// The candidate was not in the last ranking, or the cost or the probability is not valid.
    pub(super) fn learn(&mut self, report: &OutcomeReport) -> Result<(), String> {
        let OutcomeReport { candidate, seconds, failed, probability } = report;
        let outcome = Outcome { candidate, seconds: *seconds, failed: *failed };
        let learned = match probability {
            Some(p) if !(*p > 0.0 && *p <= 1.0) => {
                Err(format!("the probability {p} is not above 0 and at most 1"))
            }
            _ => self.ranker.learn(&outcome).map_err(|e| e.to_string()),
        };
        if learned.is_err() {
            self.counts.outcomes_refused += 1;
            return learned;
        }
        self.counts.outcomes += 1;
        if let (Some(recording), Some(ranking)) = (&mut self.recording, &self.ranking) {
            recording.write(ranking, &self.names, &outcome, *probability);
        }
        Ok(())
    }

    /// Returns the profile that was configured.
    pub(super) fn profile(&self) -> &Profile {
        &self.config.profile
    }

    /// Keeps the learned weights a last time, and ends its files.
    pub(super) fn close(&mut self) {
        if let Some(learned) = &mut self.learned {
            learned.save(&self.ranker);
            learned.close();
        }
        if let Some(recording) = &mut self.recording {
            recording.close();
        }
    }

    /// Waits for its files, which are closed, until a point in time. Returns an event if something is not written then.
    pub(super) fn end(&self, until: Instant) -> Option<Event> {
        let outcomes = self.recording.as_ref().map_or(0, |recording| recording.end(until));
        let weights = self.learned.as_ref().is_some_and(|learned| !learned.end(until));
        let profile = self.name().to_owned();
        (outcomes > 0 || weights).then_some(Event::RankUnwritten { profile, outcomes, weights })
    }
}

/// Divides sources in the order of topics by their nodes: a node that publishes twice is one peer.
fn by_node(sources: Vec<Source>) -> Vec<Vec<Source>> {
    let mut nodes: Vec<Vec<Source>> = Vec::new();
    for source in sources {
        match nodes.last_mut() {
            Some(last) if last.first().is_some_and(|s| s.node() == source.node()) => {
                last.push(source);
            }
            _ => nodes.push(vec![source]),
        }
    }
    nodes
}
