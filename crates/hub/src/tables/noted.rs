//! Notes in the log of reads what a scan sends.

use skopos_query::arrow::array::RecordBatch;
use skopos_query::{BoxError, Scan};

use crate::jobs::Reading;

/// The reason of a refusal: the same for a job that does not exist, and for one that the caller may not read.
const NOT_SHOWN: &str = "a job that was named was not shown";

/// Batches of a scan, whose rows are counted in the log of reads.
pub(super) struct Noted<I> {
    pub(super) batches: I,
    pub(super) reading: Reading,
}

impl<I: Iterator<Item = Result<RecordBatch, BoxError>>> Iterator for Noted<I> {
    type Item = Result<RecordBatch, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.batches.next();
        next.iter().for_each(|batch| note(&mut self.reading, batch));
        next
    }
}

/// Notes a batch or its failure.
fn note(reading: &mut Reading, batch: &Result<RecordBatch, BoxError>) {
    match batch {
        Ok(batch) => reading.send(batch.num_rows() as u64, batch.get_array_memory_size() as u64),
        Err(e) => reading.fail(&e.to_string()),
    }
}

/// Notes the jobs that a statement names.
pub(super) fn note_ids(reading: &mut Reading, scan: &Scan) {
    scan.texts("job").unwrap_or_default().into_iter().for_each(|job| reading.id(job));
}

/// Notes that a named job was not shown.
pub(super) fn note_refused(reading: &mut Reading) {
    reading.refuse(NOT_SHOWN);
}
