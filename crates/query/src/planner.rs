//! Turns statements into point reads or logical plans, caches both, and starts plans.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as Parsed;
use skopos_access::Caller;
use skopos_model::unpoisoned;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::catalog::{CATALOG, Catalog, SCHEMA};
use crate::context::ExecutionContext;
use crate::depth::check_relations;
use crate::error::Error;
use crate::explain::explained;
use crate::functions;
use crate::inputs::Inputs;
use crate::limits::{Limits, MEMORY_BYTES};
use crate::lists::Lists;
use crate::numbers::Numbers;
use crate::operators;
use crate::point::Point;
use crate::pool::Pool;
use crate::runs::Runs;
use crate::source::Source;
use crate::statement::{self, parse, parse_for_point};
use crate::stream::{Explain, Stream, within};
use crate::tables::{LATEST_AT, LatestAt};
use crate::yielding::LetJoinsYield;

/// Number of statements in the cache. Programs repeat the same few statements. A full cache is cleared,
/// which costs each of its statements one more planning.
const MAX_CACHED: usize = 512;

/// Number of threads for point reads, each of which takes microseconds.
const READ_THREADS: usize = 2;

/// The planner of an engine, with all that it needs to run a plan.
pub(crate) struct Planner {
    catalog: Arc<Catalog>,
    context: SessionContext,
    pool: Pool,
    /// Point reads have threads of their own, so that they do not wait behind the batches of long queries.
    reads: Pool,
    cache: Mutex<HashMap<String, Arc<Compiled>>>,
}

#[derive(Debug)]
enum Compiled {
    Point(Point),
    /// A plan before optimisation, because the optimiser puts the time of day into it.
    Plan(Box<LogicalPlan>),
}

/// Returns DataFusion's physical rules but those that push filters down: they find columns by name, and take one side of
/// a join for the other. The logical rules push them down already.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rules = PhysicalOptimizer::new().rules;
    rules.into_iter().filter(|rule| !rule.name().starts_with("FilterPushdown")).collect()
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").field("catalog", &self.catalog).finish_non_exhaustive()
    }
}

