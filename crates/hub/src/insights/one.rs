//! One insight: when it is asked, and what becomes of its answer.

use std::error::Error;
use std::time::{Duration, Instant};

use skopos_model::{Kind, Sample, Topic, Unit, Value, ValueType};
use skopos_query::arrow::array::{Array as _, AsArray as _};
use skopos_query::arrow::compute::cast;
use skopos_query::arrow::datatypes::{DataType, Float64Type};
use skopos_query::{Answer, Inputs, Limits};
use skopos_shm::{Publisher, VertexSpec, VertexWriter, now};

use super::{Desk, lock};
use crate::tables::InsightInfo;
use skopos_agent::config::InsightConfig;

/// How often an insight is looked at whose inputs say nothing: it shows that the value holds, and as soon
/// as a person sees it what changes with the clock alone.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time between two looks at what an insight reads, however often that changes: as a question that
/// stands. It also bounds what two insights do that read each other.
const SHORTEST: Duration = Duration::from_millis(100);

/// How long one answer may take. One that takes so long is asked for every minute and a half.
const PATIENCE: Duration = Duration::from_secs(10);

/// Of the time of one thread what an insight may take: one that takes longer is looked at less often.
const SHARE: u32 = 10;

/// One insight.
pub(super) struct One {
    topic: Topic,
    sql: String,
    /// `None` if it is asked when its inputs change.
    every: Option<Duration>,
    /// What it reads, once that is known, and what that was when it was asked.
    inputs: Option<Inputs>,
    print: Option<u64>,
    writer: VertexWriter,
    /// What it costs: seconds of the latest answer, answers, answers that were none.
    took: VertexWriter,
    runs: VertexWriter,
    failures: VertexWriter,
    counts: (u64, u64),
    /// When it is looked at, and how much earlier it may be if there is news.
    due: Instant,
    not_before: Instant,
    last: Option<Result<f64, String>>,
}

impl One {
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

    pub(super) fn about(&self, reason: Option<String>) -> InsightInfo {
        InsightInfo { formula: Some(self.sql.clone()), reason }
    }

    /// Whether it is asked when its inputs change.
    pub(super) fn is_on_change(&self) -> bool {
        self.every.is_none()
    }

    /// When it is to be looked at.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Whether news would make it due earlier.
    pub(super) fn can_be_hastened(&self) -> bool {
        self.is_on_change() && self.not_before < self.due
    }

    /// Something is new.
    pub(super) fn hasten(&mut self) {
        if self.is_on_change() {
            self.due = self.due.min(self.not_before);
        }
    }

    /// Asks, unless what it reads is what it was.
    pub(super) fn look(&mut self, desk: &Desk) {
        let begun = Instant::now();
        match self.is_to_be_asked(desk) {
            true => self.ask(desk),
            false => {
                // A vertex of this process's own, which it does not take away.
                let _ = self.writer.check_at(now());
            }
        }
        let rest = begun.elapsed() * SHARE;
        let is_timed = self.inputs.as_ref().is_some_and(Inputs::is_timed);
        let (soonest, latest) = match self.every {
            Some(every) => (every, every),
            None if is_timed || self.print.is_none() => (LOOK_EVERY, LOOK_EVERY),
            None => (SHORTEST, LOOK_EVERY),
        };
        self.not_before = begun + soonest.max(rest);
        self.due = begun + latest.max(rest);
    }

    fn is_to_be_asked(&mut self, desk: &Desk) -> bool {
        if self.every.is_some() {
            return true;
        }
        if self.inputs.is_none() {
            // What cannot be asked says why when it is.
            self.inputs = desk.runtime.block_on(desk.engine.inputs(&self.sql)).ok();
        }
        let Some(inputs) = &self.inputs else { return true };
        let is_other =
            |topic: &Topic| *topic != self.topic && !topic.as_str().starts_with(&desk.costs);
        let print = desk.engine.fingerprint(inputs, &is_other);
        self.print.replace(print) != Some(print) || inputs.is_timed()
    }

    fn ask(&mut self, desk: &Desk) {
        let begun = Instant::now();
        // One that has more rows is no number; two are enough to see it.
        let limits = Limits { deadline: PATIENCE, rows: 2 };
        let answer = desk.runtime.block_on(desk.engine.query(&self.sql, &limits));
        let outcome = match &answer {
            Ok(answer) => number(answer),
            Err(e) => Err(e.to_string()),
        };
        if !answer.is_ok_and(|answer| answer.missing.is_empty()) {
            // It may be answered the next time, with the same inputs.
            self.print = None;
        }
        self.counts.0 += 1;
        self.counts.1 += u64::from(outcome.is_err());
        let time = now();
        // Vertices of this process's own, which it does not take away.
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
        lock(&desk.abouts).insert(self.topic.clone(), self.about(outcome.clone().err()));
        self.last = Some(outcome);
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
