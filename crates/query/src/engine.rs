//! The engine: which way a statement goes, what is kept of it, and how far it may go.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as Parsed;
use skopos_model::{Topic, unpoisoned};
use tokio::time::Instant;

use crate::Error;
use crate::catalog::{CATALOG, SCHEMA};
use crate::depth::check_relations;
use crate::functions;
use crate::inputs::Inputs;
use crate::pace::Pace;
use crate::point::Point;
use crate::pool::Pool;
use crate::runs::Runs;
use crate::source::Source;
use crate::statement::{self, parse, parse_long};
use crate::tables::Tables;
use crate::tables::latest_at::{LATEST_AT, LatestAt};
use crate::whole;

/// The longest statement: what the paper's resource query needs for a thousand nodes.
pub const MAX_SQL_BYTES: usize = 128 * 1024;

/// Statements whose plan is kept. Programs ask the same few again and again; when there are more, all
/// are forgotten, which costs each a plan.
const MAX_KEPT: usize = 512;

/// Memory that all queries together may have. A query that brings rows together needs little; one
/// that needs more than this is stopped before it is the agent that is.
const MEMORY_BYTES: usize = 512 << 20;

/// Answers statements. One for a process; any number of threads may ask.
pub struct Engine {
    source: Arc<dyn Source>,
    pub(crate) tables: Arc<Tables>,
    pub(crate) context: SessionContext,
    pub(crate) pool: Pool,
    kept: Mutex<HashMap<String, Arc<Compiled>>>,
}

/// How far a query may go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may take.
    pub deadline: Duration,
    /// How many rows its answer may have.
    pub rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(30), rows: 1_000_000 }
    }
}

/// Which way an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From memory.
    Point,
    /// By the planner.
    Planned,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows; no batch is empty.
    pub batches: Vec<RecordBatch>,
    /// How they were found.
    pub way: Way,
    /// Nodes that were asked for their history and did not answer, or not with all of it: the answer
    /// is without it. Sorted.
    pub missing: Vec<String>,
}

