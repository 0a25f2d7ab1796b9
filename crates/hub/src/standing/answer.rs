//! Answers that are compared. Rows are compared as a whole: a row that was not in the answer before is new; a row that
//! no longer is in it is gone; a row with a changed cell is both. Equal rows are counted.

use std::cmp::Ordering;
use std::io::Write;
use std::sync::atomic::{self, AtomicUsize};
use std::sync::{Arc, OnceLock};

use skopos_model::Timestamp;
use skopos_query::arrow::array::{RecordBatch, UInt32Array};
use skopos_query::arrow::compute::{concat_batches, take_record_batch};
use skopos_query::arrow::datatypes::SchemaRef;
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::row::{RowConverter, Rows, SortField};
use skopos_query::{Answer, Error};

use crate::pieces::rows_json;

/// Bytes of all answers that are kept.
const MAX_BYTES: usize = 256 << 20;

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
    /// The change as JSON, from the first client that wants it: all clients of a question get the same.
    json: OnceLock<String>,
}

impl Change {
    pub(crate) fn new(
        schema: SchemaRef,
        new: Vec<RecordBatch>,
        gone: RecordBatch,
        rows: usize,
    ) -> Self {
        Self { schema, new, gone, rows, json: OnceLock::new() }
    }

    /// Writes the change as `docs/json/watch-sql.schema.json` describes it.
    ///
    /// # Errors
    /// Fails if the rows cannot be encoded or written.
    pub fn write_json(&self, time: Timestamp, writer: &mut impl Write) -> Result<(), ArrowError> {
        write!(writer, "{{\"event\":\"rows\",\"time\":\"{time}\",\"time_ns\":{}", time.as_nanos())?;
        writer.write_all(self.json()?.as_bytes())?;
        Ok(())
    }

    /// Returns the part of the JSON object after its time.
    fn json(&self) -> Result<&str, ArrowError> {
        if let Some(json) = self.json.get() {
            return Ok(json);
        }
        let mut json = String::from(",\"new\":");
        json.push_str(&rows_json(&self.new)?);
        json.push_str(",\"gone\":");
        json.push_str(&rows_json(std::slice::from_ref(&self.gone))?);
        json.push_str(&format!(",\"rows\":{}}}", self.rows));
        Ok(self.json.get_or_init(|| json))
    }
}

/// An answer that is kept for the comparison with the next.
pub(super) struct Snapshot {
    schema: SchemaRef,
    batch: RecordBatch,
    converter: Arc<RowConverter>,
    rows: Rows,
    /// Places of the rows, sorted by their bytes.
    sorted: Vec<u32>,
    _held: Held,
}

impl Snapshot {
    /// Keeps an answer; `before` is the answer before, if there is one.
    ///
    /// # Errors
    /// Fails if all answers that are kept take too many bytes.
    pub(super) fn new(
        answer: &Answer,
        before: Option<&Self>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let failed = |e: ArrowError| Error::Query { message: e.to_string() };
        let schema = answer.schema.clone();
        let batch = concat_batches(&schema, &answer.batches).map_err(failed)?;
        let converter = match before.filter(|before| before.schema == schema) {
            Some(before) => before.converter.clone(),
            None => {
                let fields = schema.fields().iter().map(|f| SortField::new(f.data_type().clone()));
                Arc::new(RowConverter::new(fields.collect()).map_err(failed)?)
            }
        };
        let rows = converter.convert_columns(batch.columns()).map_err(failed)?;
        let mut sorted: Vec<u32> = (0..).take(batch.num_rows()).collect();
        sorted.sort_unstable_by(|a, b| rows.row(*a as usize).cmp(&rows.row(*b as usize)));
        let bytes = batch.get_array_memory_size() + rows.size() + size_of_val(&*sorted);
        let held = budget.hold(bytes)?;
        Ok(Self { schema, batch, converter, rows, sorted, _held: held })
    }

    /// Returns all rows as new.
    pub(super) fn whole(&self) -> Change {
        let gone = RecordBatch::new_empty(self.schema.clone());
        self.change(self.batch.clone(), gone)
    }

