//! The engine: the interface of this crate for programs that ask.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::SchemaProvider as _;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use skopos_access::{Action, Caller, may};
use skopos_model::Topic;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::error::Error;
use crate::inputs::Inputs;
use crate::limits::Limits;
use crate::opaque::Opaque;
use crate::parameters::number;
use crate::planner::Planner;
use crate::prepared::{Prepared, may_be_point};
use crate::registry::Registry;
use crate::statement::{parse, parse_with_parameters};
use crate::stream::{Stream, within};

/// Answers statements. A process needs one engine; any number of threads may use it. Every method that reads takes the
/// [`Caller`], and asks the policy.
#[derive(Debug)]
pub struct Engine {
    planner: Opaque<Planner>,
}

// A plan contains every type of the SQL syntax. The methods declare that their futures are `Send`, so the
// compiler proves it once, here, and not for seconds in each caller.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` does not declare that its future is `Send`"
)]
impl Engine {
    /// Returns an engine with these tables.
    ///
    /// # Errors
    /// The engine cannot start its threads.
    pub fn new(tables: Registry) -> Result<Self, Error> {
        Ok(Self { planner: Opaque::new(Planner::new(tables.into())?) })
    }

    /// Returns the names of all tables but those of one topic, which the table `topics` lists.
    pub fn table_names(&self) -> Vec<String> {
        self.planner.catalog().table_names()
    }

    /// Returns the columns of a table; `None` if no table has this name. A topic is a table, too.
    pub fn table_schema(&self, name: &str) -> impl Future<Output = Option<SchemaRef>> + Send {
        async move { Some(self.planner.catalog().table(name).await.ok()??.schema()) }
    }

    /// Returns the columns that the answer will have.
    ///
    /// # Errors
    /// The statement cannot be answered.
    pub fn describe(
        &self,
        caller: &Caller,
        sql: &str,
    ) -> impl Future<Output = Result<SchemaRef, Error>> + Send {
        async move {
            if let Some(answer) = self.read(caller, sql).await? {
                return Ok(answer.schema);
            }
            may(caller, Action::ReadFacts)?;
            self.planner.schema_of(sql, self.planner.cached_plan(sql).await?).await
        }
    }

    /// Returns the answer of a point read: at once, without the planner. `None` if the statement is not
    /// a point read.
    pub fn point(&self, caller: &Caller, sql: &str) -> Option<Answer> {
        // A caller who is refused gets the refusal from the planner.
        may(caller, Action::ReadFacts).ok()?;
        self.planner.point(sql)
    }

    /// Returns the answer of a point read as [`point`](Self::point) does, found on a thread of the engine: for callers
    /// whose own thread does input and output for many clients.
    ///
    /// # Errors
    /// The engine is closing.
    pub fn read(
        &self,
        caller: &Caller,
        sql: &str,
    ) -> impl Future<Output = Result<Option<Answer>, Error>> + Send {
        let (planner, sql) = (self.planner.clone(), sql.to_owned());
        let is_allowed = may(caller, Action::ReadFacts).is_ok();
        async move {
            if !is_allowed {
                // The planner says why.
                return Ok(None);
            }
            let work = planner.clone();
            planner.reads().run(async move { Ok(work.point(&sql)) }).await
        }
    }

    /// Returns the whole answer.
    ///
    /// # Errors
    /// The statement cannot be answered within `limits`.
    pub fn query(
        &self,
        caller: &Caller,
        sql: &str,
        limits: &Limits,
    ) -> impl Future<Output = Result<Answer, Error>> + Send {
        async move {
            if let Some(answer) = self.read(caller, sql).await? {
                return match answer.rows() <= limits.rows {
                    true => Ok(answer),
                    false => Err(Error::TooManyRows(limits.rows)),
                };
            }
            self.planned(caller, sql, limits).await?.collect(&self.planner.memory()).await
        }
    }

    /// Returns the whole answer as the planner finds it, also of a point read.
    ///
    /// # Errors
    /// See [`query`](Self::query).
    pub fn query_planned(
        &self,
        caller: &Caller,
        sql: &str,
        limits: &Limits,
    ) -> impl Future<Output = Result<Answer, Error>> + Send {
        async move {
            may(caller, Action::ReadFacts)?;
            let begun = Instant::now();
            let planned =
                async { self.planner.plan(sql, self.planner.parsed(sql, parse).await?).await };
            let plan = within(begun, limits.deadline, planned).await?;
            let stream = self.planner.start((caller, sql), plan, limits, begun).await?;
            stream.collect(&self.planner.memory()).await
        }
    }

    /// Returns the answer, batch by batch. The deadline is that of the last batch, however slowly the
    /// caller takes them.
    ///
    /// # Errors
    /// See [`query`](Self::query); later errors are in the stream.
    pub fn stream(
        &self,
        caller: &Caller,
        sql: &str,
        limits: &Limits,
    ) -> impl Future<Output = Result<Stream, Error>> + Send {
        async move {
            if let Some(answer) = self.read(caller, sql).await? {
                return Stream::of(answer, limits);
            }
            self.planned(caller, sql, limits).await
        }
    }