impl Answer {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

#[derive(Debug)]
enum Compiled {
    Point(Point),
    /// Not optimised, because that fixes what time it is.
    Plan(Box<LogicalPlan>),
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine over `source`; `aliases` are tables of one topic each by names of the user's.
    ///
    /// # Errors
    /// The engine cannot be set up, which no input causes.
    pub fn new(source: Arc<dyn Source>, aliases: BTreeMap<String, Topic>) -> Result<Self, Error> {
        let broken = |e: DataFusionError| Error::Query { message: e.strip_backtrace() };
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(MEMORY_BYTES)))
            // Nothing is written for a question.
            .with_disk_manager_builder(
                DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
            )
            .build_arc()
            .map_err(broken)?;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .with_analyzer_rule(Arc::new(whole::Marks))
            .with_query_planner(Arc::new(whole::Planner))
            .with_physical_optimizer_rule(Arc::new(Runs))
            .with_physical_optimizer_rule(Arc::new(Pace))
            .build();
        let context = SessionContext::new_with_state(state);
        functions::register(&context);
        context.register_udtf(LATEST_AT, Arc::new(LatestAt(source.clone())));
        let tables = Arc::new(Tables::new(source.clone(), aliases));
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema(SCHEMA, tables.clone()).map_err(broken)?;
        context.register_catalog(CATALOG, Arc::new(catalog));
        let pool = Pool::new().map_err(Error::Threads)?;
        Ok(Self { source, tables, context, pool, kept: Mutex::default() })
    }

    /// The answer, if it can be had at once: no planner, no waiting.
    pub fn point(&self, sql: &str) -> Option<Answer> {
        let kept = self.kept(sql).or_else(|| self.compile_point(sql))?;
        let Compiled::Point(point) = &*kept else { return None };
        let batch = self.read(point)?;
        let schema = batch.schema();
        let batches = if batch.num_rows() == 0 { Vec::new() } else { vec![batch] };
        Some(Answer { schema, batches, way: Way::Point, missing: Vec::new() })
    }

    /// The answer.
    ///
    /// # Errors
    /// It is no question that can be answered, or goes beyond `limits`.
    pub async fn query(&self, sql: &str, limits: &Limits) -> Result<Answer, Error> {
        if let Some(answer) = self.point(sql) {
            return match answer.rows() <= limits.rows {
                true => Ok(answer),
                false => Err(Error::TooManyRows(limits.rows)),
            };
        }
        self.stream(sql, limits).await?.collect(&self.memory()).await
    }

    /// The answer as the planner finds it, also where a point read could.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub async fn query_planned(&self, sql: &str, limits: &Limits) -> Result<Answer, Error> {
        let begun = Instant::now();
        let planned = async { self.plan(sql, self.parsed(sql, parse).await?).await };
        let plan = within(limits.deadline, planned).await?;
        self.start(sql, plan, limits, begun).await?.collect(&self.memory()).await
    }

    /// What the answer depends on.
    ///
    /// # Errors
    /// It is no question that can be answered.
    pub async fn inputs(&self, sql: &str) -> Result<Inputs, Error> {
        let kept = self.kept(sql).or_else(|| self.compile_point(sql));
        let plan = match kept.as_deref() {
            Some(Compiled::Point(point)) => return Ok(point.inputs()),
            Some(Compiled::Plan(plan)) => (**plan).clone(),
            None => self.plan(sql, parse(sql)?).await?,
        };
        let optimised = self.context.state().optimize(&plan);
        let inputs = optimised.and_then(|o| Inputs::of_plan(&plan, &o, &self.tables));
        inputs.map_err(|e| self.explained(e, sql))
    }

    /// A number that is another one whenever any of `inputs` has changed, of topics that `counts`.
    pub fn print(&self, inputs: &Inputs, counts: &dyn Fn(&Topic) -> bool) -> u64 {
        inputs.print(&*self.source, counts)
    }

    /// The plan of a statement that is none for a point read, made once.
    pub(crate) async fn kept_plan(&self, sql: &str) -> Result<LogicalPlan, Error> {
        let kept = self.kept(sql);
        if let Some(Compiled::Plan(plan)) = kept.as_deref() {
            return Ok((**plan).clone());
        }
        let plan = self.plan(sql, self.parsed(sql, parse).await?).await?;
        if kept.is_none() {
            self.keep(sql, Compiled::Plan(Box::new(plan.clone())));
        }
        Ok(plan)
    }

    pub(crate) async fn plan(
        &self,
        sql: &str,
        mut statement: Parsed,
    ) -> Result<LogicalPlan, Error> {
        let state = self.context.state();
        let planned = async move {
            check_relations(&statement)?;
            statement::to_standard(&mut statement)?;
            Ok(state.statement_to_plan(statement).await)
        };
        self.pool.run(planned).await?.map_err(|e| self.explained(e, sql))
    }

    pub(crate) fn read(&self, point: &Point) -> Option<RecordBatch> {
        point.read(&*self.source)
    }

    /// A statement that `parse` reads, on a thread that has the stack for it.
    pub(crate) async fn parsed<T: Send + 'static>(
        &self,
        sql: &str,
        parse: fn(&str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let sql = sql.to_owned();
        self.pool.run(async move { parse(&sql) }).await
    }

    fn compile_point(&self, sql: &str) -> Option<Arc<Compiled>> {
        let statement = parse_long(sql).ok()?;
        let point = Point::compile(sql, &statement, &self.tables)?;
        Some(self.keep(sql, Compiled::Point(point)))
    }

    fn kept(&self, sql: &str) -> Option<Arc<Compiled>> {
        unpoisoned(self.kept.lock()).get(sql).cloned()
    }

    fn keep(&self, sql: &str, compiled: Compiled) -> Arc<Compiled> {
        let compiled = Arc::new(compiled);
        let mut kept = unpoisoned(self.kept.lock());
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(sql.to_owned(), compiled.clone());
        compiled
    }

    /// An answer that is collected is in memory as a whole, too.
    fn memory(&self) -> MemoryReservation {
        MemoryConsumer::new("answer").register(&self.context.runtime_env().memory_pool)
    }

    pub(crate) fn explained(&self, error: DataFusionError, sql: &str) -> Error {
        crate::error::explained(error, sql, &self.tables)
    }
}

pub(crate) async fn within<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(deadline, answer).await.unwrap_or(Err(Error::Deadline(deadline)))
}