    /// Returns the difference to an answer before; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the rows cannot be taken.
    pub(super) fn changes_since(&self, before: &Self) -> Result<Option<Change>, ArrowError> {
        if self.schema != before.schema {
            return Ok(Some(self.whole()));
        }
        let (mut new, mut gone) = (Vec::new(), Vec::new());
        let (mut now, mut then) = (&self.sorted[..], &before.sorted[..]);
        loop {
            let order = match (now.first(), then.first()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => self.rows.row(*a as usize).cmp(&before.rows.row(*b as usize)),
            };
            if order != Ordering::Greater {
                let (place, rest) = (now[0], &now[1..]);
                now = rest;
                new.extend((order == Ordering::Less).then_some(place));
            }
            if order != Ordering::Less {
                let (place, rest) = (then[0], &then[1..]);
                then = rest;
                gone.extend((order == Ordering::Greater).then_some(place));
            }
        }
        if new.is_empty() && gone.is_empty() {
            return Ok(None);
        }
        new.sort_unstable();
        let new = take_record_batch(&self.batch, &UInt32Array::from(new))?;
        let gone = take_record_batch(&before.batch, &UInt32Array::from(gone))?;
        Ok(Some(self.change(new, gone)))
    }

    fn change(&self, new: RecordBatch, gone: RecordBatch) -> Change {
        let new = if new.num_rows() == 0 { Vec::new() } else { vec![new] };
        Change::new(self.schema.clone(), new, gone, self.batch.num_rows())
    }
}

/// The bytes of all answers that are kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

/// Bytes that count until this is dropped.
#[derive(Debug)]
struct Held {
    bytes: usize,
    budget: Budget,
}

impl Budget {
    fn hold(&self, bytes: usize) -> Result<Held, Error> {
        let held = Held { bytes, budget: self.clone() };
        let before = self.0.fetch_add(bytes, atomic::Ordering::Relaxed);
        if before + bytes > MAX_BYTES {
            let most = MAX_BYTES >> 20;
            let message =
                format!("the answers to all standing questions are larger than {most} MiB");
            return Err(Error::Query { message });
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use skopos_query::Way;
    use skopos_query::arrow::array::{AsArray as _, Int64Array, StringArray};
    use skopos_query::arrow::datatypes::Int64Type;

    use super::*;

    fn answer(rows: &[(i64, &str)]) -> Answer {
        let numbers = Int64Array::from_iter_values(rows.iter().map(|(number, _)| *number));
        let texts = StringArray::from_iter_values(rows.iter().map(|(_, text)| *text));
        let batch = RecordBatch::try_from_iter([
            ("n", Arc::new(numbers) as _),
            ("t", Arc::new(texts) as _),
        ]);
        let batch = batch.expect("a batch");
        Answer::new(batch.schema(), vec![batch], Way::Planned, Vec::new())
    }

    fn numbers(batch: &RecordBatch) -> Vec<i64> {
        batch.column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn new_and_gone_rows_are_found_and_equal_ones_are_counted() {
        let budget = Budget::default();
        let snapshot = |rows: &[(i64, &str)], before: Option<&Snapshot>| {
            Snapshot::new(&answer(rows), before, &budget).expect("an answer")
        };
        let first = snapshot(&[(3, "c"), (1, "a"), (1, "a"), (2, "b")], None);
        let second = snapshot(&[(9, "z"), (1, "a"), (2, "B"), (3, "c"), (3, "c")], Some(&first));
        let change = second.changes_since(&first).expect("rows").expect("a change");
        assert_eq!(numbers(&change.new[0]), [9, 2, 3], "in the order of the answer");
        let mut gone = numbers(&change.gone);
        gone.sort_unstable();
        assert_eq!((gone, change.rows), (vec![1, 2], 5));
        let same = snapshot(&[(2, "b"), (1, "a"), (3, "c"), (1, "a")], None);
        assert!(same.changes_since(&first).expect("rows").is_none(), "in another order");
        let none = snapshot(&[], Some(&same));
        let change = none.changes_since(&same).expect("rows").expect("a change");
        assert_eq!((change.new.len(), change.gone.num_rows(), change.rows), (0, 4, 0));
        drop((first, second, same, none));
        assert_eq!(budget.0.load(atomic::Ordering::Relaxed), 0, "all bytes are free again");
    }

    #[test]
    fn answers_that_are_kept_are_bounded_in_bytes() {
        let budget = Budget::default();
        let held = budget.hold(MAX_BYTES).expect("room");
        assert!(budget.hold(1).is_err());
        drop(held);
        budget.hold(MAX_BYTES).expect("room again");
    }
}
