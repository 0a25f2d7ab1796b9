//! Reads the samples of a scan, piece by piece, in as many streams as there are threads.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use skopos_store::history::{self, Chunks, Part};
use tokio::sync::OnceCell;

use crate::context::{ExecutionContext, Missing};
use crate::tables::chunk::{of_chunk, stored};
use crate::tables::sample_column::{SampleColumn, sample_schema};
use crate::tables::sample_scan::{Piece, Pieces, SampleScan};

/// The streams of a scan, which share its pieces. The pieces are found when the first stream is executed, so
/// a plan that is executed again reads the samples of that time.
#[derive(Clone)]
pub(crate) struct SampleStream {
    schema: SchemaRef,
    columns: Arc<[SampleColumn]>,
    scan: Arc<SampleScan>,
    pieces: Arc<OnceCell<Pieces>>,
}

impl SampleStream {
    pub(crate) fn new(columns: Arc<[SampleColumn]>, scan: SampleScan) -> Self {
        let schema = sample_schema(&columns);
        Self { schema, columns, scan: Arc::new(scan), pieces: Arc::default() }
    }

    /// Starts one of the streams.
    pub(crate) fn start(
        &self,
        context: Arc<ExecutionContext>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { schema, columns, scan, pieces } = self.clone();
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
