//! Tries a rule on recorded samples: the rule is evaluated at moments of the past, over the values that held then.
//!
//! # Invariants
//! - At a moment the statement sees no later sample.
//! - Only statements that depend on samples alone are tried. A statement that reads the clock, an age, or jobs would have
//!   had another answer then, so it is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use skopos_access::Caller;
use skopos_model::{Kind, Origin, Sample, Structured, Timestamp, Topic, Unit, Value, ValueType};
use skopos_query::arrow::array::{Array as _, AsArray as _, RecordBatch};
use skopos_query::arrow::datatypes::{Float64Type, TimestampNanosecondType};
use skopos_query::{
    Answer, Described, Engine, Error, Inputs, Limits, Node, Registry, Row, Source, Wanted,
};
use skopos_steer::rule::{Due, Event, MAX_SUBJECTS, Moment, Tracker};
use skopos_term::Failure;

use crate::config::RuleConfig;
use crate::jobs::JobsPlace;
use crate::rules::{RulesPlace, TIMEOUT, rows};
use crate::tables::{InsightInfo, Stores, register};

/// Most moments of a trial: a day every five seconds.
pub const MAX_MOMENTS: u64 = 20_000;

/// Most samples of a trial. They take about 100 MB.
pub const MAX_SAMPLES: usize = 1_000_000;

/// Most topics of a trial: a statement that names all of them has room for as many.
const MAX_TOPICS: usize = 1000;

/// Maximum time for one answer with recorded samples.
const DEADLINE: Duration = Duration::from_secs(60);

/// The result of a trial.
#[derive(Debug)]
pub struct Trial {
    /// The events, the oldest first.
    pub events: Vec<Event>,
    /// Number of moments at which the rule was evaluated.
    pub moments: u64,
    /// Number of samples that its statement reads.
    pub samples: usize,
    /// Number of their topics.
    pub topics: usize,
    /// Number of subjects that fire at the end.
    pub firing: usize,
}

/// Evaluates a rule over the samples of `source` at each moment of `times`, one every [`RuleConfig::every`].
///
/// # Errors
/// The statement does not depend on samples alone or cannot be answered in the time that a hub has, or the trial is too long.
pub fn try_rule(
    rule: &RuleConfig,
    source: Arc<dyn Source>,
    times: RangeInclusive<Timestamp>,
) -> Result<Trial, Failure> {
    try_within(TIMEOUT, rule, source, times)
}

/// Does the same, with a maximum time for the answer at a moment.
fn try_within(
    timeout: Duration,
    rule: &RuleConfig,
    source: Arc<dyn Source>,
    times: RangeInclusive<Timestamp>,
) -> Result<Trial, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
    let runtime = runtime.map_err(|e| Failure::new("no threads can be started").because(&e))?;
    let (from, to) = (*times.start(), *times.end());
    let moments = to.since(from).as_nanos() / rule.every.as_nanos().max(1) + 1;
    let moments = u64::try_from(moments).unwrap_or(u64::MAX);
    if moments > MAX_MOMENTS {
        return Err(Failure::new(format!(
            "the trial has {moments} moments; {MAX_MOMENTS} are the most"
        ))
        .hint("choose a shorter time, or a longer `--every`"));
    }
    runtime.block_on(async {
        let engine = engine_over(source).map_err(|e| failed(&e))?;
        let inputs = engine.inputs(&Caller::Owner, &rule.when).await.map_err(|e| failed(&e))?;
        if inputs.is_timed() || inputs.is_polled() {
            return Err(Failure::new(format!(
                "the statement of `{}` depends on more than recorded samples",
                rule.name
            ))
            .hint(
                "the past can be tried without `age`, `now()` and tables of jobs, tasks and traces",
            ));
        }
        let past = Arc::new(read(&engine, &inputs, from, to).await?);
        let (samples, topics) = (past.count(), past.series.len());
        let engine = engine_over(past.clone()).map_err(|e| failed(&e))?;
        let mut trial = Trial { events: Vec::new(), moments, samples, topics, firing: 0 };
        let mut tracker = Tracker::new(rule.terms)
            .map_err(|e| Failure::new(format!("rule `{}`", rule.name)).because(&e))?;
        let mut last = None;
        for moment in 0..moments {
            let passed =
                u32::try_from(moment).map_or(Duration::MAX, |n| rule.every.saturating_mul(n));
            let now = from.saturating_add(passed);
            let seen = past.move_to(now);
            // Between two samples the answer stays.
            let answer = match last.take() {
                Some((then, answer)) if then == seen => answer,
                _ => ask(&engine, rule, timeout).await?,
            };
            trial.events.extend(step(&mut tracker, now, answer.clone()));
            last = Some((seen, answer));
        }
        trial.firing = tracker.firing();
        Ok(trial)
    })
}