impl Planner {
    pub(crate) fn new(catalog: Catalog) -> Result<Self, Error> {
        let broken = |e: DataFusionError| Error::Query { message: e.strip_backtrace() };
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(MEMORY_BYTES)))
            // A query writes no files.
            .with_disk_manager_builder(
                DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
            )
            .build_arc()
            .map_err(broken)?;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .with_analyzer_rule(Arc::new(operators::PlaceOperators))
            .with_analyzer_rule(Arc::new(functions::growth::BoundedJoin))
            .with_analyzer_rule(Arc::new(Lists))
            .with_analyzer_rule(Arc::new(Numbers))
            .with_query_planner(Arc::new(operators::Planner::new()))
            .with_physical_optimizer_rules(physical_rules())
            .with_physical_optimizer_rule(Arc::new(Runs))
            .with_physical_optimizer_rule(Arc::new(LetJoinsYield))
            .build();
        let context = SessionContext::new_with_state(state);
        functions::register(&context);
        context.register_udtf(LATEST_AT, Arc::new(LatestAt(catalog.source().clone())));
        let catalog = Arc::new(catalog);
        let schemas = MemoryCatalogProvider::new();
        schemas.register_schema(SCHEMA, catalog.clone()).map_err(broken)?;
        context.register_catalog(CATALOG, Arc::new(schemas));
        let pool = Pool::new("query", None).map_err(Error::Threads)?;
        let reads = Pool::new("read", Some(READ_THREADS)).map_err(Error::Threads)?;
        Ok(Self { catalog, context, pool, reads, cache: Mutex::default() })
    }

    /// Returns the threads of point reads.
    pub(crate) fn reads(&self) -> &Pool {
        &self.reads
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &**self.catalog.source()
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the answer of a point read, if the statement is one.
    pub(crate) fn point(&self, sql: &str) -> Option<Answer> {
        let compiled = self.cached(sql).or_else(|| self.compile_point(sql))?;
        let Compiled::Point(point) = &*compiled else { return None };
        self.read(point)
    }

    /// Runs a point read; `None` if only a plan can find the answer.
    pub(crate) fn read(&self, point: &Point) -> Option<Answer> {
        point.read(self.source()).map(Answer::of_point)
    }

    /// Returns the inputs of a statement.
    pub(crate) async fn inputs(&self, sql: &str) -> Result<Inputs, Error> {
        let compiled = self.cached(sql).or_else(|| self.compile_point(sql));
        let plan = match compiled.as_deref() {
            Some(Compiled::Point(point)) => return Ok(point.inputs()),
            Some(Compiled::Plan(plan)) => (**plan).clone(),
            None => self.plan(sql, parse(sql)?).await?,
        };
        let optimised = self.context.state().optimize(&plan);
        let inputs = optimised.and_then(|o| Inputs::of_plan(&plan, &o));
        inputs.map_err(|e| self.explained(e, sql))
    }

    /// Returns the plan of a statement that is not a point read, from the cache if it is there.
    pub(crate) async fn cached_plan(&self, sql: &str) -> Result<LogicalPlan, Error> {
        let cached = self.cached(sql);
        if let Some(Compiled::Plan(plan)) = cached.as_deref() {
            return Ok((**plan).clone());
        }
        let plan = self.plan(sql, self.parsed(sql, parse).await?).await?;
        if cached.is_none() {
            self.cache(sql, Compiled::Plan(Box::new(plan.clone())));
        }
        Ok(plan)
    }

    /// Plans a statement.
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

    /// Runs `parse` on a thread with a stack that is large enough for every statement.
    pub(crate) async fn parsed<T: Send + 'static>(
        &self,
        sql: &str,
        parse: fn(&str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let sql = sql.to_owned();
        self.pool.run(async move { parse(&sql) }).await
    }

    /// Returns the columns of a plan's answer, with the types that they have after coercion.
    pub(crate) async fn schema_of(&self, sql: &str, plan: LogicalPlan) -> Result<SchemaRef, Error> {
        let state = self.context.state();
        let checked = async move {
            let (analyzer, options) = (state.analyzer(), state.config_options());
            Ok(analyzer.execute_and_check(plan, options, |_, _| {}))
        };
        let plan = self.pool.run(checked).await?.map_err(|e| self.explained(e, sql))?;
        Ok(plan.schema().inner().clone())
    }

    /// Starts to execute a plan. The deadline counts from `begun`.
    pub(crate) async fn start(
        &self,
        (caller, sql): (&Caller, &str),
        plan: LogicalPlan,
        limits: &Limits,
        begun: Instant,
    ) -> Result<Stream, Error> {
        let left = limits.deadline.saturating_sub(begun.elapsed());
        let execution = ExecutionContext::new(caller.clone(), left);
        let (mut state, missing) = (self.context.state(), execution.missing.clone());
        state.config_mut().set_extension(Arc::new(execution));
        let frame = DataFrame::new(state, plan);
        let (text, catalog): (Box<str>, _) = (sql.into(), self.catalog.clone());
        let explain: Explain = Box::new(move |error| explained(error, &text, &catalog));
        let started = async { self.pool.execute(frame).await.map_err(&explain) };
        let batches = within(begun, limits.deadline, started).await?;
        Ok(Stream::planned(batches, (limits, begun), missing, explain))
    }

    /// Returns a reservation for an answer that is collected.
    pub(crate) fn memory(&self) -> MemoryReservation {
        MemoryConsumer::new("answer").register(&self.context.runtime_env().memory_pool)
    }

    pub(crate) fn explained(&self, error: DataFusionError, sql: &str) -> Error {
        explained(error, sql, &self.catalog)
    }

    fn compile_point(&self, sql: &str) -> Option<Arc<Compiled>> {
        let statement = parse_for_point(sql).ok()?;
        let point = Point::compile(sql, &statement, &self.catalog)?;
        Some(self.cache(sql, Compiled::Point(point)))
    }

    fn cached(&self, sql: &str) -> Option<Arc<Compiled>> {
        unpoisoned(self.cache.lock()).get(sql).cloned()
    }

    fn cache(&self, sql: &str, compiled: Compiled) -> Arc<Compiled> {
        let compiled = Arc::new(compiled);
        let mut cache = unpoisoned(self.cache.lock());
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(sql.to_owned(), compiled.clone());
        compiled
    }
}
