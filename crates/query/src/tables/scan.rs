//! Scans samples: those in memory, on disk and on other nodes are parts, read piece by piece in as many
//! streams as there are threads.
//!
//! What is asked of a topic is decided once for each series of a part, by its metadata, and not row by
//! row; so the columns that follow from the topic cost nothing unless they are shown.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{AsArray as _, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use skopos_model::{Timestamp, Topic, unpoisoned};
use skopos_store::history::{self, Chunk, Chunks, Part, Samples, Selection, Series, Stretch};
use tokio::sync::OnceCell;

use super::columns::{Column, of_chunk, of_series, schema_of};
use super::subset::Subset;
use crate::context::ExecutionContext;
use crate::source::{Elsewhere, Row, Source, Wanted, When};

/// What is to be scanned.
pub(crate) struct Ask {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) which: Subset,
    pub(crate) wanted: Wanted,
    pub(crate) times: RangeInclusive<Timestamp>,
    pub(crate) filter: Option<TopicFilter>,
}

/// A condition on columns that follow from the topic.
#[derive(Clone)]
pub(crate) struct TopicFilter {
    pub(crate) columns: Vec<Column>,
    pub(crate) condition: Arc<dyn PhysicalExpr>,
}

/// One of the streams of a scan. They share its work: read when it is executed, since a plan may be
/// executed again and then shows what is there then.
pub(crate) struct Scan {
    pub(crate) schema: SchemaRef,
    pub(crate) columns: Arc<[Column]>,
    pub(crate) ask: Arc<Ask>,
    pub(crate) work: Arc<OnceCell<Arc<Work>>>,
}

/// Pieces of parts that nobody has taken yet.
pub(crate) struct Work {
    pieces: Mutex<VecDeque<Piece>>,
}

/// A piece of a part.
pub(crate) struct Piece {
    pub(crate) part: Arc<Part>,
    pub(crate) selection: Arc<Selection>,
    pub(crate) group: usize,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ask { wanted, times, .. } = &*self.ask;
        f.debug_struct("Scan").field("wanted", wanted).field("times", times).finish_non_exhaustive()
    }
}

