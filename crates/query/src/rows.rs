//! The rows that a scan of a table returns.

use std::error::Error;
use std::fmt;

use datafusion::arrow::array::RecordBatch;
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