/// Applies an answer. The actions that are due are done at once, because only an action that is done is repeated.
fn step(
    tracker: &mut Tracker,
    now: Timestamp,
    answer: Result<Vec<skopos_steer::rule::Row>, String>,
) -> Vec<Event> {
    let now = Moment::on_one_clock(now);
    let events = tracker.step(now, answer);
    for event in events.iter().filter(|event| event.due == Due::Now) {
        tracker.note_outcome(now, &event.subject, event.at, true);
    }
    events
}

/// Returns the answer at a moment, or the reason for which the rule fails then.
///
/// # Errors
/// There is no answer within `timeout`. The other moments would each take as long.
async fn ask(
    engine: &Engine,
    rule: &RuleConfig,
    timeout: Duration,
) -> Result<Result<Vec<skopos_steer::rule::Row>, String>, Failure> {
    let limits = Limits { deadline: timeout, rows: MAX_SUBJECTS, threads: 1 };
    match engine.query(&Caller::Owner, &rule.when, &limits).await {
        Ok(answer) => Ok(rows(&answer, &rule.subject)),
        Err(e @ Error::Deadline(_)) => {
            let failure = Failure::new(format!("the statement of `{}`: {e}", rule.name));
            Err(failure.hint("on a hub it fails, too: ask for less time or fewer topics"))
        }
        Err(e) => Ok(Err(e.to_string())),
    }
}

