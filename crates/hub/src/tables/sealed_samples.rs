//! `sealed_samples`: the measurements of all jobs in segments, which several hubs read together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skopos_model::job::JobId;
use skopos_query::{BoxError, Column, Fingerprint, Pieces, Rows, Scan, Table};

use super::job_samples::{Names, batches, sample_columns};
use super::noted::{note_ids, note_refused};
use crate::jobs::{JobsPlace, Question};

/// The most parts of jobs that one statement reads: those of a million short jobs. The list of them takes some 100 MB.
const MAX_PARTS: usize = 1_000_000;

/// The most jobs of a piece: as many as a segment has, so that a piece mostly needs one.
const PIECE_JOBS: usize = 500;

/// The table `sealed_samples`.
#[derive(Debug)]
pub(super) struct SealedSamples {
    place: Arc<JobsPlace>,
    columns: Vec<Column>,
}

impl SealedSamples {
    /// Returns the table of the measurements in a place.
    pub(super) fn new(place: Arc<JobsPlace>) -> Self {
        let id = "Id that the batch system gave the job";
        Self { place, columns: sample_columns(id) }
    }
}

/// A job, with the number of each part and the name of its segment.
type PlacedJob = (JobId, Vec<(u32, String)>);

/// A job in a piece: id, number of the run, and for each part its number and the position of its segment.
type JobOfPiece = (String, u32, Vec<(u32, usize)>);

/// Jobs with the places of their parts: what one hub tells another to read.
#[derive(Serialize, Deserialize)]
struct PieceOf {
    /// Names of segments.
    segments: Vec<String>,
    /// The jobs.
    jobs: Vec<JobOfPiece>,
}

impl PieceOf {
    fn new(jobs: &[PlacedJob]) -> Self {
        let names: BTreeSet<&String> =
            jobs.iter().flat_map(|(_, parts)| parts.iter().map(|(_, name)| name)).collect();
        let segments: Vec<String> = names.into_iter().cloned().collect();
        let at = |name: &String| segments.binary_search(name).unwrap_or_default();
        let job = |(id, parts): &PlacedJob| {
            let parts = parts.iter().map(|(number, name)| (*number, at(name))).collect();
            (id.job().to_owned(), id.generation(), parts)
        };
        Self { jobs: jobs.iter().map(job).collect(), segments }
    }
}

impl Table for SealedSamples {
    fn name(&self) -> &str {
        "sealed_samples"
    }

    fn help(&self) -> &str {
        "Measurements of all jobs in segments: of ended jobs, and of running ones up to their last hourly seal"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, _: &Scan) -> Result<Rows, BoxError> {
        Err("`sealed_samples` is read in pieces".into())
    }

    fn in_pieces(&self) -> Option<&dyn Pieces> {
        Some(self)
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

impl Pieces for SealedSamples {
    fn pieces(&self, scan: &Scan) -> Result<Vec<Vec<u8>>, BoxError> {
        let Some(jobs) = self.place.get()? else { return Ok(Vec::new()) };
        let mut reading = jobs.reading(scan.caller(), Question::Records);
        note_ids(&mut reading, scan);
        let named = scan.texts("job");
        let is_named = |id: &JobId| named.as_ref().is_none_or(|named| named.contains(&id.job()));
        let parts = jobs.sealed_parts(scan.caller(), scan.times("time"), MAX_PARTS, &is_named)?;
        let is_shown = |job: &str| parts.keys().any(|id| id.job() == job);
        if named.is_some_and(|named| !named.iter().all(|job| is_shown(job))) {
            note_refused(&mut reading);
        }
        reading.jobs(parts.len() as u64);
        // Jobs whose parts begin in the same segment are read together.
        let mut by_segment: BTreeMap<String, Vec<PlacedJob>> = BTreeMap::new();
        for (id, parts) in parts {
            let first = parts.first().map(|(_, name)| name.clone()).unwrap_or_default();
            by_segment.entry(first).or_default().push((id, parts));
        }
        let chunks = by_segment.values().flat_map(|jobs| jobs.chunks(PIECE_JOBS));
        let pieces = chunks.map(|jobs| serde_json::to_vec(&PieceOf::new(jobs)));
        Ok(pieces.collect::<Result<_, _>>()?)
    }

    fn rows(&self, piece: &[u8], scan: &Scan) -> Result<Rows, BoxError> {
        let PieceOf { segments, jobs } = serde_json::from_slice(piece)?;
        let (place, scan) = (self.place.clone(), scan.clone());
        let of_job = move |(job, generation, parts): JobOfPiece| {
            let read = || -> Result<_, BoxError> {
                let (id, mut names) = (JobId::new(job, generation)?, Names::default());
                let mut made = Vec::new();
                for (number, at) in parts {
                    let segment = segments.get(at).ok_or("a piece names no segment of a part")?;
                    let records = place.read_sealed(segment, &id, number)?;
                    for all in batches(&id, &records, &mut names) {
                        made.push(scan.select(&all)?);
                    }
                }
                Ok(made)
            };
            match read() {
                Ok(batches) => batches.into_iter().map(Ok).collect(),
                Err(e) => vec![Err(e)],
            }
        };
        Ok(Rows::each(jobs.into_iter().flat_map(of_job)))
    }
}
