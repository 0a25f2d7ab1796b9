//! Finds the samples that a scan reads. Samples in memory, on disk and from other nodes are parts of
//! history.
//!
//! A condition on the topic is decided once for each series of a part, by its metadata, and not row by row.
//! So columns that follow from the topic cost nothing unless the answer has them.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use datafusion::error::Result;
use skopos_model::{Timestamp, Topic, unpoisoned};
use skopos_store::history::{Part, Samples, Selection, Series, Stretch};

use crate::context::{ExecutionContext, Missing, failed};
use crate::source::{RemoteSamples, Row, Source, Wanted, When};
use crate::tables::series_filter::SeriesFilter;
use crate::topic_filter::TopicFilter;

/// The samples that a scan reads.
pub(crate) struct SampleScan {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) topics: TopicFilter,
    pub(crate) times: RangeInclusive<Timestamp>,
    pub(crate) filter: Option<SeriesFilter>,
}

/// A part of history, and the rows of it that a scan reads.
pub(crate) type Selected = (Arc<Part>, Arc<Selection>);

/// Pieces of parts that no stream has taken yet.
pub(crate) struct Pieces(Mutex<VecDeque<Piece>>);

/// A piece of a part: one group of its rows.
pub(crate) struct Piece {
    pub(crate) part: Arc<Part>,
    pub(crate) selection: Arc<Selection>,
    pub(crate) group: usize,
}

impl SampleScan {
    /// Returns the same scan of all times until `time`.
    pub(crate) fn until(&self, time: Timestamp) -> Self {
        Self {
            source: self.source.clone(),
            topics: self.topics.clone(),
            times: Timestamp::from_nanos(i64::MIN)..=time,
            filter: self.filter.clone(),
        }
    }

    /// Asks other nodes, and returns the pieces to read.
    pub(crate) async fn pieces(&self, context: &ExecutionContext) -> Result<Pieces> {
        let when = When::During(self.times.clone());
        let remote = self.remote(&when, context).await;
        let mut pieces = VecDeque::new();
        for (part, selection) in self.selected(&remote, &context.missing)? {
            for group in (0..part.groups()).filter(|group| part.may_have(*group, &selection)) {
                let (part, selection) = (part.clone(), selection.clone());
                pieces.push_back(Piece { part, selection, group });
            }
        }
        Ok(Pieces(Mutex::new(pieces)))
    }

    /// Asks other nodes for their samples, and notes those that do not answer.
    pub(crate) async fn remote(&self, when: &When, context: &ExecutionContext) -> RemoteSamples {
        let wanted = self.topics.wanted_of_nodes(&*self.source);
        let remote = match self.source.remote_samples(&wanted, when, context.until) {
            Some(answer) => answer.await,
            None => RemoteSamples::default(),
        };
        context.missing.add(remote.missing.clone());
        remote
    }

    /// Returns the parts that have wanted samples, and the rows with them. Each sample is in one part. Notes damaged
    /// files of history.
    pub(crate) fn selected(
        &self,
        remote: &RemoteSamples,
        missing: &Missing,
    ) -> Result<Vec<Selected>> {
        let answered = &remote.answered;
        let memory = Arc::new(self.memory(remote));
        // The disk may have samples that are in memory as well: it counts until the first of these.
        let mut begins: HashMap<&Topic, i64> = HashMap::new();
        for stretch in memory.stretches() {
            let begin = begins.entry(&stretch.series.topic).or_insert(i64::MAX);
            *begin = stretch.first.as_nanos().min(*begin);
        }
        let stored = self.source.history(&self.times).map_err(failed)?;
        missing.add(stored.damaged.iter().map(ToString::to_string));
        let mut selected = Vec::new();
        for part in remote.parts.iter().chain([&memory]) {
            selected.extend(self.selection(part, |_| i64::MAX)?);
        }
        for part in &stored.parts {
            let below = |topic: &Topic| match answered.contains(topic.node()) {
                true => i64::MIN,
                false => begins.get(topic).copied().unwrap_or(i64::MAX),
            };
            selected.extend(self.selection(part, below)?);
        }
        Ok(selected)
    }

