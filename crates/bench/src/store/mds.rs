//! The metadata: a catalogue of many jobs, which is filled and searched.

use std::time::Instant;

use skopos_model::Timestamp;
use skopos_store::jobs::catalogue::{Filter, PageRequest};
use skopos_store::jobs::{Catalogue, Change, JobEntry, PartRef, StoredRecord, Visibility};
use skopos_term::Failure;

use super::slate::{Job, Random, USERS, user_name};
use crate::stats::Latencies;

/// Entries of a change: a segment's.
const BATCH: usize = 500;

/// Nanoseconds of a day, over whose hundred the jobs are spread.
const DAY: i64 = 86_400_000_000_000;
const DAYS: i64 = 100;

/// Rates and times of one catalogue.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    pub(super) upserts_per_second: f64,
    /// Times to find the jobs of a user on a day.
    pub(super) searches: Latencies,
    /// Mean number of jobs that a search found.
    pub(super) found: f64,
}

fn failed(e: &dyn std::error::Error) -> Failure {
    Failure::new("the catalogue cannot be measured").because(e)
}

/// The entry of a finished job with its metadata of 2.4 kB and no measurements.
fn entry(number: usize, count: usize) -> JobEntry {
    let begin = DAYS * DAY / count.max(1) as i64 * number as i64;
    let part = Job::new(number as u64, 1, begin).part();
    let mut entry = JobEntry::new("site", part.id.clone());
    part.records.iter().filter_map(StoredRecord::get).for_each(|record| entry.add(&record));
    let segment = format!("segment-{:08}", number / BATCH);
    entry.parts.push(PartRef { number: 0, segment, rows: part.records.len() as u64 });
    entry
}

/// Fills a catalogue with `count` jobs, and searches it.
pub(super) fn fill(catalogue: &dyn Catalogue, count: usize) -> Result<Filled, Failure> {
    let mut seconds = 0.0;
    for first in (0..count).step_by(BATCH) {
        let entries: Vec<JobEntry> =
            (first..(first + BATCH).min(count)).map(|number| entry(number, count)).collect();
        let begun = Instant::now();
        catalogue
            .apply(&Change { entries: &entries, ..Change::default() })
            .map_err(|e| failed(&e))?;
        seconds += begun.elapsed().as_secs_f64();
    }
    let (mut random, mut searches, mut found) = (Random::new(7), Latencies::new(), 0);
    const SEARCHES: usize = 500;
    for _ in 0..SEARCHES {
        let from = super::slate::BEGIN + random.below((DAYS - 1) as u64) as i64 * DAY;
        let filter = Filter {
            user: Some(user_name(random.below(USERS))),
            ran: Some((Timestamp::from_nanos(from), Timestamp::from_nanos(from + DAY))),
            ..Filter::new(Visibility::Everything)
        };
        let request = PageRequest { most: 100, ..PageRequest::default() };
        let begun = Instant::now();
        let page = catalogue.rows(&filter, &request).map_err(|e| failed(&e))?;
        searches.record(crate::stats::nanos_since(begun));
        found += page.items.len();
    }
    let upserts_per_second = count as f64 / seconds;
    Ok(Filled { upserts_per_second, searches, found: found as f64 / SEARCHES as f64 })
}
