//! A question that stands: asked again when something that it depends on has changed, and answered
//! with what is new.
//!
//! Rows are compared whole. One that was not in the answer before is new; one that no longer is, is
//! gone; one whose cell changed is both. Rows of equal cells are counted.

use std::collections::HashMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use skopos_query::arrow::array::{RecordBatch, UInt64Array};
use skopos_query::arrow::compute::take_record_batch;
use skopos_query::arrow::datatypes::SchemaRef;
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::row::{OwnedRow, RowConverter, SortField};
use skopos_query::{Answer, Engine, Error, Inputs, Limits};
use tokio::sync::watch;
use tokio::time::Instant;

/// Time between two evaluations of a statement that changes with what is measured, unless given.
const EVERY: Duration = Duration::from_millis(100);

/// The same of one that changes with the clock.
const EVERY_BY_THE_CLOCK: Duration = Duration::from_secs(1);

/// The shortest that may be given: what a person and most programs call at once.
const SHORTEST: Duration = Duration::from_millis(10);

/// How many times longer than an evaluation took nothing is evaluated: a standing question takes a
/// tenth of one core at the most, however much it asks.
const REST: u32 = 9;

/// Rows of an answer that stands, which are kept to compare with the next.
pub const MAX_ROWS: usize = 100_000;

/// What changed.
#[derive(Debug)]
pub struct Change {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows that are new, in the order of the answer.
    pub new: Vec<RecordBatch>,
    /// The rows that are gone, in no order.
    pub gone: RecordBatch,
    /// How many rows the answer has.
    pub rows: usize,
}

/// A question that stands.
pub struct Standing {
    engine: Arc<Engine>,
    sql: String,
    limits: Limits,
    every: Duration,
    inputs: Inputs,
    news: Vec<watch::Receiver<u64>>,
    /// Of the inputs when it was asked last.
    print: Option<u64>,
    /// When it may be asked again.
    not_before: Instant,
    shown: Option<Shown>,
}

/// The last answer.
struct Shown {
    schema: SchemaRef,
    converter: RowConverter,
    rows: HashMap<OwnedRow, u64>,
}

impl Standing {
    /// Of a statement that may be asked again `every` so often; `news` say when it is worth a look.
    ///
    /// # Errors
    /// It is no question that can be answered.
    pub async fn new(
        engine: Arc<Engine>,
        sql: String,
        every: Option<Duration>,
        deadline: Duration,
        news: Vec<watch::Receiver<u64>>,
    ) -> Result<Self, Error> {
        let inputs = engine.inputs(&sql).await?;
        let usual = if inputs.is_timed() { EVERY_BY_THE_CLOCK } else { EVERY };
        let every = every.unwrap_or(usual).max(SHORTEST);
        let limits = Limits { deadline, rows: MAX_ROWS };
        let (print, not_before, shown) = (None, Instant::now(), None);
        Ok(Self { engine, sql, limits, every, inputs, news, print, not_before, shown })
    }

    /// What changed since the last call; the first time the whole answer. Nothing is asked before this
    /// is called, so one that is slow to call it misses answers between, and no row.
    ///
    /// # Errors
    /// As [`Engine::query`].
    pub async fn next(&mut self) -> Result<Change, Error> {
        loop {
            tokio::time::sleep_until(self.not_before).await;
            let begun = Instant::now();
            // Whatever comes from here on is news.
            self.news.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let print = self.engine.fingerprint(&self.inputs, &|_| true);
            let is_due = self.inputs.is_timed() || self.print != Some(print);
            let change = match is_due {
                true => Some(self.ask().await?),
                false => None,
            };
            self.print = Some(print);
            self.not_before = begun + self.every.max(begun.elapsed() * (REST + 1));
            if let Some(change) = change.flatten() {
                return Ok(change);
            }
            if !self.inputs.is_timed() {
                let news = any(&mut self.news);
                match self.inputs.is_polled() {
                    true => drop(tokio::time::timeout(EVERY_BY_THE_CLOCK, news).await),
                    false => news.await,
                }
            }
        }
    }

    async fn ask(&mut self) -> Result<Option<Change>, Error> {
        let answer = self.engine.query(&self.sql, &self.limits).await?;
        self.compare(answer).map_err(|e| Error::Query { message: e.to_string() })
    }

    fn compare(&mut self, answer: Answer) -> Result<Option<Change>, ArrowError> {
        let before = self.shown.take().filter(|shown| shown.schema == answer.schema);
        let is_first = before.is_none();
        let mut shown = match before {
            Some(shown) => shown,
            None => Shown::none(answer.schema.clone())?,
        };
        let (mut rows, mut new) = (HashMap::new(), Vec::new());
        for batch in &answer.batches {
            let mut places = Vec::new();
            for (at, row) in shown.converter.convert_columns(batch.columns())?.iter().enumerate() {
                let row = row.owned();
                match shown.rows.get_mut(&row) {
                    Some(count) if *count > 0 => *count -= 1,
                    _ => places.push(at as u64),
                }
                *rows.entry(row).or_insert(0) += 1;
            }
            if !places.is_empty() {
                new.push(take_record_batch(batch, &UInt64Array::from(places))?);
            }
        }
        let gone = shown.rows.iter().flat_map(|(row, count)| (0..*count).map(|_| row.row()));
        let gone = shown.converter.convert_rows(gone)?;
        let gone = match gone.is_empty() {
            true => RecordBatch::new_empty(answer.schema.clone()),
            false => RecordBatch::try_new(answer.schema.clone(), gone)?,
        };
        shown.rows = rows;
        self.shown = Some(shown);
        let has_changed = is_first || !new.is_empty() || gone.num_rows() > 0;
        let rows = answer.rows();
        Ok(has_changed.then_some(Change { schema: answer.schema, new, gone, rows }))
    }
}

impl Shown {
    fn none(schema: SchemaRef) -> Result<Self, ArrowError> {
        let fields = schema.fields().iter().map(|f| SortField::new(f.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        Ok(Self { schema, converter, rows: HashMap::new() })
    }
}

/// Until one of them has news; for ever if nobody can have any.
pub async fn any(news: &mut [watch::Receiver<u64>]) {
    let mut waiting: Vec<_> = news.iter_mut().map(|one| Box::pin(one.changed())).collect();
    std::future::poll_fn(|context| {
        let mut has_news = false;
        waiting.retain_mut(|one| match Pin::new(one).poll(context) {
            Poll::Ready(Ok(())) => {
                has_news = true;
                false
            }
            // Its sender is gone.
            Poll::Ready(Err(_)) => false,
            Poll::Pending => true,
        });
        if has_news { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
