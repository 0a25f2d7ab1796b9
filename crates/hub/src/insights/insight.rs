//! An insight of the hub: decides when its statement is asked, and publishes the answer.

use std::error::Error;
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::{Kind, Sample, Topic, Unit, Value, ValueType};
use skopos_query::arrow::array::{Array as _, AsArray as _};
use skopos_query::arrow::compute::cast;
use skopos_query::arrow::datatypes::{DataType, Float64Type};
use skopos_query::{Answer, Inputs, Limits};
use skopos_shm::{Publisher, VertexSpec, VertexWriter, now};

use super::context::{Context, store_info};
use crate::tables::InsightInfo;
use skopos_agent::config::InsightConfig;

/// Time between two checks of an insight without changes of its inputs. A check confirms that the value holds, and
/// evaluates statements that change with the clock.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Minimum time between two evaluations: the default of a standing question. It also limits two insights that read
/// each other.
const SHORTEST: Duration = Duration::from_millis(100);

/// Maximum time for one answer. A statement that takes as long is asked every 100 seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Length of an insight's shortest interval, in durations of its last evaluation: an insight uses a tenth of the thread's
/// time at most.
const SHARE: u32 = 10;

/// An insight of the hub.
pub(super) struct HubInsight {
    topic: Topic,
    sql: String,
    /// Time between two evaluations; `None` if changes of the inputs decide.
    every: Option<Duration>,
    /// The inputs, once they are known, and their fingerprint at the last evaluation.
    inputs: Option<Inputs>,
    print: Option<u64>,
    writer: VertexWriter,
    /// Costs: seconds of the latest evaluation, evaluations, evaluations without a number.
    took: VertexWriter,
    runs: VertexWriter,
    failures: VertexWriter,
    counts: (u64, u64),
    /// Time of the next check, and the earliest time to which a change may move it.
    due: Instant,
    not_before: Instant,
    last: Option<Result<f64, String>>,
}

impl HubInsight {
    pub(super) fn new(
        publisher: &Publisher,
        site: &str,
        insight: &InsightConfig,
        unit: Unit,
    ) -> Result<Self, Box<dyn Error>> {
        let name = &insight.name;
        let topic = Topic::new(&format!("{site}/insight/{name}"))?;
        let own = |metric: &str, value_type, unit, kind| {
            let topic = Topic::new(&format!("{site}/self/insight/{name}/{metric}"))?;
            let spec = VertexSpec::new(topic, value_type).unit(unit).kind(kind);
            Ok::<_, Box<dyn Error>>(publisher.register(spec)?)
        };
        let now = Instant::now();
        Ok(Self {
            writer: publisher
                .register(VertexSpec::new(topic.clone(), ValueType::F64).unit(unit))?,
            topic,
            sql: insight.sql.clone(),
            every: insight.every,
            inputs: None,
            print: None,
            took: own("answer_seconds", ValueType::F64, Unit::SECONDS, Kind::Gauge)?,
            runs: own("answers_total", ValueType::U64, Unit::NONE, Kind::Counter)?,
            failures: own("failures_total", ValueType::U64, Unit::NONE, Kind::Counter)?,
            counts: (0, 0),
            due: now,
            not_before: now,
            last: None,
        })
    }

    pub(super) fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Returns its formula with the `reason` why it has no value.
    pub(super) fn info(&self, reason: Option<String>) -> InsightInfo {
        InsightInfo { formula: Some(self.sql.clone()), reason }
    }

    /// Returns true if changes of the inputs decide when it is evaluated.
    pub(super) fn is_on_change(&self) -> bool {
        self.every.is_none()
    }

    /// Returns the time of the next check.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Returns true if a change would make it due earlier.
    pub(super) fn can_be_hastened(&self) -> bool {
        self.is_on_change() && self.not_before < self.due
    }

    /// Moves the next check forward after a change.
    pub(super) fn hasten(&mut self) {
        if self.is_on_change() {
            self.due = self.due.min(self.not_before);
        }
    }

    /// Evaluates the statement, unless its inputs are unchanged.
    pub(super) fn check(&mut self, context: &Context) {
        let begun = Instant::now();
        match self.needs_evaluation(context) {
            true => self.evaluate(context),
            false => {
                // The vertex belongs to this process, which does not remove it.
                let _ = self.writer.check_at(now());
            }
        }
        let rest = begun.elapsed() * SHARE;
        let is_timed = self.inputs.as_ref().is_some_and(Inputs::is_timed);
        let (soonest, latest) = match self.every {
            Some(every) => (every, every),
            None if is_timed || self.print.is_none() => (CHECK_EVERY, CHECK_EVERY),
            None => (SHORTEST, CHECK_EVERY),
        };
        self.not_before = begun + soonest.max(rest);
        self.due = begun + latest.max(rest);
    }

    fn needs_evaluation(&mut self, context: &Context) -> bool {
        if self.every.is_some() {
            return true;
        }
        if self.inputs.is_none() {
            // After a failure here the evaluation gives the reason.
            self.inputs =
                context.runtime.block_on(context.engine.inputs(&Caller::Owner, &self.sql)).ok();
        }
        let Some(inputs) = &self.inputs else { return true };
        let is_other =
            |topic: &Topic| *topic != self.topic && !topic.as_str().starts_with(&context.costs);
        let print = context.engine.fingerprint(inputs, &is_other);
        self.print.replace(print) != Some(print) || inputs.is_timed()
    }

    fn evaluate(&mut self, context: &Context) {
        let begun = Instant::now();
        // A second row is enough to see that the answer is not a number.
        let limits = Limits { deadline: TIMEOUT, rows: 2, threads: 1 };
        let answer =
            context.runtime.block_on(context.engine.query(&Caller::Owner, &self.sql, &limits));
        let outcome = match &answer {
            Ok(answer) => number(answer),
            Err(e) => Err(e.to_string()),
        };
        if !answer.is_ok_and(|answer| answer.missing.is_empty()) {
            // The next evaluation may succeed with the same inputs.
            self.print = None;
        }
        self.counts.0 += 1;
        self.counts.1 += u64::from(outcome.is_err());
        let time = now();
        // The vertices belong to this process, which does not remove them.
        let _ = self.took.publish_at(time, begun.elapsed().as_secs_f64());
        let _ = self.runs.publish_at(time, self.counts.0);
        let _ = self.failures.publish_at(time, self.counts.1);
        if self.last.as_ref() == Some(&outcome) {
            let _ = self.writer.check_at(time);
            return;
        }
        let sample = match &outcome {
            Ok(number) => Sample::measured(time, Value::F64(*number)),
            Err(reason) => Sample::unknown(time, ValueType::F64, reason),
        };
        let _ = self.writer.publish_sample(&sample);
        store_info(&context.infos, &self.topic, self.info(outcome.clone().err()));
        self.last = Some(outcome);
    }
}

/// Returns the one number of an answer, or the reason why there is none.
fn number(answer: &Answer) -> Result<f64, String> {
    if let Some(reason) = answer.partial_reason() {
        return Err(reason);
    }
    let (rows, columns) = (answer.rows(), answer.schema.fields().len());
    if columns != 1 || rows > 1 {
        let rows = if rows > 1 { "more than one row" } else { "one row" };
        return Err(format!(
            "an insight is one number, and the answer has {rows} of {columns} columns"
        ));
    }
    let Some(batch) = answer.batches.first() else {
        return Err("the answer has no rows".to_owned());
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
