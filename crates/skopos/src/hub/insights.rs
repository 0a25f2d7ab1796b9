//! Insights that the hub computes: what needs an engine, what is asked for every so often, and what is
//! about many nodes. They are published in a segment of the hub's, so that programs, the live plane and
//! SQL find them like any vertex.
//!
//! One thread asks one statement at a time. An answer is published when it differs from the one before;
//! else the vertex is only marked as looked at.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skopos_model::{Kind, Sample, Topic, Unit, Value, ValueType};
use skopos_query::arrow::array::Array as _;
use skopos_query::arrow::array::AsArray as _;
use skopos_query::arrow::compute::cast;
use skopos_query::arrow::datatypes::{DataType, Float64Type};
use skopos_query::{About, Answer, Engine, Limits};
use skopos_shm::{Publisher, VertexSpec, VertexWriter, now};
use tokio::runtime::Handle;

use crate::agent::is_for_hub;
use crate::config::InsightConfig;
use crate::failure::Failure;

/// The segment's name.
const SEGMENT: &str = "hub-insights";

/// How often an insight is looked at that does not say: as soon as a person sees it.
const EVERY: Duration = Duration::from_secs(1);

/// How long one answer may take. One that takes so long is asked for every minute and a half.
const PATIENCE: Duration = Duration::from_secs(10);

/// Of the time of one thread what an insight may take: one that takes longer is looked at less often.
const SHARE: u32 = 10;

/// How insights come about, by topic: for the table `insights`.
pub(crate) type Abouts = Arc<RwLock<BTreeMap<Topic, About>>>;