fn failed(error: &Error) -> Failure {
    let failure = Failure::new(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn engine_over(source: Arc<dyn Source>) -> Result<Engine, Error> {
    let mut registry = Registry::new(source.clone());
    let jobs = Arc::new(JobsPlace::without_hub(None));
    let stores = Stores { archive: None, traces: None, jobs, rules: RulesPlace::default() };
    register(&mut registry, &source, stores, Box::new(|_| InsightInfo::default()))?;
    Engine::new(registry)
}

/// Columns of samples that are read.
const COLUMNS: &str = "topic, time, value, text, unit, kind, origin, bound";

/// Reads the samples that the inputs need: those that held at `from`, and later ones up to `to`.
async fn read(
    engine: &Engine,
    inputs: &Inputs,
    from: Timestamp,
    to: Timestamp,
) -> Result<Past, Failure> {
    let limits = Limits { deadline: DEADLINE, rows: MAX_SAMPLES, threads: 0 };
    let ask = async |sql: String| -> Result<Answer, Failure> {
        let answer = engine.query(&Caller::Owner, &sql, &limits).await;
        answer.map_err(|e| match e {
            Error::TooManyRows(most) => {
                Failure::new(format!("the statement reads more than {most} recorded samples"))
                    .hint("choose a shorter time, or name fewer topics in the statement")
            }
            e => failed(&e),
        })
    };
    let before = format!("latest_at('{from}')");
    let during = format!("samples WHERE time > '{from}' AND time <= '{to}'");
    let listed =
        ask(format!("SELECT topic FROM {before} UNION SELECT topic FROM {during}")).await?;
    let mut wanted = BTreeSet::new();
    for batch in &listed.batches {
        let names = batch.column(0).as_string::<i32>();
        let topics = names.iter().flatten().filter_map(|name| Topic::new(name).ok());
        wanted.extend(topics.filter(|topic| inputs.selects(topic)));
    }
    if wanted.len() > MAX_TOPICS {
        let error =
            format!("the statement reads {} topics; {MAX_TOPICS} are the most", wanted.len());
        return Err(Failure::new(error).hint("name fewer topics in the statement"));
    }
    let mut past = Past { now: AtomicI64::new(0), series: BTreeMap::new() };
    if wanted.is_empty() {
        return Ok(past);
    }
    // A topic has no quote.
    let names: Vec<String> = wanted.iter().map(|topic| format!("'{topic}'")).collect();
    let names = names.join(", ");
    for (table, joint) in [(before, "WHERE"), (during, "AND")] {
        let sql = format!(
            "SELECT {COLUMNS} FROM {table} {joint} topic IN ({names}) ORDER BY topic, time"
        );
        let answer = ask(sql).await?;
        if let Some(reason) = answer.partial_reason() {
            return Err(Failure::new(reason));
        }
        answer.batches.iter().for_each(|batch| past.add(batch));
    }
    Ok(past)
}

/// The recorded samples of a topic.
#[derive(Debug)]
struct Series {
    unit: Unit,
    kind: Kind,
    value_type: ValueType,
    /// In the order of their times.
    samples: Vec<Sample>,
}

/// Recorded samples, of which those up to a moment are seen.
#[derive(Debug)]
struct Past {
    now: AtomicI64,
    series: BTreeMap<Topic, Series>,
}

impl Past {
    /// Adds the samples of a batch with [`COLUMNS`].
    fn add(&mut self, batch: &RecordBatch) {
        let text = |at: usize| batch.column(at).as_string::<i32>();
        let number = |at: usize| batch.column(at).as_primitive::<Float64Type>();
        let (topics, texts, units, kinds, origins) = (text(0), text(3), text(4), text(5), text(6));
        let times = batch.column(1).as_primitive::<TimestampNanosecondType>();
        let (values, bounds) = (number(2), number(7));
        for row in 0..batch.num_rows() {
            let Ok(topic) = Topic::new(topics.value(row)) else { continue };
            let structured = texts.is_valid(row).then(|| Structured::from_json(texts.value(row)));
            let value = match structured {
                Some(Ok(structured)) => Value::Structured(structured),
                Some(Err(_)) => continue,
                None if values.is_valid(row) => Value::F64(values.value(row)),
                None => Value::F64(f64::NAN),
            };
            let origin = match origins.value(row) {
                "unknown" => Origin::Unknown,
                "predicted" if bounds.is_valid(row) => {
                    Origin::Predicted { bound: bounds.value(row) }
                }
                _ => Origin::Measured,
            };
            let series = self.series.entry(topic).or_insert_with(|| Series {
                unit: units.value(row).parse().unwrap_or(Unit::NONE),
                kind: kinds.value(row).parse().unwrap_or(Kind::Gauge),
                value_type: value.value_type(),
                samples: Vec::new(),
            });
            let time = Timestamp::from_nanos(times.value(row));
            series.samples.push(Sample { time, value, origin });
        }
    }

    fn count(&self) -> usize {
        self.series.values().map(|series| series.samples.len()).sum()
    }

    /// Moves to a moment, and returns the number of samples up to it.
    fn move_to(&self, now: Timestamp) -> usize {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        self.series.values().map(|series| until(&series.samples, now).len()).sum()
    }

    /// Shows the samples up to the present moment of each wanted topic.
    fn each(&self, wanted: &Wanted, show: &mut dyn FnMut(Described<'_>, &[Sample])) {
        let now = self.now();
        for (topic, series) in
            self.series.iter().filter(|(topic, _)| wanted.selects(topic.as_str()))
        {
            let Series { unit, kind, value_type, samples } = series;
            let (unit, kind, value_type) = (*unit, *kind, *value_type);
            let of = Described { topic, unit, kind, value_type, publisher: "recorded" };
            show(of, until(samples, now));
        }
    }
}

/// Returns the samples up to a time.
fn until(samples: &[Sample], now: Timestamp) -> &[Sample] {
    &samples[..samples.partition_point(|sample| sample.time <= now)]
}

fn row<'a>(of: Described<'a>, sample: &'a Sample) -> Row<'a> {
    Row { of, sample, checked_at: sample.time, ahead: 0, age: None }
}

impl Source for Past {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
        self.each(wanted, &mut |of, samples| {
            if let Some(sample) = samples.last() {
                visit(&row(of, sample));
            }
        });
    }

    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    ) {
        self.each(wanted, &mut |of, samples| {
            samples.iter().filter(|s| times.contains(&s.time)).for_each(|s| visit(&row(of, s)));
        });
    }

    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>)) {
        self.each(wanted, &mut |of, _| visit(&of));
    }

    fn nodes(&self) -> Vec<Node> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use skopos_steer::rule::Terms;

    use super::*;
    use crate::config::Action;

    #[test]
    fn a_statement_without_an_answer_ends_the_trial() {
        let rule = RuleConfig {
            name: "endless".to_owned(),
            when: "SELECT count(*) FROM generate_series(1, 1000000000000000)".to_owned(),
            terms: Terms::default(),
            every: Duration::from_secs(1),
            subject: Vec::new(),
            dry_run: false,
            action: Action::Publish("app/endless".to_owned()),
        };
        let past = Arc::new(Past { now: AtomicI64::new(0), series: BTreeMap::new() });
        let from = Timestamp::from_nanos(1_800_000_000_000_000_000);
        let times = from..=from.saturating_add(Duration::from_secs(3600));
        let ended = try_within(Duration::from_millis(200), &rule, past, times);
        let ended = ended.expect_err("no answer");
        assert!(ended.message().contains("no answer within 200ms"), "{}", ended.message());
    }
}
