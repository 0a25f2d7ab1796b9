//! The rows that a scan of a table returns.

use std::error::Error;
use std::fmt;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};

/// An error of a table. The engine shows it with its causes.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The rows that a scan of a table returns, in batches that are made when the query takes them.
pub struct Rows(BoxStream<'static, Result<RecordBatch, BoxError>>);

impl Rows {
    /// Returns one batch.
    pub fn of(batch: RecordBatch) -> Self {
        Self::each([Ok(batch)])
    }

    /// Returns batches one by one. The query takes the next item when it has used the last one, so an
    /// iterator that reads a file reads only what the query needs.
    pub fn each<I>(batches: I) -> Self
    where
        I: IntoIterator<Item = Result<RecordBatch, BoxError>>,
        I::IntoIter: Send + 'static,
    {
        Self(stream::iter(batches).boxed())
    }

    /// Replaces every batch by what `change` makes of it.
    #[must_use]
    pub fn map(
        self,
        mut change: impl FnMut(RecordBatch) -> Result<RecordBatch, BoxError> + Send + 'static,
    ) -> Self {
        Self(self.0.map(move |batch| batch.and_then(&mut change)).boxed())
    }

    /// Adds the batches of `next` after those of `self`.
    #[must_use]
    pub fn chain(self, next: Self) -> Self {
        Self(self.0.chain(next.0).boxed())
    }

    pub(crate) fn of_stream(batches: BoxStream<'static, Result<RecordBatch, BoxError>>) -> Self {
        Self(batches)
    }

    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<RecordBatch, BoxError>> {
        self.0
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rows")
    }
}

/// Returns the error of a table as one of DataFusion.
pub(crate) fn failed(error: BoxError) -> DataFusionError {
    DataFusionError::External(error)
}

/// Returns a batch with the wanted schema, or an error if the table made other columns.
pub(crate) fn checked(
    table: &str,
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, DataFusionError> {
    let types = |schema: &SchemaRef| -> Vec<String> {
        schema.fields().iter().map(|field| field.data_type().to_string()).collect()
    };
    let is_wanted = batch.num_columns() == schema.fields().len()
        && batch.columns().iter().zip(schema.fields()).all(|(c, f)| c.data_type() == f.data_type());
    if !is_wanted {
        let (made, wanted) = (types(&batch.schema()).join(", "), types(schema).join(", "));
        let problem =
            format!("the table `{table}` made columns of {made} and had to make {wanted}");
        return Err(failed(problem.into()));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
