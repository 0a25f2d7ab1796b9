//! The long-time storage: sealing, verifying and reading segments in a folder on disk, beside a file of JSON for each job.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use skopos_shm::now;
use skopos_store::jobs::{JobPart, Lts};
use skopos_term::Failure;

use super::slate::Job;

/// Jobs of a segment.
pub(super) const BATCH: usize = 500;

/// Rates and sizes of one profile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealed {
    /// Jobs a second that became durable in segments.
    pub(super) jobs_per_second: f64,
    pub(super) bytes_per_job: f64,
    /// Median time to read all records of one job, in milliseconds.
    pub(super) read_ms: f64,
    /// Jobs a second of which every byte was checked.
    pub(super) verified_per_second: f64,
}

fn failed(e: &dyn std::error::Error) -> Failure {
    Failure::new("the segments cannot be measured").because(e)
}

/// Seals `count` jobs with `samples` measurements each, in a new folder.
pub(super) fn seal(dir: &Path, count: usize, samples: usize) -> Result<Sealed, Failure> {
    let lts = Lts::open(dir).map_err(|e| failed(&e))?;
    let (mut seconds, mut number) = (0.0, 0);
    while number < count {
        let parts: Vec<JobPart> = (number..(number + BATCH).min(count))
            .map(|number| Job::new(number as u64, samples, 0).part())
            .collect();
        let begun = Instant::now();
        lts.seal(&parts, now()).map_err(|e| failed(&e))?;
        seconds += begun.elapsed().as_secs_f64();
        number += parts.len();
    }
    let (_, parts, bytes) = lts.size();
    if parts != count {
        return Err(Failure::new(format!("{parts} of {count} jobs were sealed")));
    }
    let mut reads = Vec::new();
    for at in 0..200u64 {
        let job = Job::new(at * 7919 % count as u64, samples, 0);
        let begun = Instant::now();
        let records = lts.read(&job.id()).map_err(|e| failed(&e))?;
        reads.push(begun.elapsed().as_secs_f64() * 1e3);
        if records.len() != job.records() {
            return Err(Failure::new(format!("a job has {} records", records.len())));
        }
    }
    let begun = Instant::now();
    let damaged = lts.verify().map_err(|e| failed(&e))?;
    let verified = begun.elapsed().as_secs_f64();
    if !damaged.is_empty() {
        return Err(Failure::new("a segment is damaged"));
    }
    Ok(Sealed {
        jobs_per_second: count as f64 / seconds,
        bytes_per_job: bytes as f64 / count as f64,
        read_ms: crate::stats::median(&reads),
        verified_per_second: count as f64 / verified,
    })
}

/// Writes a durable file of JSON lines for each job: written, synced, renamed, and the folder synced. Returns jobs a second,
/// and the median time to read and parse one, in milliseconds.
pub(super) fn files(dir: &Path, count: usize, samples: usize) -> std::io::Result<(f64, f64, f64)> {
    let folder = File::open(dir)?;
    let (mut seconds, mut bytes) = (0.0, 0);
    for number in 0..count {
        let mut job = Job::new(number as u64, samples, 0);
        let records = job.rows();
        let begun = Instant::now();
        let mut text = Vec::new();
        for (time, content) in records {
            serde_json::to_writer(&mut text, &content.json(time))?;
            text.push(b'\n');
        }
        let (temporary, path) = (dir.join("job.tmp"), dir.join(format!("{number}.jsonl")));
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_data()?;
        fs::rename(temporary, path)?;
        folder.sync_all()?;
        seconds += begun.elapsed().as_secs_f64();
        bytes += text.len();
    }
    let mut reads = Vec::new();
    for at in 0..200 {
        let path = dir.join(format!("{}.jsonl", at * 7919 % count));
        let begun = Instant::now();
        let text = fs::read_to_string(path)?;
        for line in text.lines() {
            std::hint::black_box(serde_json::from_str::<serde_json::Value>(line)?);
        }
        reads.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let per_second = count as f64 / seconds;
    Ok((per_second, bytes as f64 / count as f64, crate::stats::median(&reads)))
}