    /// Starts the plan of a statement that is not a point read.
    fn planned(
        &self,
        caller: &Caller,
        sql: &str,
        limits: &Limits,
    ) -> impl Future<Output = Result<Stream, Error>> + Send {
        async move {
            may(caller, Action::ReadFacts)?;
            let begun = Instant::now();
            let plan = within(begun, limits.deadline, self.planner.cached_plan(sql)).await?;
            self.planner.start((caller, sql), plan, limits, begun).await
        }
    }

    /// Returns the inputs of a statement: the answer stays the same while they do.
    ///
    /// # Errors
    /// The statement cannot be answered.
    pub fn inputs(
        &self,
        caller: &Caller,
        sql: &str,
    ) -> impl Future<Output = Result<Inputs, Error>> + Send {
        async move {
            may(caller, Action::ReadFacts)?;
            self.planner.inputs(sql).await
        }
    }

    /// Returns a fingerprint of `inputs`: it changes whenever an input does. Samples of topics that `counts`
    /// returns false for are left out.
    pub fn fingerprint(&self, inputs: &Inputs, counts: &dyn Fn(&Topic) -> bool) -> u64 {
        inputs.fingerprint(self.planner.source(), counts)
    }

    /// Parses and plans a statement with parameters.
    ///
    /// # Errors
    /// The statement cannot be answered.
    pub fn prepare(
        &self,
        caller: &Caller,
        sql: &str,
    ) -> impl Future<Output = Result<Prepared, Error>> + Send {
        async move {
            may(caller, Action::ReadFacts)?;
            let planner = &self.planner;
            let (statement, count) = planner.parsed(sql, parse_with_parameters).await?;
            let plan = planner.plan(sql, statement.clone()).await?;
            let types = plan.get_parameter_fields().map_err(|e| planner.explained(e, sql))?;
            let field = |at: usize| {
                let name = format!("${at}");
                let data_type = match types.get(&name) {
                    Some(Some(field)) => field.data_type().clone(),
                    _ => DataType::Null,
                };
                FieldRef::new(Field::new(name, data_type, true))
            };
            let fields: Vec<FieldRef> = (1..=count).map(field).collect();
            let parameters: SchemaRef = Arc::new(Schema::new(fields));
            let schema = planner.schema_of(sql, plan.clone()).await?;
            // `:name` is a parameter of the plan that the tokens do not show.
            if let Some(other) = types.keys().find(|name| number(name).is_none()) {
                return Err(Error::Parameter(other.clone()));
            }
            let may_be_point = may_be_point(&statement, &parameters, planner.catalog());
            let (statement, plan) = (Opaque::new(statement), Opaque::new(plan));
            Ok(Prepared { sql: sql.to_owned(), statement, plan, schema, parameters, may_be_point })
        }
    }

    /// Returns the answer with these values if it is that of a point read; see [`point`](Self::point).
    pub fn point_prepared(
        &self,
        caller: &Caller,
        prepared: &Prepared,
        values: &RecordBatch,
    ) -> Option<Answer> {
        may(caller, Action::ReadFacts).ok()?;
        let values = prepared.scalars(values).ok()?;
        match values.is_empty() {
            true => self.point(caller, &prepared.sql),
            false => self.point_bound(prepared, &values),
        }
    }

    /// Returns the answer with these values: one row, with a column for each parameter in order.
    ///
    /// # Errors
    /// See [`stream`](Self::stream); the number of values is not that of the parameters.
    pub fn stream_prepared(
        &self,
        caller: &Caller,
        prepared: &Prepared,
        values: &RecordBatch,
        limits: &Limits,
    ) -> impl Future<Output = Result<Stream, Error>> + Send {
        async move {
            may(caller, Action::ReadFacts)?;
            let begun = Instant::now();
            let values = prepared.scalars(values)?;
            if values.is_empty() {
                return self.stream(caller, &prepared.sql, limits).await;
            }
            if let Some(answer) = self.point_bound(prepared, &values) {
                return Stream::of(answer, limits);
            }
            let plan = self.bound(prepared, values)?;
            self.planner.start((caller, &prepared.sql), plan, limits, begun).await
        }
    }

    /// Returns the columns of the answer with these values.
    ///
    /// # Errors
    /// See [`stream_prepared`](Self::stream_prepared).
    pub fn describe_prepared(
        &self,
        caller: &Caller,
        prepared: &Prepared,
        values: &RecordBatch,
        limits: &Limits,
    ) -> impl Future<Output = Result<SchemaRef, Error>> + Send {
        async move {
            may(caller, Action::ReadFacts)?;
            let values = prepared.scalars(values)?;
            if values.is_empty() {
                let described = self.describe(caller, &prepared.sql);
                return within(Instant::now(), limits.deadline, described).await;
            }
            if let Some(answer) = self.point_bound(prepared, &values) {
                return Ok(answer.schema);
            }
            self.planner.schema_of(&prepared.sql, self.bound(prepared, values)?).await
        }
    }

    fn point_bound(&self, prepared: &Prepared, values: &[ScalarValue]) -> Option<Answer> {
        self.planner.read(&prepared.point(values, self.planner.catalog())?)
    }

    fn bound(&self, prepared: &Prepared, values: Vec<ScalarValue>) -> Result<LogicalPlan, Error> {
        let plan = LogicalPlan::clone(&prepared.plan).with_param_values(ParamValues::from(values));
        plan.map_err(|e| self.planner.explained(e, &prepared.sql))
    }
}
