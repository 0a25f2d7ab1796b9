//! Turns statements into point reads or logical plans, caches both, and starts plans.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as Parsed;
use skopos_access::Caller;
use tokio::time::Instant;

use crate::admission::{Admission, MAX_READS};
use crate::answer::Answer;
use crate::cache::Cache;
use crate::catalog::{CATALOG, Catalog, SCHEMA};
use crate::context::ExecutionContext;
use crate::depth::check_relations;
use crate::divided::{Attempt, Dividing, PieceCodec, reads_pieces, worker};
use crate::error::Error;
use crate::explain::explained;
use crate::functions;
use crate::inputs::Inputs;
use crate::limits::{Limits, MEMORY_BYTES};
use crate::lists::Lists;
use crate::numbers::Numbers;
use crate::opaque::Opaque;
use crate::operators;
use crate::parameters::number;
use crate::point::Point;
use crate::pool::Pool;
use crate::prepared::{Prepared, may_be_point};
use crate::runs::Runs;
use crate::source::Source;
use crate::statement::{self, parse, parse_for_point, parse_with_parameters};
use crate::stream::{Explain, Stream, within};
use crate::table::Table;
use crate::tables::{LATEST_AT, LatestAt, SharedLatest};
use crate::width;
use crate::yielding::LetJoinsYield;