pub(crate) fn failed(error: history::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Ask {
    /// The same of all times until then.
    pub(crate) fn until(&self, time: Timestamp) -> Self {
        Self {
            source: self.source.clone(),
            which: self.which.clone(),
            wanted: self.wanted.clone(),
            times: Timestamp::from_nanos(i64::MIN)..=time,
            filter: self.filter.clone(),
        }
    }

    /// Finds out what there is to read.
    pub(crate) async fn work(&self, asking: &ExecutionContext) -> Result<Arc<Work>> {
        let when = When::During(self.times.clone());
        let wanted = self.which.of_nodes(&self.wanted, &*self.source);
        let elsewhere = match self.source.elsewhere(&wanted, &when, asking.until) {
            Some(asked) => asked.await,
            None => Elsewhere::default(),
        };
        asking.missing.add(elsewhere.missing.clone());
        let mut pieces = VecDeque::new();
        for (part, selection) in self.found(&elsewhere)? {
            for group in (0..part.groups()).filter(|group| part.may_have(*group, &selection)) {
                let (part, selection) = (part.clone(), selection.clone());
                pieces.push_back(Piece { part, selection, group });
            }
        }
        Ok(Arc::new(Work { pieces: Mutex::new(pieces) }))
    }

    /// The parts that have anything that is wanted, and what of them; each sample is in one.
    pub(crate) fn found(&self, elsewhere: &Elsewhere) -> Result<Vec<(Arc<Part>, Arc<Selection>)>> {
        let answered = &elsewhere.answered;
        let memory = Arc::new(self.memory(elsewhere)?);
        // What is in memory is not taken from disk again.
        let mut begins: HashMap<&Topic, i64> = HashMap::new();
        for stretch in memory.stretches() {
            let begin = begins.entry(&stretch.series.topic).or_insert(i64::MAX);
            *begin = stretch.first.as_nanos().min(*begin);
        }
        let stored = self.source.history(&self.times).map_err(failed)?;
        let mut found = Vec::new();
        for part in elsewhere.parts.iter().chain([&memory]) {
            found.extend(self.selection(part, |_| i64::MAX)?);
        }
        for part in &stored {
            let below = |topic: &Topic| match answered.contains(topic.node()) {
                true => i64::MIN,
                false => begins.get(topic).copied().unwrap_or(i64::MAX),
            };
            found.extend(self.selection(part, below)?);
        }
        Ok(found)
    }

    /// What is in memory, but of nodes that answered only what is older than their answer: they may have
    /// overwritten it.
    fn memory(&self, elsewhere: &Elsewhere) -> Result<Part> {
        let mut begins: HashMap<&Topic, Timestamp> = HashMap::new();
        for stretch in elsewhere.parts.iter().flat_map(|part| part.stretches()) {
            let begin = begins.entry(&stretch.series.topic).or_insert(stretch.first);
            *begin = stretch.first.min(*begin);
        }
        let mut all: Vec<(Series, Samples)> = Vec::new();
        self.source.samples(&self.wanted, self.times.clone(), &mut |row: &Row<'_>| {
            let of = &row.of;
            let is_answered = begins.get(of.topic).is_some_and(|begin| *begin <= row.sample.time);
            if !self.which.selects(of.topic) || is_answered {
                return;
            }
            // Those of one topic follow each other.
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
        Ok(Part::of_samples(all)?)
    }

    fn selection(
        &self,
        part: &Arc<Part>,
        below: impl Fn(&Topic) -> i64,
    ) -> Result<Option<(Arc<Part>, Arc<Selection>)>> {
        let stretches = self.select(part.stretches())?;
        let stretches: Vec<(usize, i64)> = stretches
            .into_iter()
            .map(|at| (at, below(&part.stretches()[at].series.topic)))
            .filter(|(at, below)| part.stretches()[*at].first.as_nanos() < *below)
            .collect();
        let times = self.times.start().as_nanos()..=self.times.end().as_nanos();
        let is_any = !stretches.is_empty();
        Ok(is_any.then(|| (part.clone(), Arc::new(Selection { stretches, times }))))
    }

    /// The stretches of a part that are wanted, in order.
    pub(crate) fn select(&self, stretches: &[Stretch]) -> Result<Vec<usize>> {
        let topic = |at: usize| stretches[at].series.topic.as_str();
        let from = |text: &str| stretches.partition_point(|s| s.series.topic.as_str() < text);
        let mut found: Vec<usize> = match &self.wanted {
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
                && self.which.selects(&series.topic)
        });
        let Some(filter) = &self.filter else { return Ok(found) };
        let series: Vec<&Series> = found.iter().map(|at| &stretches[*at].series).collect();
        let selected = filter.selected(&series)?;
        let mut selected = selected.iter();
        found.retain(|_| selected.next().flatten() == Some(true));
        Ok(found)
    }
}

impl TopicFilter {
    fn selected(&self, all: &[&Series]) -> Result<BooleanArray> {
        let columns = self
            .columns
            .iter()
            .map(|column| of_series(*column, all.iter().map(|series| (*series, 1))));
        let batch = RecordBatch::try_new(schema_of(&self.columns), columns.collect())?;
        let selected = self.condition.evaluate(&batch)?.into_array(all.len())?;
        Ok(selected.as_boolean().clone())
    }
}

impl Work {
    pub(crate) fn next(&self) -> Option<Piece> {
        unpoisoned(self.pieces.lock()).pop_front()
    }
}

/// What one stream is about to read.
struct Reading {
    columns: Arc<[Column]>,
    stored: Vec<history::Column>,
    schema: SchemaRef,
    work: Arc<Work>,
    current: Option<(Arc<Part>, Chunks)>,
}

impl Reading {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some((part, chunks)) = &mut self.current else {
                let Some(Piece { part, selection, group }) = self.work.next() else {
                    return Ok(None);
                };
                match part.read(group, &self.stored, &selection) {
                    Ok(chunks) => self.current = Some((part, chunks)),
                    // Retention came first: it is history no more.
                    Err(e) if e.is_gone() => {}
                    Err(e) => return Err(failed(e)),
                }
                continue;
            };
            match chunks.next() {
                None => self.current = None,
                Some(chunk) => {
                    let Chunk { batch, runs } = chunk.map_err(failed)?;
                    if !runs.is_empty() {
                        let of = (part.stretches(), &runs[..]);
                        let schema = self.schema.clone();
                        return of_chunk(&self.columns, schema, &self.stored, &batch, of).map(Some);
                    }
                }
            }
        }
    }
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (ask, work) = (self.ask.clone(), self.work.clone());
        let (columns, schema) = (self.columns.clone(), self.schema.clone());
        let stored = Column::stored(&columns);
        let begin = async move {
            let asking = ExecutionContext::of(&context);
            let work = work.get_or_try_init(|| ask.work(&asking)).await?.clone();
            let reading = Reading { columns, stored, schema, work, current: None };
            let next = |mut reading: Reading| async move {
                Ok::<_, DataFusionError>(reading.next()?.map(|batch| (batch, reading)))
            };
            Ok::<_, DataFusionError>(futures_util::stream::try_unfold(reading, next))
        };
        let stream = futures_util::TryStreamExt::try_flatten(futures_util::stream::once(begin));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream))
    }
}
