//! Conditions that a scan decides once for each series, by the topic alone.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray as _, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode as _;
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::PhysicalExpr;
use skopos_store::history::Series;

use crate::tables::chunk::of_series;
use crate::tables::sample_column::{SampleColumn, sample_schema};

/// A condition on columns that follow from the series.
#[derive(Clone)]
pub(crate) struct SeriesFilter {
    columns: Vec<SampleColumn>,
    condition: Arc<dyn PhysicalExpr>,
}

impl SeriesFilter {
    /// Returns the conditions among `filters` that the series decides; `None` if there is no such condition. `table` has
    /// the columns of the table.
    pub(crate) fn new(
        state: &dyn Session,
        filters: &[Expr],
        table: &[SampleColumn],
    ) -> Result<Option<Self>> {
        let filters = filters.iter().filter(|filter| is_of_series(filter, table));
        let filters: Vec<Expr> = filters.cloned().collect();
        let names: Vec<String> =
            filters.iter().flat_map(Expr::column_refs).map(|column| column.name.clone()).collect();
        let columns =
            SampleColumn::OF_SERIES.into_iter().filter(|c| names.iter().any(|n| n == c.name()));
        let columns: Vec<SampleColumn> = columns.collect();
        let Some(all) = conjunction(filters) else { return Ok(None) };
        let schema = DFSchema::try_from(sample_schema(&columns))?;
        let condition = state.create_physical_expr(all, &schema)?;
        Ok(Some(Self { columns, condition }))
    }

    /// Decides for each series.
    pub(crate) fn selected(&self, all: &[&Series]) -> Result<BooleanArray> {
        let columns = self
            .columns
            .iter()
            .map(|column| of_series(*column, all.iter().map(|series| (*series, 1))));
        // Without columns the condition is a constant.
        let rows = RecordBatchOptions::new().with_row_count(Some(all.len()));
        let schema = sample_schema(&self.columns);
        let batch = RecordBatch::try_new_with_options(schema, columns.collect(), &rows)?;
        let selected = self.condition.evaluate(&batch)?.into_array(all.len())?;
        Ok(selected.as_boolean().clone())
    }
}

/// Returns for each condition if a scan of a table with these columns decides it exactly. The others are applied again to
/// the rows.
pub(crate) fn supported(
    filters: &[&Expr],
    table: &[SampleColumn],
) -> Vec<TableProviderFilterPushDown> {
    let support = |filter: &&Expr| match is_of_series(filter, table) {
        true => TableProviderFilterPushDown::Exact,
        false => TableProviderFilterPushDown::Inexact,
    };
    filters.iter().map(support).collect()
}

/// Returns true if the series alone decides a condition, or if it is a constant, which the planner does not apply again.
fn is_of_series(filter: &Expr, table: &[SampleColumn]) -> bool {
    let columns = filter.column_refs();
    let is_query = |expr: &Expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::OuterReferenceColumn(..)
        ))
    };
    // A table of one topic has its value under the name `metric`.
    let is_known = |name: &str| {
        let mut named = table.iter().filter(|column| column.name() == name);
        named.any(|column| SampleColumn::OF_SERIES.contains(column))
    };
    columns.iter().all(|column| is_known(&column.name))
        && !filter.is_volatile()
        && !filter.exists(is_query).unwrap_or(true)
}
