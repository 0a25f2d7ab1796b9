//! Reads the samples of a scan, piece by piece, in as many streams as there are threads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use skopos_model::unpoisoned;
use skopos_store::history::{self, Chunks, Part};
use tokio::sync::OnceCell;

use crate::context::{ExecutionContext, Missing};
use crate::tables::chunk::{of_chunk, stored};
use crate::tables::sample_column::{SampleColumn, sample_schema};
use crate::tables::sample_scan::{Piece, Pieces, SampleScan};

/// One of the streams of a scan, which share its pieces. The pieces are found when the first stream of a round is
/// executed. A plan can be executed in several rounds, each of which reads the samples of its time: a recursive query
/// does so.
pub(crate) struct SampleStream {
    schema: SchemaRef,
    columns: Arc<[SampleColumn]>,
    scan: Arc<SampleScan>,
    rounds: Arc<Rounds>,
    /// Number of rounds in which this stream was executed.
    executed: AtomicUsize,
}

/// The pieces of the last rounds.
#[derive(Default)]
struct Rounds(Mutex<BTreeMap<usize, Arc<OnceCell<Pieces>>>>);

impl Rounds {
    fn pieces(&self, round: usize) -> Arc<OnceCell<Pieces>> {
        let mut rounds = unpoisoned(self.0.lock());
        // A stream of the round before may begin later than this one.
        rounds.retain(|other, _| *other + 1 >= round);
        rounds.entry(round).or_default().clone()
    }
}

impl SampleStream {
    pub(crate) fn new(columns: Arc<[SampleColumn]>, scan: SampleScan) -> Self {
        let (schema, executed) = (sample_schema(&columns), AtomicUsize::new(0));
        Self { schema, columns, scan: Arc::new(scan), rounds: Arc::default(), executed }
    }

    /// Returns another stream of the scan.
    pub(crate) fn another(&self) -> Self {
        let Self { schema, columns, scan, rounds, .. } = self;
        let (schema, columns, scan) = (schema.clone(), columns.clone(), scan.clone());
        Self { schema, columns, scan, rounds: rounds.clone(), executed: AtomicUsize::new(0) }
    }

    /// Starts the stream.
    pub(crate) fn start(
        &self,
        context: Arc<ExecutionContext>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { schema, columns, scan, rounds, executed } = self;
        let pieces = rounds.pieces(executed.fetch_add(1, Ordering::Relaxed));
        let (schema, columns, scan) = (schema.clone(), columns.clone(), scan.clone());
        let begin = async move {
            pieces.get_or_try_init(|| scan.pieces(&context)).await?;
            let stored = stored(&columns);
            let missing = context.missing.clone();
            let reading = Reading { columns, stored, schema, pieces, missing, current: None };
            let next = |mut reading: Reading| async move {
                Ok::<_, DataFusionError>(reading.next()?.map(|batch| (batch, reading)))
            };
            Ok::<_, DataFusionError>(stream::try_unfold(reading, next))
        };
        stream::once(begin).try_flatten().boxed()
    }
}

impl fmt::Debug for SampleStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SampleScan { topics, times, .. } = &*self.scan;
        let mut shown = f.debug_struct("SampleStream");
        shown.field("wanted", topics.wanted()).field("times", times).finish_non_exhaustive()
    }
}

impl PartitionStream for SampleStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches = self.start(ExecutionContext::of(&context));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

/// The state of one stream.
struct Reading {
    columns: Arc<[SampleColumn]>,
    stored: Vec<history::Column>,
    schema: SchemaRef,
    /// Found before the stream begins.
    pieces: Arc<OnceCell<Pieces>>,
    missing: Missing,
    current: Option<(Arc<Part>, Chunks)>,
}

impl Reading {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some((part, chunks)) = &mut self.current else {
                let next = self.pieces.get().and_then(Pieces::next);
                let Some(Piece { part, selection, group }) = next else { return Ok(None) };
                match part.read(group, &self.stored, &selection) {
                    Ok(chunks) => self.current = Some((part, chunks)),
                    Err(e) => self.missing.add_damaged(e)?,
                }
                continue;
            };
            match chunks.next() {
                None => self.current = None,
                Some(Err(e)) => self.missing.add_damaged(e)?,
                Some(Ok(chunk)) => {
                    if !chunk.runs.is_empty() {
                        let schema = self.schema.clone();
                        return of_chunk(&self.columns, schema, part.stretches(), chunk).map(Some);
                    }
                }
            }
        }
    }
}