    /// Returns the samples in memory as a part. Of a topic that its node answered for, only samples from
    /// before the answer are taken: the node may have overwritten them already.
    fn memory(&self, remote: &RemoteSamples) -> Part {
        let mut begins: HashMap<&Topic, Timestamp> = HashMap::new();
        for stretch in remote.parts.iter().flat_map(|part| part.stretches()) {
            let begin = begins.entry(&stretch.series.topic).or_insert(stretch.first);
            *begin = stretch.first.min(*begin);
        }
        let mut all: Vec<(Series, Samples)> = Vec::new();
        self.source.samples(self.topics.wanted(), self.times.clone(), &mut |row: &Row<'_>| {
            let of = &row.of;
            let is_answered = begins.get(of.topic).is_some_and(|begin| *begin <= row.sample.time);
            if !self.topics.fits(of.topic) || is_answered {
                return;
            }
            // A source shows the samples of one topic one after the other.
            let is_next = all.last().is_some_and(|(series, _)| series.topic == *of.topic);
            if !is_next {
                let (topic, unit, kind) = (of.topic.clone(), of.unit, of.kind);
                let (value_type, since) = (of.value_type, Timestamp::default());
                all.push((Series { topic, unit, kind, value_type, since }, Samples::default()));
            }
            if let Some((_, samples)) = all.last_mut() {
                samples.push(row.sample);
            }
        });
        Part::of_samples(all)
    }

    /// Returns the wanted rows of a part, of each topic before the time that `below` returns.
    fn selection(
        &self,
        part: &Arc<Part>,
        below: impl Fn(&Topic) -> i64,
    ) -> Result<Option<Selected>> {
        let stretches = self.stretches(part.stretches())?;
        let stretches: Vec<(usize, i64)> = stretches
            .into_iter()
            .map(|at| (at, below(&part.stretches()[at].series.topic)))
            .filter(|(at, below)| part.stretches()[*at].first.as_nanos() < *below)
            .collect();
        let times = self.times.start().as_nanos()..=self.times.end().as_nanos();
        let is_any = !stretches.is_empty();
        Ok(is_any.then(|| (part.clone(), Arc::new(Selection { stretches, times }))))
    }

    /// Returns the positions of the wanted stretches of a part, in order.
    fn stretches(&self, stretches: &[Stretch]) -> Result<Vec<usize>> {
        let topic = |at: usize| stretches[at].series.topic.as_str();
        let from = |text: &str| stretches.partition_point(|s| s.series.topic.as_str() < text);
        let mut found: Vec<usize> = match self.topics.wanted() {
            Wanted::All => (0..stretches.len()).collect(),
            Wanted::These(topics) => topics
                .iter()
                .flat_map(|one| {
                    (from(one.as_str())..stretches.len())
                        .take_while(|at| stretches[*at].series.topic == *one)
                })
                .collect(),
            Wanted::Starting(starts) => starts
                .iter()
                .flat_map(|start| {
                    let all = from(start)..stretches.len();
                    all.take_while(move |at| topic(*at).starts_with(start.as_str()))
                })
                .collect(),
        };
        found.sort_unstable();
        found.dedup();
        found.retain(|at| {
            let Stretch { series, first, last, .. } = &stretches[*at];
            first <= self.times.end()
                && last >= self.times.start()
                && self.topics.fits(&series.topic)
        });
        let Some(filter) = &self.filter else { return Ok(found) };
        let series: Vec<&Series> = found.iter().map(|at| &stretches[*at].series).collect();
        let selected = filter.selected(&series)?;
        let mut selected = selected.iter();
        found.retain(|_| selected.next().flatten() == Some(true));
        Ok(found)
    }
}

impl Pieces {
    pub(crate) fn next(&self) -> Option<Piece> {
        unpoisoned(self.0.lock()).pop_front()
    }
}
