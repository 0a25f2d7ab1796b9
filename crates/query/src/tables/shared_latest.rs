//! `latest` for standing questions: they share one look at all topics.
//!
//! A look at the topics of a large site reads hundreds of megabytes, and takes longer than an average of what it finds. So
//! the questions that read all topics get the rows of the last look, which is a moment old at most. Its number is the
//! fingerprint of these rows: a question that has seen an older one is asked again. A look after another one reads what
//! is new since, and has the rest of the rows in common with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{
    Array as _, AsArray as _, RecordBatch, RecordBatchOptions, StringArray,
};
use datafusion::arrow::compute::interleave;
use datafusion::arrow::error::ArrowError;
use skopos_model::unpoisoned;

use crate::column::Column;
use crate::rows::{BoxError, Rows};
use crate::scan::Scan;
use crate::source::{LatestReader, Row, Source, Wanted};
use crate::table::{Fingerprint, Table};
use crate::tables::batch::SampleBatch;
use crate::tables::latest::{BATCH_ROWS, LATEST, LatestTable};
use crate::tables::sample_column::SampleColumn;

/// Age of a look, in durations of that look, from which a question needs another: looks take a tenth of a core.
const VALID: u32 = 9;

/// Shortest and longest age of a look from which a question needs another.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(800);

/// Place of the column `topic`.
const TOPIC: usize = 0;

/// Columns that follow from the topic. Looks that find the same topics share them.
const OF_TOPIC: [SampleColumn; 5] = [
    SampleColumn::Topic,
    SampleColumn::Node,
    SampleColumn::Family,
    SampleColumn::Instance,
    SampleColumn::Metric,
];

/// Columns that follow from the description of a topic. As long as the same topics have samples, looks share them.
const OF_DESCRIPTION: [SampleColumn; 8] = [
    SampleColumn::Topic,
    SampleColumn::Node,
    SampleColumn::Family,
    SampleColumn::Instance,
    SampleColumn::Metric,
    SampleColumn::Unit,
    SampleColumn::Kind,
    SampleColumn::Publisher,
];

/// Time for which a column that was asked for is read with each look.
const KEPT: Duration = Duration::from_secs(30);

/// The latest samples of all topics, as of the last look.
#[derive(Debug)]
pub(crate) struct SharedLatest {
    inner: LatestTable,
    source: Arc<dyn Source>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The columns that are read, by place in `latest`, with the time at which one was last asked for.
    asked: BTreeMap<usize, Instant>,
    look: Option<Look>,
    /// Reads what is new since the last look; `None` if the source has no such reader.
    reader: Option<Box<dyn LatestReader>>,
    /// Number of looks that have found a change.
    version: u64,
}

#[derive(Debug)]
struct Look {
    columns: Vec<usize>,
    batches: Vec<RecordBatch>,
    /// A sum over the times of all samples.
    print: u64,
    valid_until: Instant,
}

impl Look {
    fn new(columns: Vec<usize>, batches: Vec<RecordBatch>, print: u64, begun: Instant) -> Self {
        let valid_until = Instant::now() + (begun.elapsed() * VALID).clamp(SHORTEST, LONGEST);
        Self { columns, batches, print, valid_until }
    }
}

