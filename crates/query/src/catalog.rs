//! What a program may ask of the tables before it asks them: their names, and the columns of an answer.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::SchemaProvider as _;
use datafusion::logical_expr::LogicalPlan;

use crate::Error;
use crate::engine::Engine;

/// The one catalog.
pub const CATALOG: &str = "skopos";

/// Its one schema.
pub const SCHEMA: &str = "live";

impl Engine {
    /// Names of tables: all but those of one topic each, which the table `topics` lists.
    pub fn table_names(&self) -> Vec<String> {
        self.tables.table_names()
    }

    /// The columns of a table; `None` if there is none of that name. A topic is a table too.
    pub async fn table_schema(&self, name: &str) -> Option<SchemaRef> {
        Some(self.tables.table(name).await.ok()??.schema())
    }

    /// The columns that an answer will have.
    ///
    /// # Errors
    /// It is no question that can be answered.
    pub async fn describe(&self, sql: &str) -> Result<SchemaRef, Error> {
        if let Some(answer) = self.point(sql) {
            return Ok(answer.schema);
        }
        self.schema_of(sql, self.kept_plan(sql).await?).await
    }

    /// As it is once types were brought together.
    pub(crate) async fn schema_of(&self, sql: &str, plan: LogicalPlan) -> Result<SchemaRef, Error> {
        let state = self.context.state();
        let checked = async move {
            let (analyzer, options) = (state.analyzer(), state.config_options());
            Ok(analyzer.execute_and_check(plan, options, |_, _| {}))
        };
        let plan = self.pool.run(checked).await?.map_err(|e| self.explained(e, sql))?;
        Ok(plan.schema().inner().clone())
    }
}