/// Time between two looks at whether the rows that standing questions share are still needed.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// The planner of an engine, with all that it needs to run a plan.
pub(crate) struct Planner {
    catalog: Arc<Catalog>,
    context: SessionContext,
    pool: Arc<Pool>,
    /// Point reads have threads of their own, so that they do not wait behind the batches of long queries.
    reads: Arc<Pool>,
    /// A thread for the guard of the memory, which has to look in time however much the others have to do.
    guard: Arc<Pool>,
    cache: Cache<Compiled>,
    admission: Arc<Admission>,
    dividing: Arc<Dividing>,
    /// True if questions that read all topics share one look at them, see [`SharedLatest`].
    is_shared: bool,
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

fn broken(error: DataFusionError) -> Error {
    Error::Query { message: error.strip_backtrace() }
}

/// Returns a context of DataFusion with this project's catalog, rules and functions.
fn context(catalog: Arc<Catalog>, runtime: Arc<RuntimeEnv>) -> Result<SessionContext, Error> {
    let config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
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
    let schemas = MemoryCatalogProvider::new();
    schemas.register_schema(SCHEMA, catalog).map_err(broken)?;
    context.register_catalog(CATALOG, Arc::new(schemas));
    Ok(context)
}

impl Planner {
    pub(crate) fn new(
        catalog: Catalog,
        pieced: Arc<BTreeMap<String, Arc<dyn Table>>>,
    ) -> Result<Self, Error> {
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(MEMORY_BYTES)))
            // A query writes no files.
            .with_disk_manager_builder(
                DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled),
            )
            .build_arc()
            .map_err(broken)?;
        let admission = Admission::new(runtime.memory_pool.clone());
        let codec = PieceCodec(pieced);
        let worker = worker(codec.clone(), runtime.memory_pool.clone()).map_err(broken)?;
        let dividing = Arc::new(Dividing { codec, worker, hubs: OnceLock::new() });
        let catalog = Arc::new(catalog);
        let context = context(catalog.clone(), runtime)?;
        let pool = Pool::new("query", None).map_err(Error::Threads)?;
        let reads = Pool::new("read", Some(MAX_READS)).map_err(Error::Threads)?;
        let guard = Pool::new("guard", Some(1)).map_err(Error::Threads)?;
        guard.start(admission.guard());
        Ok(Self {
            catalog,
            context,
            pool: Arc::new(pool),
            reads: Arc::new(reads),
            guard: Arc::new(guard),
            cache: Cache::default(),
            admission: Arc::new(admission),
            dividing,
            is_shared: false,
        })
    }

    /// Returns a planner for standing questions, with the threads, the permits and the memory of this one.
    pub(crate) fn shared(&self) -> Result<Self, Error> {
        let latest = Arc::new(SharedLatest::new(self.catalog.source().clone()));
        let catalog = Arc::new(self.catalog.with_latest(latest.clone()));
        let context = context(catalog.clone(), self.context.runtime_env())?;
        self.guard.start(async move {
            loop {
                tokio::time::sleep(FORGET_EVERY).await;
                latest.forget();
            }
        });
        Ok(Self {
            catalog,
            context,
            pool: self.pool.clone(),
            reads: self.reads.clone(),
            guard: self.guard.clone(),
            cache: Cache::default(),
            admission: self.admission.clone(),
            dividing: self.dividing.clone(),
            is_shared: true,
        })
    }

    /// Returns the threads that plan and compute: their stacks are large enough for every statement.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn dividing(&self) -> &Dividing {
        &self.dividing
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
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
        let compiled = self.cache.get(sql).or_else(|| self.compile_point(sql))?;
        let Compiled::Point(point) = &*compiled else { return None };
        self.answer(point)
    }

    /// Returns the answer of a point read that was compiled before and is a small one.
    pub(crate) fn small_point(&self, sql: &str) -> Option<Answer> {
        match &*self.cache.get(sql)? {
            Compiled::Point(point) if point.is_small() => self.answer(point),
            _ => None,
        }
    }

    /// Runs a point read; `None` if only a plan can find the answer.
    pub(crate) fn answer(&self, point: &Point) -> Option<Answer> {
        point.read(self.source()).map(Answer::of_point)
    }

    /// Returns the inputs of a statement.
    pub(crate) async fn inputs(&self, sql: &str) -> Result<Inputs, Error> {
        let compiled = self.cache.get(sql).or_else(|| self.compile_point(sql));
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
        let cached = self.cache.get(sql);
        if let Some(Compiled::Plan(plan)) = cached.as_deref() {
            return Ok((**plan).clone());
        }
        let plan = self.plan(sql, parse(sql)?).await?;
        if cached.is_none() {
            self.cache.add(sql, Arc::new(Compiled::Plan(Box::new(plan.clone()))));
        }
        Ok(plan)
    }

    /// Plans a statement.
    pub(crate) async fn plan(
        &self,
        sql: &str,
        mut statement: Parsed,
    ) -> Result<LogicalPlan, Error> {
        check_relations(&statement)?;
        width::check(&statement)?;
        statement::to_standard(&mut statement)?;
        let planned = self.context.state().statement_to_plan(statement).await;
        let plan = planned.map_err(|e| self.explained(e, sql))?;
        width::check_plan(&plan)?;
        Ok(plan)
    }

    /// Parses and plans a statement with parameters.
    pub(crate) async fn prepare(&self, sql: String) -> Result<Prepared, Error> {
        let (statement, count) = parse_with_parameters(&sql)?;
        let plan = self.plan(&sql, statement.clone()).await?;
        let types = plan.get_parameter_fields().map_err(|e| self.explained(e, &sql))?;
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
        let schema = self.schema_of(&sql, plan.clone())?;
        // `:name` is a parameter of the plan that the tokens do not show.
        if let Some(other) = types.keys().find(|name| number(name).is_none()) {
            return Err(Error::Parameter(other.clone()));
        }
        let may_be_point = may_be_point(&statement, &parameters, &self.catalog);
        let (statement, plan) = (Opaque::new(statement), Opaque::new(plan));
        Ok(Prepared { sql, statement, plan, schema, parameters, may_be_point })
    }

    /// Returns the columns of a plan's answer, with the types that they have after coercion.
    pub(crate) fn schema_of(&self, sql: &str, plan: LogicalPlan) -> Result<SchemaRef, Error> {
        let state = self.context.state();
        let (analyzer, options) = (state.analyzer(), state.config_options());
        let plan = analyzer.execute_and_check(plan, options, |_, _| {});
        Ok(plan.map_err(|e| self.explained(e, sql))?.schema().inner().clone())
    }

    /// Starts to execute a plan. The deadline counts from `begun`.
    pub(crate) async fn start(
        &self,
        (caller, sql): (Caller, String),
        plan: LogicalPlan,
        limits: &Limits,
        begun: Instant,
    ) -> Result<Stream, Error> {
        let left = limits.deadline.saturating_sub(begun.elapsed());
        let execution = ExecutionContext::new(caller, left);
        let (mut state, missing) = (self.context.state(), execution.missing.clone());
        state.config_mut().set_extension(Arc::new(execution));
        let mut config = state.config().clone().with_batch_size(width::batch_rows(&plan));
        if limits.threads > 0 {
            config = config.with_target_partitions(limits.threads);
        }
        *state.config_mut() = config;
        let catalog = self.catalog.clone();
        let explain: Explain = Box::new(move |error| explained(error, &sql, &catalog));
        if !self.is_shared && reads_pieces(&plan, &self.dividing.codec.0) {
            let left = limits.deadline.saturating_sub(begun.elapsed());
            match Box::pin(self.dividing.run(state.clone(), &plan, left)).await {
                Attempt::Local => {}
                Attempt::Done(rows) => {
                    return Ok(Stream::planned(rows, (limits, begun), missing, explain));
                }
                Attempt::Failed(why) => {
                    self.dividing.hubs.get().into_iter().for_each(|hubs| hubs.failed(&why));
                }
            }
        }
        let frame = DataFrame::new(state, plan);
        let started = async { self.pool.execute(frame).await.map_err(&explain) };
        let batches = within(begun, limits.deadline, started).await?;
        Ok(Stream::planned(batches, (limits, begun), missing, explain))
    }

    pub(crate) fn explained(&self, error: DataFusionError, sql: &str) -> Error {
        explained(error, sql, &self.catalog)
    }

    fn compile_point(&self, sql: &str) -> Option<Arc<Compiled>> {
        let statement = parse_for_point(sql).ok()?;
        let point = Point::compile(sql, &statement, &self.catalog)?;
        if self.is_shared && point.is_wide() {
            return None;
        }
        let point = Arc::new(Compiled::Point(point));
        self.cache.add(sql, point.clone());
        Some(point)
    }
}