impl SharedLatest {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        let state = State { reader: source.clone().latest_reader(), ..State::default() };
        Self { inner: LatestTable::all(source.clone()), source, state: Mutex::new(state) }
    }

    /// Forgets the last look if no question has asked for long.
    pub(crate) fn forget(&self) {
        let mut state = unpoisoned(self.state.lock());
        state.asked.retain(|_, asked| asked.elapsed() < KEPT);
        if state.asked.is_empty() {
            state.look = None;
        }
    }

    /// Does `work` with a look that has these columns and is not too old.
    fn with_look<T>(
        &self,
        columns: &[usize],
        work: impl FnOnce(&Look, u64) -> Result<T, ArrowError>,
    ) -> Result<T, ArrowError> {
        let mut state = unpoisoned(self.state.lock());
        let state = &mut *state;
        let now = Instant::now();
        // The topics are always read: they tell whether the next look finds the same rows.
        state.asked.extend([TOPIC].iter().chain(columns).map(|column| (*column, now)));
        let is_good = |look: &Look| {
            now < look.valid_until && columns.iter().all(|column| look.columns.contains(column))
        };
        if !state.look.as_ref().is_some_and(is_good) {
            state.asked.retain(|_, asked| asked.elapsed() < KEPT);
            let columns: Vec<usize> = state.asked.keys().copied().collect();
            let again = match &state.look {
                Some(before) if before.columns == columns => {
                    self.look_again(before, state.reader.as_deref_mut())?
                }
                _ => None,
            };
            // Other topics are a change, too.
            let has_same_topics = again.is_some();
            let look = match again {
                Some(look) => look,
                None => self.look(columns, state.reader.as_deref_mut())?,
            };
            let before = state.look.as_ref().map(|look| look.print);
            state.version += u64::from(!has_same_topics || before != Some(look.print));
            state.look = Some(look);
        }
        match &state.look {
            Some(look) => work(look, state.version),
            None => Err(ArrowError::ComputeError("there was no look".to_owned())),
        }
    }

    /// Returns a look that shares rows or texts with the last one; `None` if it finds other topics.
    fn look_again(
        &self,
        before: &Look,
        reader: Option<&mut (dyn LatestReader + 'static)>,
    ) -> Result<Option<Look>, ArrowError> {
        let is_checked = |at: &usize| LATEST[*at] == SampleColumn::CheckedAt;
        match reader {
            Some(reader) if !before.columns.iter().any(is_checked) => self.look_on(before, reader),
            _ => self.look_at_values(before),
        }
    }

    /// Returns a look with the rows of the last one, and the new ones of the reader.
    fn look_on(
        &self,
        before: &Look,
        reader: &mut dyn LatestReader,
    ) -> Result<Option<Look>, ArrowError> {
        let begun = Instant::now();
        let of: Vec<SampleColumn> = before.columns.iter().map(|at| LATEST[*at]).collect();
        let is_fixed = |column: &SampleColumn| OF_DESCRIPTION.contains(column);
        let moving: Vec<SampleColumn> = of.iter().filter(|one| !is_fixed(one)).copied().collect();
        let mut new = SampleBatch::new(&moving, self.source.now());
        // Of each batch, its rows that are new and their places among the new ones.
        let mut changed: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        let is_whole = reader.changed(&mut |place, row| {
            let rows = changed.entry(place / BATCH_ROWS).or_default();
            rows.push((place % BATCH_ROWS, new.rows()));
            new.push(row);
        });
        if !is_whole {
            return Ok(None);
        }
        let print = before.print.wrapping_add(u64::from(!changed.is_empty()));
        let (new, mut batches) = (new.take()?, before.batches.clone());
        for (at, rows) in changed {
            let Some(batch) = batches.get_mut(at) else { return Ok(None) };
            let mut from: Vec<(usize, usize)> = (0..batch.num_rows()).map(|row| (0, row)).collect();
            for (row, place) in rows {
                let Some(from) = from.get_mut(row) else { return Ok(None) };
                *from = (1, place);
            }
            let mut new = new.columns().iter().peekable();
            let columns = of.iter().zip(batch.columns()).map(|(column, old)| {
                match new.next_if(|_| !is_fixed(column)) {
                    Some(new) => interleave(&[&**old, &**new], &from),
                    None => Ok(old.clone()),
                }
            });
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = columns.collect::<Result<_, _>>()?;
            *batch = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
        }
        Ok(Some(Look::new(before.columns.clone(), batches, print, begun)))
    }

    /// Returns a look that has the texts of the last one; `None` if it finds other topics, or in another order.
    fn look_at_values(&self, before: &Look) -> Result<Option<Look>, ArrowError> {
        let begun = Instant::now();
        let place = before.columns.iter().position(|column| *column == TOPIC);
        let Some(place) = place else { return Ok(None) };
        let topics: Vec<&StringArray> =
            before.batches.iter().map(|batch| batch.column(place).as_string()).collect();
        let of: Vec<SampleColumn> = before.columns.iter().map(|at| LATEST[*at]).collect();
        let moving: Vec<SampleColumn> =
            of.iter().filter(|column| !OF_TOPIC.contains(column)).copied().collect();
        let mut batch = SampleBatch::new(&moving, self.source.now());
        let (mut batches, mut print, mut is_same) = (Vec::new(), 0u64, true);
        self.source.latest(&Wanted::All, &mut |row: &Row<'_>| {
            let known = topics.get(batches.len()).filter(|known| batch.rows() < known.len());
            is_same &=
                known.is_some_and(|known| known.value(batch.rows()) == row.of.topic.as_str());
            if !is_same {
                return;
            }
            print = print.wrapping_add(mixed(row.sample.time.as_nanos()));
            batch.push(row);
            if batch.rows() == BATCH_ROWS {
                batches.push(batch.take());
            }
        });
        let rows = batch.rows();
        batches.push(batch.take());
        let is_whole =
            batches.len() == topics.len() && topics.last().is_none_or(|last| last.len() == rows);
        if !is_same || !is_whole {
            return Ok(None);
        }
        let joined = before.batches.iter().zip(batches).map(|(before, now)| {
            let now = now?;
            let mut now = now.columns().iter();
            let columns = of.iter().zip(before.columns()).filter_map(|(column, before)| {
                if OF_TOPIC.contains(column) { Some(before) } else { now.next() }
            });
            let options = RecordBatchOptions::new().with_row_count(Some(before.num_rows()));
            let columns = columns.cloned().collect();
            RecordBatch::try_new_with_options(before.schema(), columns, &options)
        });
        let batches = joined.collect::<Result<_, _>>()?;
        Ok(Some(Look::new(before.columns.clone(), batches, print, begun)))
    }

    fn look(
        &self,
        columns: Vec<usize>,
        reader: Option<&mut (dyn LatestReader + 'static)>,
    ) -> Result<Look, ArrowError> {
        let begun = Instant::now();
        let of: Vec<SampleColumn> = columns.iter().map(|at| LATEST[*at]).collect();
        let mut batch = SampleBatch::new(&of, self.source.now());
        let (mut batches, mut print) = (Vec::new(), 0u64);
        let mut visit = |row: &Row<'_>| {
            print = print.wrapping_add(mixed(row.sample.time.as_nanos()));
            batch.push(row);
            if batch.rows() == BATCH_ROWS {
                batches.push(batch.take());
            }
        };
        match reader {
            Some(reader) => reader.all(&mut visit),
            None => self.source.latest(&Wanted::All, &mut visit),
        }
        batches.push(batch.take());
        let batches = batches.into_iter().collect::<Result<_, _>>()?;
        Ok(Look::new(columns, batches, print, begun))
    }

    /// Returns true if a scan reads all topics, and nothing that needs the time of day.
    fn is_shared(scan: &Scan) -> bool {
        let is_wide = match scan.topics().wanted() {
            Wanted::All => true,
            Wanted::Starting(starts) => starts.iter().any(String::is_empty),
            Wanted::These(_) => false,
        };
        is_wide && !scan.columns().iter().any(|at| LATEST[*at] == SampleColumn::Age)
    }
}

/// Returns a number in which every bit depends on all of `time`, so that the changes of two times do not add up to nothing.
fn mixed(time: i64) -> u64 {
    let time = (time as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (time ^ (time >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Table for SharedLatest {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn help(&self) -> &str {
        self.inner.help()
    }

    fn columns(&self) -> &[Column] {
        self.inner.columns()
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        if !Self::is_shared(scan) {
            return self.inner.scan(scan);
        }
        let schema = scan.schema();
        let batches = self.with_look(scan.columns(), |look, _| {
            let place = |at: &usize| look.columns.iter().position(|column| column == at);
            let places: Vec<usize> = scan.columns().iter().filter_map(place).collect();
            let project = |batch: &RecordBatch| {
                let columns = places.iter().map(|at| batch.column(*at).clone()).collect();
                let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                RecordBatch::try_new_with_options(schema.clone(), columns, &options)
            };
            look.batches.iter().map(project).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(Rows::each(batches.into_iter().map(Ok)))
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        if !Self::is_shared(scan) {
            return self.inner.fingerprint(scan);
        }
        // Without a look the question is asked, and says why there is none.
        let version = self.with_look(scan.columns(), |_, version| Ok(version));
        Fingerprint::Version(version.unwrap_or_default())
    }
}
