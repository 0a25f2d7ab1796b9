//! `insights`: as `latest`, with what computes each one and why it has no value.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::Result;

use super::columns::{Batch, schema_of};
use super::latest::LATEST;
use super::made::{Asked, Rows};
use super::subset::Subset;
use crate::source::{Row, Source, Wanted};

/// The latest value of each insight.
#[derive(Clone)]
pub(crate) struct InsightTable {
    source: Arc<dyn Source>,
}

impl InsightTable {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self { source }
    }

    fn batch(&self, wanted: &Wanted) -> Result<RecordBatch> {
        let part = Subset::Below("insight");
        let mut batch = Batch::new(LATEST, self.source.now());
        let (mut formulas, mut reasons) = (StringBuilder::new(), StringBuilder::new());
        let mut topics = Vec::new();
        self.source.latest(wanted, &mut |row: &Row<'_>| {
            if part.selects(row.of.topic) {
                batch.push(row);
                topics.push(row.of.topic.clone());
            }
        });
        // Not while the source shows its rows, which may hold locks.
        for topic in &topics {
            let about = self.source.about(topic);
            formulas.append_option(about.formula);
            reasons.append_option(about.reason);
        }
        let own: [ArrayRef; 2] = [Arc::new(formulas.finish()), Arc::new(reasons.finish())];
        let columns = batch.take()?.columns().iter().cloned().chain(own).collect();
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }
}

impl fmt::Debug for InsightTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InsightTable")
    }
}

impl Rows for InsightTable {
    fn schema(&self) -> SchemaRef {
        let own =
            ["formula", "reason"].map(|name| Arc::new(Field::new(name, DataType::Utf8, true)));
        let latest = schema_of(LATEST);
        Arc::new(Schema::new(latest.fields().iter().cloned().chain(own).collect::<Vec<_>>()))
    }

    fn batches(&self, asked: &Asked) -> Vec<Result<RecordBatch>> {
        asked.of(self.batch(&asked.wanted))
    }
}