/// Computes until it is dropped.
pub(crate) struct HubInsights {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HubInsights {
    /// Begins to compute those of `configured` that are a hub's, under `site`; `None` if there are none.
    ///
    /// # Errors
    /// A name is no topic, a unit none; the segment cannot be made.
    pub(crate) fn start(
        dir: &Path,
        site: &str,
        (engine, runtime): (Arc<Engine>, Handle),
        configured: &[InsightConfig],
        abouts: Abouts,
    ) -> Result<Option<Self>, Failure> {
        let own: Vec<_> = configured.iter().filter(|insight| is_for_hub(insight)).collect();
        if own.is_empty() {
            return Ok(None);
        }
        let publisher = Publisher::builder(SEGMENT).dir(dir).node(site).create()?;
        let register = |insight: &&InsightConfig| {
            let failed = |e: &dyn std::error::Error| {
                Failure::new(format!("insight `{}`", insight.name)).because(e)
            };
            let unit = insight.unit.as_deref().map_or(Ok(Unit::NONE), Unit::new);
            let unit = unit.map_err(|e| failed(&e))?;
            One::new(&publisher, site, insight, unit).map_err(|e| failed(&*e))
        };
        let ones = own.iter().map(register).collect::<Result<Vec<_>, _>>()?;
        for one in &ones {
            let about = About { formula: Some(one.sql.clone()), reason: None };
            lock(&abouts).insert(one.topic.clone(), about);
        }
        let (stop, stopped) = channel();
        let at_work = AtWork { publisher, engine, runtime, abouts, ones };
        let thread = std::thread::Builder::new().name("insights".to_owned());
        let thread = thread
            .spawn(move || at_work.run(&stopped))
            .map_err(|e| Failure::new("no thread can be started").because(&e))?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for HubInsights {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(abouts: &Abouts) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Topic, About>> {
    abouts.write().unwrap_or_else(PoisonError::into_inner)
}

/// One insight.
struct One {
    topic: Topic,
    sql: String,
    every: Duration,
    writer: VertexWriter,
    /// What it costs: seconds of the latest answer, answers, answers that were none.
    took: VertexWriter,
    runs: VertexWriter,
    failures: VertexWriter,
    counts: (u64, u64),
    due: Instant,
    last: Option<Result<f64, String>>,
}

impl One {
    fn new(
        publisher: &Publisher,
        site: &str,
        insight: &InsightConfig,
        unit: Unit,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let name = &insight.name;
        let topic = Topic::new(&format!("{site}/insight/{name}"))?;
        let own = |metric: &str, value_type, unit, kind| {
            let topic = Topic::new(&format!("{site}/self/insight/{name}/{metric}"))?;
            let spec = VertexSpec::new(topic, value_type).unit(unit).kind(kind);
            Ok::<_, Box<dyn std::error::Error>>(publisher.register(spec)?)
        };
        Ok(Self {
            writer: publisher
                .register(VertexSpec::new(topic.clone(), ValueType::F64).unit(unit))?,
            topic,
            sql: insight.sql.clone(),
            every: insight.every.unwrap_or(EVERY),
            took: own("answer_seconds", ValueType::F64, Unit::SECONDS, Kind::Gauge)?,
            runs: own("answers_total", ValueType::U64, Unit::NONE, Kind::Counter)?,
            failures: own("failures_total", ValueType::U64, Unit::NONE, Kind::Counter)?,
            counts: (0, 0),
            due: Instant::now(),
            last: None,
        })
    }
}

struct AtWork {
    publisher: Publisher,
    engine: Arc<Engine>,
    runtime: Handle,
    abouts: Abouts,
    ones: Vec<One>,
}

impl AtWork {
    fn run(mut self, stopped: &Receiver<()>) {
        loop {
            for at in 0..self.ones.len() {
                if self.ones[at].due <= Instant::now() {
                    self.compute(at);
                }
            }
            self.publisher.heartbeat();
            let next = self.ones.iter().map(|one| one.due).min();
            let left = next.map_or(EVERY, |due| due.saturating_duration_since(Instant::now()));
            match stopped.recv_timeout(left.min(EVERY)) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
        }
    }

    fn compute(&mut self, at: usize) {
        let one = &mut self.ones[at];
        let begun = Instant::now();
        // One that has more rows is no number; two are enough to see it.
        let limits = Limits { deadline: PATIENCE, rows: 2 };
        let answer = self.runtime.block_on(self.engine.query(&one.sql, &limits));
        let outcome = match &answer {
            Ok(answer) => number(answer),
            Err(e) => Err(e.to_string()),
        };
        let took = begun.elapsed();
        one.due = begun + one.every.max(took * SHARE);
        one.counts.0 += 1;
        one.counts.1 += u64::from(outcome.is_err());
        let time = now();
        // Vertices of this process's own, which it does not take away.
        let _ = one.took.publish_at(time, took.as_secs_f64());
        let _ = one.runs.publish_at(time, one.counts.0);
        let _ = one.failures.publish_at(time, one.counts.1);
        if one.last.as_ref() == Some(&outcome) {
            let _ = one.writer.check_at(time);
            return;
        }
        let sample = match &outcome {
            Ok(number) => Sample::measured(time, Value::F64(*number)),
            Err(reason) => Sample::unknown(time, ValueType::F64, reason),
        };
        let _ = one.writer.publish_sample(&sample);
        let about = About { formula: Some(one.sql.clone()), reason: outcome.clone().err() };
        lock(&self.abouts).insert(one.topic.clone(), about);
        one.last = Some(outcome);
    }
}

/// The one number of an answer; else why it is none.
fn number(answer: &Answer) -> Result<f64, String> {
    if !answer.missing.is_empty() {
        return Err(format!("without {}, which did not answer", answer.missing.join(", ")));
    }
    let (rows, columns) = (answer.rows(), answer.schema.fields().len());
    if columns != 1 || rows > 1 {
        let rows = if rows > 1 { "more than one row" } else { "one row" };
        return Err(format!(
            "an insight is one number, and the answer has {rows} of {columns} columns"
        ));
    }
    let Some(batch) = answer.batches.first() else {
        return Err("the answer has no row".to_owned());
    };
    let column = batch.column(0);
    if !column.data_type().is_numeric() && !matches!(column.data_type(), DataType::Boolean) {
        return Err(format!("an insight is a number, and the answer is {}", column.data_type()));
    }
    let numbers = cast(column, &DataType::Float64).map_err(|e| e.to_string())?;
    let numbers = numbers.as_primitive::<Float64Type>();
    match numbers.is_valid(0).then(|| numbers.value(0)) {
        Some(number) if number.is_finite() => Ok(number),
        Some(number) => Err(format!("the answer is {number}")),
        None => Err("the answer is NULL".to_owned()),
    }
}
