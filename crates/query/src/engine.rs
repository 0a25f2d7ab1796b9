//! The engine: the interface of this crate for programs that ask.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::SchemaProvider as _;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use skopos_access::{Action, Caller, may};
use skopos_model::Topic;
use tokio::time::Instant;

use crate::admission::Permit;
use crate::answer::Answer;
use crate::divided::{Hubs, Worker};
use crate::error::Error;
use crate::inputs::Inputs;
use crate::limits::Limits;
use crate::opaque::Opaque;
use crate::planner::Planner;
use crate::prepared::Prepared;
use crate::registry::Registry;
use crate::statement::parse;
use crate::stream::{Stream, within};

/// Bytes of an answer that count as memory in use, until this is dropped.
#[derive(Debug)]
pub struct HeldBytes(#[allow(dead_code, reason = "dropping it gives the bytes back")] Permit);

/// Bytes of the largest answer of a point read that may be sent at any time. A connection with as many requests as it may
/// have keeps some 4 MiB of them.
const MAX_FREE_BYTES: usize = 32 << 10;

/// Length of the longest prepared statement that is bound on the thread that asks: binding copies all of it.
const MAX_SQL_AT_ONCE: usize = 4 << 10;

/// Answers statements. A process needs one engine; any number of threads may use it. Every method that reads takes the
/// [`Caller`], and asks the policy.
#[derive(Debug)]
pub struct Engine {
    planner: Opaque<Planner>,
    /// The planner for standing questions.
    shared: Opaque<Planner>,
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
        let pieced = Arc::new(tables.pieced.clone());
        let planner = Planner::new(tables.into(), pieced)?;
        let shared = Opaque::new(planner.shared()?);
        Ok(Self { planner: Opaque::new(planner), shared })
    }

    /// Returns the engine for standing questions. Those that read all topics share one look at them, so that an answer is a
    /// moment old.
    #[must_use]
    pub fn standing(&self) -> Self {
        Self { planner: self.shared.clone(), shared: self.shared.clone() }
    }

    /// Answers statements about tables in pieces together with other hubs from now on. Only the first call has an effect.
    pub fn divide_among(&self, hubs: Arc<dyn Hubs>) {
        let _ = self.planner.dividing().hubs.set(hubs);
    }

    /// Returns what works for other hubs, which must be asked on a thread of [`on_thread`](Self::on_thread). Whoever
    /// asks it reads every piece: it is for hubs alone.
    pub fn worker(&self) -> Worker {
        self.planner.dividing().worker.clone()
    }

    /// Does work on a thread that plans and computes.
    ///
    /// # Errors
    /// The engine is closing.
    pub async fn on_thread<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        self.planner.pool().run(async { Ok(work.await) }).await
    }

    /// Returns the names of all tables but those of one topic, which the table `topics` lists.
    pub fn table_names(&self) -> Vec<String> {
        self.planner.catalog().table_names()
    }

    /// Returns the columns of a table; `None` if no table has this name. A topic is a table, too.
    ///
    /// # Errors
    /// The caller may not read facts, or too many statements run.
    pub fn table_schema(
        &self,
        caller: &Caller,
        name: &str,
    ) -> impl Future<Output = Result<Option<SchemaRef>, Error>> + Send {
        async move {
            let name = name.to_owned();
            let found = |planner: Opaque<Planner>| async move {
                let table = planner.catalog().table(&name).await.ok().flatten();
                Ok(table.map(|table| table.schema()))
            };
            Ok(self.admitted(caller, Limits::default().deadline, found).await?.0)
        }
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
            let sql = sql.to_owned();
            let described = |planner: Opaque<Planner>| async move {
                planner.schema_of(&sql, planner.cached_plan(&sql).await?)
            };
            Ok(Box::pin(self.admitted(caller, Limits::default().deadline, described)).await?.0)
        }
    }

    /// Returns the answer of a point read: at once, without the planner. `None` if the statement is not
    /// a point read.
    pub fn point(&self, caller: &Caller, sql: &str) -> Option<Answer> {
        // A caller who is refused gets the refusal from the planner.
        may(caller, Action::ReadFacts).ok()?;
        self.planner.point(sql)
    }

    /// Returns the answer of a point read as [`point`](Self::point) does, for callers whose own thread does input and output
    /// for many clients: only a small read that was asked before is done on it, and others on a thread of the engine.
    ///
    /// # Errors
    /// Too many point reads wait, or answers hold too much memory; the engine is closing.
    pub fn read(
        &self,
        caller: &Caller,
        sql: &str,
    ) -> impl Future<Output = Result<Option<Answer>, Error>> + Send {
        let is_allowed = may(caller, Action::ReadFacts).is_ok();
        async move {
            if !is_allowed {
                // The planner says why.
                return Ok(None);
            }
            if let Some(answer) = self.planner.small_point(sql) {
                return Ok(Some(answer));
            }
            let sql = sql.to_owned();
            // In a box, as all that few statements need: a small read does not pay for a large future.
            Box::pin(self.read_with_place(caller, move |planner| planner.point(&sql))).await
        }
    }

    /// Does other reading of facts with the place of a point read, on one of their threads.
    ///
    /// # Errors
    /// The caller may not read facts, or too many point reads wait; the engine is closing.
    pub fn reading<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        async move {
            may(caller, Action::ReadFacts)?;
            let place = self.planner.admission().read(caller).await?;
            // The place goes with the work, which ends later than a request that is given up.
            let read = async move {
                let done = work();
                drop(place);
                Ok(done)
            };
            self.planner.reads().run(read).await
        }
    }

    /// Counts the bytes of an answer that the engine has not made, until the result is dropped.
    ///
    /// # Errors
    /// The answers of the caller, or all together, hold too much.
    pub fn hold(&self, caller: &Caller, bytes: usize) -> Result<HeldBytes, Error> {
        Ok(HeldBytes(self.planner.admission().hold(caller, bytes)?))
    }

    /// Does a point read of any size on a thread of the engine.
    async fn read_with_place(
        &self,
        caller: &Caller,
        work: impl FnOnce(&Planner) -> Option<Answer> + Send + 'static,
    ) -> Result<Option<Answer>, Error> {
        let planner = self.planner.clone();
        let answer = self.reading(caller, move || work(&planner)).await?;
        let Some(mut answer) = answer else { return Ok(None) };
        let bytes = answer.bytes();
        if bytes > MAX_FREE_BYTES {
            answer.permit = Some(Arc::new(self.planner.admission().hold(caller, bytes)?));
        }
        Ok(Some(answer))
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
            Box::pin(async { self.planned(caller, sql, limits).await?.collect().await }).await
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
            let text = sql.to_owned();
            let plan =
                |planner: Opaque<Planner>| async move { planner.plan(&text, parse(&text)?).await };
            self.started((caller, sql), limits, plan).await?.collect().await
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
            Box::pin(self.planned(caller, sql, limits)).await
        }
    }

    /// Returns the answer of a statement that [`read`](Self::read) or [`point`](Self::point) does not answer, batch by batch.
    ///
    /// # Errors
    /// See [`stream`](Self::stream).
    pub fn planned(
        &self,
        caller: &Caller,
        sql: &str,
        limits: &Limits,
    ) -> impl Future<Output = Result<Stream, Error>> + Send {
        let text = sql.to_owned();
        let plan = |planner: Opaque<Planner>| async move { planner.cached_plan(&text).await };
        self.started((caller, sql), limits, plan)
    }

    /// Starts the plan that `plan` returns.
    async fn started<F>(
        &self,
        (caller, sql): (&Caller, &str),
        limits: &Limits,
        plan: impl FnOnce(Opaque<Planner>) -> F + Send,
    ) -> Result<Stream, Error>
    where
        F: Future<Output = Result<LogicalPlan, Error>> + Send + 'static,
    {
        let begun = Instant::now();
        let (caller_of_scans, sql, limits) = (caller.clone(), sql.to_owned(), *limits);
        let started = |planner: Opaque<Planner>| {
            let planned = plan(planner.clone());
            async move { planner.start((caller_of_scans, sql), planned.await?, &limits, begun).await }
        };
        let (stream, permit) = self.admitted(caller, limits.deadline, started).await?;
        Ok(stream.held_by(permit))
    }

    /// Does the work of a caller who may read facts with a permit, on a thread that plans.
    async fn admitted<T, F>(
        &self,
        caller: &Caller,
        deadline: Duration,
        work: impl FnOnce(Opaque<Planner>) -> F + Send,
    ) -> Result<(T, Permit), Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        may(caller, Action::ReadFacts)?;
        let begun = Instant::now();
        let permit = self.planner.admission().admit(caller, deadline).await?;
        let done = self.planner.pool().run(work(self.planner.clone()));
        tokio::select! {
            done = within(begun, deadline, done) => Ok((done?, permit)),
            error = permit.stopped() => Err(error),
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
            let sql = sql.to_owned();
            let inputs = |planner: Opaque<Planner>| async move { planner.inputs(&sql).await };
            Ok(self.admitted(caller, Limits::default().deadline, inputs).await?.0)
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
            let sql = sql.to_owned();
            let prepared = |planner: Opaque<Planner>| async move { planner.prepare(sql).await };
            Ok(self.admitted(caller, Limits::default().deadline, prepared).await?.0)
        }
    }

    /// Returns the answer with these values as [`read`](Self::read) does.
    ///
    /// # Errors
    /// The engine is closing.
    pub fn read_prepared(
        &self,
        caller: &Caller,
        prepared: &Prepared,
        values: &RecordBatch,
    ) -> impl Future<Output = Result<Option<Answer>, Error>> + Send {
        async move {
            let Ok(values) = prepared.scalars(values) else { return Ok(None) };
            if values.is_empty() {
                return self.read(caller, &prepared.sql).await;
            }
            self.read_bound(caller, prepared, values).await
        }
    }

    /// Does a point read with these values; `None` if it is none.
    async fn read_bound(
        &self,
        caller: &Caller,
        prepared: &Prepared,
        values: Vec<ScalarValue>,
    ) -> Result<Option<Answer>, Error> {
        if may(caller, Action::ReadFacts).is_err() || !prepared.may_be_point {
            return Ok(None);
        }
        if prepared.sql.len() <= MAX_SQL_AT_ONCE {
            let Some(point) = prepared.point(&values, self.planner.catalog()) else {
                return Ok(None);
            };
            if point.is_small() {
                return Ok(self.planner.answer(&point));
            }
        }
        let prepared = prepared.clone();
        let read =
            move |planner: &Planner| planner.answer(&prepared.point(&values, planner.catalog())?);
        self.read_with_place(caller, read).await
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
            let values = prepared.scalars(values)?;
            if values.is_empty() {
                return self.stream(caller, &prepared.sql, limits).await;
            }
            if let Some(answer) = self.read_bound(caller, prepared, values.clone()).await? {
                return Stream::of(answer, limits);
            }
            let bound = bound(prepared, values);
            let plan = |planner: Opaque<Planner>| async move { bound(&planner) };
            self.started((caller, &prepared.sql), limits, plan).await
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
                return self.describe(caller, &prepared.sql).await;
            }
            if let Some(answer) = self.read_bound(caller, prepared, values.clone()).await? {
                return Ok(answer.schema);
            }
            let (bound, sql) = (bound(prepared, values), prepared.sql.clone());
            let described =
                |planner: Opaque<Planner>| async move { planner.schema_of(&sql, bound(&planner)?) };
            Ok(self.admitted(caller, limits.deadline, described).await?.0)
        }
    }
}

/// Returns what binds these values to the plan of a prepared statement, which takes time that grows with both.
fn bound(
    prepared: &Prepared,
    values: Vec<ScalarValue>,
) -> impl FnOnce(&Planner) -> Result<LogicalPlan, Error> + Send + 'static {
    let (plan, sql) = (prepared.plan.clone(), prepared.sql.clone());
    move |planner| {
        let plan = LogicalPlan::clone(&plan).with_param_values(ParamValues::from(values));
        plan.map_err(|e| planner.explained(e, &sql))
    }
}
