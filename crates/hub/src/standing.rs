//! Standing questions: statements that the hub asks again when their inputs change. Each answer carries only the
//! rows that changed.
//!
//! Rows are compared as a whole. A row that was not in the answer before is new; a row that no longer is in it is
//! gone; a row with a changed cell is both. Equal rows are counted.

use std::collections::HashMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use skopos_access::Caller;
use skopos_query::arrow::array::{RecordBatch, UInt64Array};
use skopos_query::arrow::compute::take_record_batch;
use skopos_query::arrow::datatypes::SchemaRef;
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::row::{OwnedRow, RowConverter, SortField};
use skopos_query::{Answer, Engine, Error, Inputs, Limits};
use tokio::sync::watch;
use tokio::time::Instant;

/// Default time between two evaluations of a statement that changes with measured values.
const EVERY: Duration = Duration::from_millis(100);

/// Default time between two evaluations of a statement that changes with the clock.
const EVERY_BY_THE_CLOCK: Duration = Duration::from_secs(1);

/// Minimum time between two evaluations. People and most programs do not notice a shorter delay.
const SHORTEST: Duration = Duration::from_millis(10);

/// Length of the pause after an evaluation, in durations of that evaluation. It limits a standing question to a
/// tenth of one core.
const REST: u32 = 9;

/// Maximum number of rows of a standing question's answer. They are kept for the comparison with the next answer.
pub const MAX_ROWS: usize = 100_000;

/// The difference between two answers to a standing question.
#[derive(Debug)]
pub struct Change {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows that are new, in the order of the answer.
    pub new: Vec<RecordBatch>,
    /// The rows that are gone, in no particular order.
    pub gone: RecordBatch,
    /// Number of rows of the whole answer.
    pub rows: usize,
}

/// A standing question.
pub struct Standing {
    engine: Arc<Engine>,
    caller: Caller,
    sql: String,
    limits: Limits,
    every: Duration,
    inputs: Inputs,
    news: Vec<watch::Receiver<u64>>,
    /// Fingerprint of the inputs at the last evaluation.
    print: Option<u64>,
    /// Earliest time of the next evaluation.
    not_before: Instant,
    last: Option<LastAnswer>,
}

/// The last answer, for comparison.
struct LastAnswer {
    schema: SchemaRef,
    converter: RowConverter,
    rows: HashMap<OwnedRow, u64>,
}

impl Standing {
    /// Prepares a statement of `caller` that is evaluated at most once per `every`; the channels `news` notify of changes.
    ///
    /// # Errors
    /// Fails if the statement cannot be answered.
    pub async fn new(
        engine: Arc<Engine>,
        caller: Caller,
        sql: String,
        every: Option<Duration>,
        deadline: Duration,
        news: Vec<watch::Receiver<u64>>,
    ) -> Result<Self, Error> {
        let inputs = engine.inputs(&caller, &sql).await?;
        let usual = if inputs.is_timed() { EVERY_BY_THE_CLOCK } else { EVERY };
        let every = every.unwrap_or(usual).max(SHORTEST);
        let limits = Limits { deadline, rows: MAX_ROWS };
        let (print, not_before, last) = (None, Instant::now(), None);
        Ok(Self { engine, caller, sql, limits, every, inputs, news, print, not_before, last })
    }

    /// Waits for the changes since the last call; the first call returns the whole answer. The statement is
    /// evaluated only during this call, so a slow caller misses intermediate answers, but not a row of the
    /// current one.
    ///
    /// # Errors
    /// Fails as [`Engine::query`] does.
    pub async fn next(&mut self) -> Result<Change, Error> {
        loop {
            tokio::time::sleep_until(self.not_before).await;
            let begun = Instant::now();
            // Changes from here on count as new.
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
                let news = any_changed(&mut self.news);
                match self.inputs.is_polled() {
                    true => drop(tokio::time::timeout(EVERY_BY_THE_CLOCK, news).await),
                    false => news.await,
                }
            }
        }
    }

    async fn ask(&mut self) -> Result<Option<Change>, Error> {
        let answer = self.engine.query(&self.caller, &self.sql, &self.limits).await?;
        self.compare(answer).map_err(|e| Error::Query { message: e.to_string() })
    }

    fn compare(&mut self, answer: Answer) -> Result<Option<Change>, ArrowError> {
        let before = self.last.take().filter(|last| last.schema == answer.schema);
        let is_first = before.is_none();
        let mut last = match before {
            Some(last) => last,
            None => LastAnswer::empty(answer.schema.clone())?,
        };
        let (mut rows, mut new) = (HashMap::new(), Vec::new());
        for batch in &answer.batches {
            let mut places = Vec::new();
            for (at, row) in last.converter.convert_columns(batch.columns())?.iter().enumerate() {
                let row = row.owned();
                match last.rows.get_mut(&row) {
                    Some(count) if *count > 0 => *count -= 1,
                    _ => places.push(at as u64),
                }
                *rows.entry(row).or_insert(0) += 1;
            }
            if !places.is_empty() {
                new.push(take_record_batch(batch, &UInt64Array::from(places))?);
            }
        }
        let gone = last.rows.iter().flat_map(|(row, count)| (0..*count).map(|_| row.row()));
        let gone = last.converter.convert_rows(gone)?;
        let gone = match gone.is_empty() {
            true => RecordBatch::new_empty(answer.schema.clone()),
            false => RecordBatch::try_new(answer.schema.clone(), gone)?,
        };
        last.rows = rows;
        self.last = Some(last);
        let has_changed = is_first || !new.is_empty() || gone.num_rows() > 0;
        let rows = answer.rows();
        Ok(has_changed.then_some(Change { schema: answer.schema, new, gone, rows }))
    }
}

impl LastAnswer {
    fn empty(schema: SchemaRef) -> Result<Self, ArrowError> {
        let fields = schema.fields().iter().map(|f| SortField::new(f.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        Ok(Self { schema, converter, rows: HashMap::new() })
    }
}

/// Waits until one of the channels has changed; for ever if all senders are gone.
pub async fn any_changed(news: &mut [watch::Receiver<u64>]) {
    let mut waiting: Vec<_> = news.iter_mut().map(|channel| Box::pin(channel.changed())).collect();
    std::future::poll_fn(|context| {
        let mut has_news = false;
        waiting.retain_mut(|change| match Pin::new(change).poll(context) {
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
