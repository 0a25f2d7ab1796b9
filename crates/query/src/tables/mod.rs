//! The tables over a [`Source`](crate::Source): samples, latest values, topics and nodes. Other tables come
//! from other crates; see [`Table`](crate::Table).
//!
//! Most are registered like those of other crates (`registered`). `samples`, the table of one topic and
//! `latest_at` are read in several streams (`sample_stream`), and decide conditions on topics once a series
//! (`series_filter`).

/// Implements `TableProvider::scan` for a table that plans its scans without waiting, in its method `plan`.
///
/// The future must be `Send`. For an `async fn` that holds the filters the compiler proves this through every type
/// of the SQL syntax, which takes long. A ready future holds only the finished plan.
macro_rules! scan_by_plan {
    () => {
        fn scan<'table, 'session, 'columns, 'filters, 'all>(
            &'table self,
            session: &'session dyn datafusion::catalog::Session,
            projection: Option<&'columns Vec<usize>>,
            filters: &'filters [datafusion::logical_expr::Expr],
            limit: Option<usize>,
        ) -> futures_util::future::BoxFuture<
            'all,
            datafusion::error::Result<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>>,
        >
        where
            'table: 'all,
            'session: 'all,
            'columns: 'all,
            'filters: 'all,
            Self: 'all,
        {
            Box::pin(std::future::ready(self.plan(session, projection, filters, limit)))
        }
    };
}

mod latest;
mod shared_latest;
mod wide;
mod topics;
mod nodes;
mod listing;
mod registered;
mod samples;
mod latest_at;
mod pushdown;
mod series_filter;
mod sample_column;
mod batch;
mod chunk;
mod sample_scan;
mod sample_stream;
mod sample_reader;
mod last;

pub(crate) use batch::SampleBatch;
pub(crate) use latest::{LATEST, LatestTable};
pub use latest::{latest_columns, latest_samples};
pub(crate) use latest_at::{LATEST_AT, LatestAt, LatestAtTable};
pub(crate) use listing::{ColumnListing, Listed, Listing, TableListing};
pub(crate) use nodes::NodeTable;
pub(crate) use pushdown::{beginning, times, topic_filter};
pub(crate) use registered::RegisteredTable;
pub(crate) use sample_column::{SampleColumn, value};
pub use sample_reader::SampleReader;
pub(crate) use samples::{OF_A_TOPIC, SampleTable};
pub(crate) use shared_latest::SharedLatest;
pub(crate) use topics::TopicTable;
pub(crate) use wide::WideTable;
