//! `sealed_samples`: the measurements of all jobs in segments, which several hubs read together. Those of a copy of another hub's
//! jobs are read by the hub that has the copy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skopos_model::job::JobId;
use skopos_query::arrow::array::{Array as _, StringArray};
use skopos_query::{BoxError, Column, Fingerprint, Pieces, Rows, Scan, Table};
use skopos_store::jobs::StoredRecord;

use super::job_samples::{Names, batches, sample_columns};
use super::noted::{note_ids, note_refused};
use crate::jobs::{Jobs, JobsPlace, Question};

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
        let mut columns = sample_columns("Id that the batch system gave the job");
        columns.push(Column::text("copy_of", "Hub that is away, if the row is from its copy"));
        Self { place, columns }
    }
}

/// A job, with the number of each part and the name of its segment.
type PlacedJob = (JobId, Vec<(u32, String)>);

/// A job in a piece: id, number of the run, and for each part its number and the position of its segment.
type JobOfPiece = (String, u32, Vec<(u32, usize)>);

/// The beginnings of pieces: of the jobs of a hub itself, and of a copy.
const OWN: u8 = 0;
const COPY: u8 = 1;

/// The copy that has the jobs of a piece.
#[derive(Clone, Serialize, Deserialize)]
struct OfCopy {
    /// Name of the hub that is away.
    hub: String,
    /// Number of its storage.
    storage: u64,
}

/// Reads a part of a job, by its segment, its job and its number.
type ReadPart = Box<dyn Fn(&str, &JobId, u32) -> Result<Vec<StoredRecord>, BoxError> + Send + Sync>;

/// Jobs with the places of their parts: what one hub tells another to read.
#[derive(Serialize, Deserialize)]
struct PieceOf {
    /// The copy; `None` for jobs of the hub itself.
    copy: Option<OfCopy>,
    /// URL of the bucket of the segments; `None` for a folder. A hub reads no bucket but those of its own configuration.
    bucket: Option<String>,
    /// Names of segments.
    segments: Vec<String>,
    /// The jobs.
    jobs: Vec<JobOfPiece>,
}

impl PieceOf {
    fn new(copy: Option<OfCopy>, bucket: Option<&str>, jobs: &[PlacedJob]) -> Self {
        let names: BTreeSet<&String> =
            jobs.iter().flat_map(|(_, parts)| parts.iter().map(|(_, name)| name)).collect();
        let segments: Vec<String> = names.into_iter().cloned().collect();
        let at = |name: &String| segments.binary_search(name).unwrap_or_default();
        let job = |(id, parts): &PlacedJob| {
            let parts = parts.iter().map(|(number, name)| (*number, at(name))).collect();
            (id.job().to_owned(), id.generation(), parts)
        };
        let bucket = bucket.map(str::to_owned);
        Self { copy, bucket, jobs: jobs.iter().map(job).collect(), segments }
    }

    fn encoded(&self) -> Result<Vec<u8>, BoxError> {
        let mut bytes = vec![if self.copy.is_some() { COPY } else { OWN }];
        serde_json::to_writer(&mut bytes, self)?;
        Ok(bytes)
    }

    /// Returns a function that reads parts.
    fn reader(&self, place: &Arc<JobsPlace>) -> Result<ReadPart, BoxError> {
        let Some(OfCopy { hub, storage }) = self.copy.clone() else {
            let (place, bucket) = (place.clone(), self.bucket.clone());
            return Ok(Box::new(move |segment: &str, id: &JobId, number| {
                place.read_sealed((bucket.as_deref(), segment), id, number)
            }));
        };
        let jobs = place.of_storage(Some(storage))?;
        let jobs = jobs.ok_or_else(|| format!("this hub has no copy of the jobs of {hub}"))?;
        Ok(Box::new(move |_: &str, id: &JobId, number| {
            let missing = || format!("the copy does not have part {number} of the job {id}");
            Ok(jobs.read_sealed(id, number, None)?.ok_or_else(missing)?)
        }))
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
        let mut pieces = Vec::new();
        let copies = self.place.shown_copies()?;
        scan.lacks(copies.missing());
        let own = self.place.get()?.map(|jobs| (jobs, self.place.bucket()));
        let copied = copies.jobs.into_iter().map(|jobs| (jobs, None));
        for (jobs, bucket) in own.into_iter().chain(copied) {
            for piece in pieces_of(&jobs, bucket, scan)? {
                pieces.push(piece.encoded()?);
            }
        }
        Ok(pieces)
    }

    fn is_for_here(&self, piece: &[u8]) -> bool {
        piece.first() == Some(&COPY)
    }

    fn rows(&self, piece: &[u8], scan: &Scan) -> Result<Rows, BoxError> {
        let piece: PieceOf = serde_json::from_slice(piece.get(1..).unwrap_or_default())?;
        let (read_part, scan) = (piece.reader(&self.place)?, scan.clone());
        let PieceOf { copy, segments, jobs, .. } = piece;
        let of_job = move |(job, generation, parts): JobOfPiece| {
            let read = || -> Result<_, BoxError> {
                let (id, mut names) = (JobId::new(job, generation)?, Names::default());
                let mut made = Vec::new();
                for (number, at) in parts {
                    let segment = segments.get(at).ok_or("a piece names no segment of a part")?;
                    let records = match read_part(segment, &id, number) {
                        Ok(records) => records,
                        // A part of a job would look like all of it.
                        Err(e) => {
                            scan.lacks_damaged(&format!("the job {id}"), e)?;
                            return Ok(Vec::new());
                        }
                    };
                    for mut all in batches(&id, &records, &mut names) {
                        let rows = all.first().map_or(0, |column| column.len());
                        let copy_of = copy.as_ref().map(|copy| copy.hub.as_str());
                        all.push(Arc::new(StringArray::from(vec![copy_of; rows])));
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

/// Returns the pieces of the jobs of one storage that a scan asks for. Its segments are in a bucket, or in a folder.
fn pieces_of(jobs: &Jobs, bucket: Option<&str>, scan: &Scan) -> Result<Vec<PieceOf>, BoxError> {
    let mut reading = jobs.reading(scan.caller(), Question::Records);
    note_ids(&mut reading, scan);
    let named = scan.texts("job");
    let is_named = |id: &JobId| named.as_ref().is_none_or(|named| named.contains(&id.job()));
    let (parts, damaged) =
        jobs.sealed_parts(scan.caller(), scan.times("time"), MAX_PARTS, &is_named)?;
    for error in damaged {
        scan.lacks_damaged("the jobs of a segment", error.into())?;
    }
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
    let copy = jobs.copy_of().zip(jobs.storage());
    let copy = copy.map(|(hub, storage)| OfCopy { hub: hub.to_owned(), storage });
    let chunks = by_segment.values().flat_map(|jobs| jobs.chunks(PIECE_JOBS));
    Ok(chunks.map(|jobs| PieceOf::new(copy.clone(), bucket, jobs)).collect())
}
