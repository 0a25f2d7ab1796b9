//! Downloads: the places where jobs lie, and the records there.
//!
//! [`Jobs::places`] tells a caller where the records of jobs lie: the parts in one segment are a [`Portion`], and so are the
//! records that are not sealed. [`Download`] reads a portion, part by part, so it has the records of one part in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::vec::IntoIter;

use serde::{Deserialize, Serialize};
use skopos_access::Caller;
use skopos_model::job::{JobId, JobRecord, Kind};
use skopos_query::arrow::array::RecordBatch;
use skopos_store::history::Error as LogError;
use skopos_store::jobs::{
    Filter, PageRequest, PartReader, RecordSum, SegmentFile, StoredRecord, Visibility,
    WholeSegment, catalogue,
};

use super::columns::Builder;
use super::shared::AnyError;
use super::store::Jobs;
use crate::catalogue::visibility;

/// The most jobs of one answer: about as many as fit by `MAX_NAME_BYTES`. The client asks for the next ones with the place at
/// which the answer ended. A condition is applied to all jobs for each answer, so few answers are better.
pub const MAX_FOUND: usize = 8192;

/// Jobs that are looked up at once, before it is known whether the answer has room for them.
const LOOKED_UP: usize = 1024;

/// The most portions of one answer, each of which has a ticket of some kilobytes.
pub const MAX_PORTIONS: usize = 256;

/// The most bytes of the names in one answer. They are there twice, in the tickets and beside them, and clients take a message
/// of 4 MiB.
const MAX_NAME_BYTES: usize = 768 << 10;

/// The most jobs and bytes of names of one portion: its ticket is a request, which has at most 1 MiB.
const MAX_PORTION_JOBS: usize = 512;
const MAX_PORTION_BYTES: usize = 64 << 10;

/// The records of a portion, after which another one begins: some ten megabytes of measurements. So the parts of one segment
/// are downloaded side by side.
const PORTION_RECORDS: u64 = 32_768;

/// The share of a segment's records from which on its file is sent to a client that filters records itself. Records that a hub
/// filters are not compressed on the way, and take four times the bytes.
const MOST: f64 = 0.5;

/// Rows and bytes of a batch. A message has at most some megabytes.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 1 << 20;

/// The records of one job in a portion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfJob {
    /// The id that the batch system gave the job.
    pub job: String,
    /// The number of the job's run.
    pub generation: u32,
    /// Numbers of sealed parts, as ranges with both ends, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(u32, u32)>,
    /// The part from which on all records are meant, sealed meanwhile or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_from: Option<u32>,
}

impl OfJob {
    /// Returns the id.
    pub fn id(&self) -> Option<JobId> {
        JobId::new(self.job.as_str(), self.generation).ok()
    }

    fn add(&mut self, number: u32) {
        match self.parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => self.parts.push((number, number)),
        }
    }

    /// Returns the number of sealed parts.
    fn count(&self) -> usize {
        self.parts.iter().map(|(from, to)| (to - from) as usize + 1).sum()
    }

    fn bytes(&self) -> usize {
        48 + self.job.len() + 24 * self.parts.len()
    }
}

/// Records that are downloaded at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// The jobs, by id and run.
    pub jobs: Vec<OfJob>,
    /// Number of records, before any condition on them.
    pub records: u64,
    /// True if all of them are sealed. Then they never change.
    pub is_sealed: bool,
    /// The segment whose records they are, all of them.
    pub segment: Option<WholeSegment>,
}

impl Portion {
    fn bytes(&self) -> usize {
        self.jobs.iter().map(OfJob::bytes).sum()
    }

    fn absorb(&mut self, other: Self) {
        self.records += other.records;
        self.is_sealed &= other.is_sealed;
        self.segment = None;
        for of in other.jobs {
            let is_same =
                |last: &&mut OfJob| (&last.job, last.generation) == (&of.job, of.generation);
            match self.jobs.last_mut().filter(is_same) {
                Some(last) => {
                    last.parts.extend(&of.parts);
                    last.open_from = last.open_from.or(of.open_from);
                }
                None => self.jobs.push(of),
            }
        }
    }
}

/// The places of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The portions.
    pub portions: Vec<Portion>,
    /// Number of jobs.
    pub jobs: u64,
    /// The last job, if others follow that did not fit.
    pub after: Option<JobId>,
}

/// The records that are wanted of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// Names of kinds; all if there are none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub kinds: BTreeSet<String>,
    /// Schemas of measurements; all if there are none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub schemas: BTreeSet<String>,
    /// The first time of measurements, in nanoseconds of UNIX time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<i64>,
    /// The last time of measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<i64>,
}

impl Wanted {
    /// Returns true if every record is wanted.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if records of a kind are wanted, at least some of them.
    pub fn has_kind(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(kind.name())
    }

    /// Returns true if all records are wanted, or by their kinds most of a segment's, of which `kinds` has the numbers. Conditions on
    /// schemas and times may leave out any number of measurements.
    pub fn has_most(&self, kinds: &BTreeMap<String, u64>) -> bool {
        let by_kind = Self { kinds: self.kinds.clone(), ..Self::default() };
        let is_wanted = |(kind, _): &(&String, &u64)| by_kind.kinds.contains(*kind);
        // The numbers are from the list of a segment, which another hub may have written.
        let add = |sum: u64, count: &u64| sum.saturating_add(*count);
        let wanted = kinds.iter().filter(is_wanted).map(|(_, count)| count).fold(0, add);
        let all = kinds.values().fold(0, add);
        self.is_all() || *self == by_kind && wanted as f64 >= MOST * all as f64
    }

    /// Returns true if a record is wanted. Conditions on schemas and times are for measurements alone: other records say what
    /// these mean.
    pub fn has(&self, record: &JobRecord<'_>) -> bool {
        if !self.has_kind(record.kind) {
            return false;
        }
        if record.kind != Kind::Sample {
            return true;
        }
        let at = record.time.as_nanos();
        let is_in_schema =
            || record.sample().is_some_and(|(schema, _)| self.schemas.contains(schema));
        self.from_ns.is_none_or(|from| from <= at)
            && self.to_ns.is_none_or(|to| at <= to)
            && (self.schemas.is_empty() || is_in_schema())
    }
}

impl Jobs {
    /// Returns the runs of a job that the caller may read, by number. If the catalogue is away, that run alone which is
    /// asked for can be found.
    ///
    /// # Errors
    /// The catalogue cannot be read.
    pub fn runs(
        &self,
        caller: &Caller,
        job: &str,
        generation: Option<u32>,
    ) -> Result<Vec<JobId>, catalogue::Error> {
        if let Some(generation) = generation {
            let Ok(id) = JobId::new(job, generation) else { return Ok(Vec::new()) };
            return Ok(self.entry(caller, &id)?.map(|_| id).into_iter().collect());
        }
        let filter = Filter { job: Some(job.to_owned()), ..Filter::new(Visibility::Nothing) };
        let page = self.search(caller, filter, &PageRequest::default())?;
        let mut ids: Vec<JobId> = page.items.into_iter().map(|row| row.id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Returns the places of those of the jobs `ids` that the caller may read. A job that does not fit, and those after it,
    /// are left for another call. With `whole_for`, a segment of which all parts are found and most records are wanted is one
    /// portion.
    ///
    /// # Errors
    /// A file or the catalogue cannot be read.
    pub fn places(
        &self,
        caller: &Caller,
        ids: &BTreeSet<JobId>,
        whole_for: Option<&Wanted>,
    ) -> Result<Places, AnyError> {
        let mut placing = Placing::default();
        let mut left = ids.iter().peekable();
        while left.peek().is_some() && placing.places.after.is_none() {
            let next: Vec<JobId> = left.by_ref().take(LOOKED_UP).cloned().collect();
            self.place_all(self.visible(caller, &next)?, &mut placing)?;
        }
        self.placed(placing, whole_for)
    }

    /// Returns the places of jobs as [`places`](Self::places) does. The caller must have been asked for: see
    /// [`visible`](Self::visible).
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn places_of(
        &self,
        ids: &BTreeSet<JobId>,
        whole_for: Option<&Wanted>,
    ) -> Result<Places, AnyError> {
        let mut placing = Placing::default();
        self.place_all(ids.iter().cloned(), &mut placing)?;
        self.placed(placing, whole_for)
    }

    /// Adds the places of jobs that the caller may read, as long as there is room.
    fn place_all(
        &self,
        ids: impl IntoIterator<Item = JobId>,
        placing: &mut Placing,
    ) -> Result<(), AnyError> {
        for id in ids {
            if placing.is_full() {
                placing.places.after = placing.last.take();
                break;
            }
            self.place(id, placing)?;
        }
        Ok(())
    }

    /// Makes portions of the places of jobs.
    fn placed(&self, placing: Placing, whole_for: Option<&Wanted>) -> Result<Places, AnyError> {
        let Placing { mut places, sealed, open, .. } = placing;
        let mut portions = Vec::new();
        for (segment, of) in sealed {
            let whole = whole_for.map(|wanted| self.whole(&segment, &of, wanted));
            match whole.transpose()?.flatten() {
                Some(whole) => portions.push(whole),
                None => portions.extend(of),
            }
        }
        portions.extend(open);
        places.portions = at_most(portions, MAX_PORTIONS);
        Ok(places)
    }

    /// Adds the places of a job that the caller may read.
    fn place(&self, id: JobId, placing: &mut Placing) -> Result<(), AnyError> {
        placing.places.jobs += 1;
        // The intake first: a part that is sealed meanwhile is left out here, and read with the open records.
        let (next, unsealed) = {
            let intake = self.shared.intake();
            let job = intake.job(&id);
            (job.map(|job| job.next_part()), job.map_or(0, |job| job.unsealed()))
        };
        for part in self.shared.lts.find(&id)? {
            if next.is_some_and(|next| part.number >= next) {
                continue;
            }
            let portions = placing.sealed.entry(part.segment).or_default();
            let before = portions.len();
            let of = of_job(portions, &id, true);
            let counted = if of.parts.is_empty() { 0 } else { of.bytes() };
            of.add(part.number);
            placing.bytes += of.bytes() - counted;
            if let Some(portion) = portions.back_mut() {
                portion.records += part.rows;
            }
            placing.portions += portions.len() - before;
        }
        if let Some(next) = next {
            let before = placing.open.len();
            let of = of_job(&mut placing.open, &id, false);
            of.open_from = Some(next);
            placing.bytes += of.bytes();
            if let Some(portion) = placing.open.back_mut() {
                portion.records += unsealed as u64;
            }
            placing.portions += placing.open.len() - before;
        }
        placing.last = Some(id);
        Ok(())
    }

    /// Joins the portions of a segment if they have all of its parts, most of its records are wanted, and one ticket can name them.
    fn whole(
        &self,
        segment: &str,
        portions: &VecDeque<Portion>,
        wanted: &Wanted,
    ) -> Result<Option<Portion>, AnyError> {
        let of = portions.iter().flat_map(|portion| &portion.jobs);
        let parts: usize = of.clone().map(OfJob::count).sum();
        let Some(first) = of.clone().next() else { return Ok(None) };
        let (Some(id), Some((number, _))) = (first.id(), first.parts.first()) else {
            return Ok(None);
        };
        let known = self.shared.lts.segment_of(&id, *number)?;
        let is_it = |it: &WholeSegment| it.name == segment && it.parts == parts;
        let Some(known) = known.filter(|it| is_it(it) && wanted.has_most(&it.kinds)) else {
            return Ok(None);
        };
        let mut whole = Portion { is_sealed: true, ..Portion::default() };
        portions.iter().for_each(|portion| whole.absorb(portion.clone()));
        whole.segment = Some(known);
        let has_room = whole.jobs.len() <= MAX_PORTION_JOBS && whole.bytes() <= MAX_PORTION_BYTES;
        Ok(has_room.then_some(whole))
    }

    /// Opens the file of a segment; `None` if it was removed. The caller must have been asked for, with every job in it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn segment_file(&self, name: &str) -> Result<Option<SegmentFile>, LogError> {
        self.shared.lts.open_file(name)
    }

    /// Begins to read a portion. The caller must have been asked for: see [`visible`](Self::visible).
    pub fn download(self: &Arc<Self>, jobs: Vec<OfJob>, wanted: Wanted) -> Download {
        Download {
            jobs: self.clone(),
            left: jobs.into(),
            wanted,
            parts: VecDeque::new(),
            part: None,
            reader: PartReader::default(),
            sum: RecordSum::default(),
        }
    }
}

/// The places of some jobs, while further jobs are added.
#[derive(Default)]
struct Placing {
    places: Places,
    /// The last job.
    last: Option<JobId>,
    sealed: BTreeMap<String, VecDeque<Portion>>,
    open: VecDeque<Portion>,
    /// Number of portions.
    portions: usize,
    /// Bytes of the names.
    bytes: usize,
}

impl Placing {
    fn is_full(&self) -> bool {
        let jobs = usize::try_from(self.places.jobs).unwrap_or(usize::MAX);
        jobs >= MAX_FOUND || self.portions >= MAX_PORTIONS || self.bytes >= MAX_NAME_BYTES
    }
}

/// Returns the entry of a job in the last portion, which it joins if there is room.
fn of_job<'p>(portions: &'p mut VecDeque<Portion>, id: &JobId, is_sealed: bool) -> &'p mut OfJob {
    let is_it = |of: &OfJob| (of.job.as_str(), of.generation) == (id.job(), id.generation());
    let has_room = portions.back().is_some_and(|portion| {
        portion.jobs.last().is_some_and(is_it)
            || portion.jobs.len() < MAX_PORTION_JOBS
                && portion.bytes() < MAX_PORTION_BYTES
                && portion.records < PORTION_RECORDS
    });
    if !has_room {
        portions.push_back(Portion { is_sealed, ..Portion::default() });
    }
    let at = portions.len() - 1;
    let jobs = &mut portions[at].jobs;
    if !jobs.last().is_some_and(is_it) {
        let (job, generation) = (id.job().to_owned(), id.generation());
        jobs.push(OfJob { job, generation, parts: Vec::new(), open_from: None });
    }
    let at = jobs.len() - 1;
    &mut jobs[at]
}

/// Joins portions until there are at most `most`: one job of months may lie in more segments.
fn at_most(portions: Vec<Portion>, most: usize) -> Vec<Portion> {
    let each = portions.len().div_ceil(most).max(1);
    if each == 1 {
        return portions;
    }
    let mut joined: Vec<Portion> = Vec::new();
    for (at, portion) in portions.into_iter().enumerate() {
        match joined.last_mut().filter(|_| at % each != 0) {
            Some(last) => last.absorb(portion),
            None => joined.push(portion),
        }
    }
    joined
}

/// The records of a part that were not passed on.
struct ReadPart {
    number: u32,
    position: u32,
    records: IntoIter<StoredRecord>,
}

/// A portion that is being read.
pub struct Download {
    jobs: Arc<Jobs>,
    left: VecDeque<OfJob>,
    wanted: Wanted,
    /// Pieces of the first job: numbers of parts, or the open records.
    parts: VecDeque<PieceOf>,
    part: Option<ReadPart>,
    reader: PartReader,
    sum: RecordSum,
}

/// A piece of a job.
enum PieceOf {
    Part(JobId, u32),
    Open(JobId, u32),
}

impl Download {
    /// Returns the sum of the records that were passed on.
    pub fn sum(&self) -> &RecordSum {
        &self.sum
    }

    /// Reads the next batch; `None` at the end. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or is damaged, or a part was removed meanwhile.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, AnyError> {
        let mut batch = Builder::default();
        while batch.rows() < BATCH_ROWS && batch.bytes() < BATCH_BYTES {
            let Some(part) = &mut self.part else {
                if self.next_part()? {
                    continue;
                }
                break;
            };
            let Some(stored) = part.records.next() else {
                self.part = None;
                continue;
            };
            let Some(record) = stored.get().filter(|record| self.wanted.has(record)) else {
                continue;
            };
            batch.push((part.number, part.position), &record);
            part.position += 1;
            self.sum.add(&stored);
        }
        match batch.rows() {
            0 => Ok(None),
            _ => Ok(Some(batch.finish()?)),
        }
    }

    /// Reads the next part; returns false if there is none.
    fn next_part(&mut self) -> Result<bool, AnyError> {
        let shared = self.jobs.shared.clone();
        loop {
            let Some(piece) = self.parts.pop_front() else {
                match self.left.pop_front() {
                    Some(of) => self.parts = pieces_of(&of)?,
                    None => return Ok(false),
                }
                continue;
            };
            let (number, records) = match piece {
                PieceOf::Part(id, number) => {
                    let is_wanted = |kind| self.wanted.has_kind(kind);
                    let read =
                        shared.lts.read_kinds(&mut self.reader, (&id, number), &is_wanted)?;
                    let gone = || format!("part {number} of the job {id} was removed meanwhile");
                    (number, read.ok_or_else(gone)?)
                }
                PieceOf::Open(id, from) => {
                    // The intake first, as `Jobs::pieces` does it.
                    let (unsealed, next) = {
                        let mut intake = shared.intake();
                        let next = intake.job(&id).map(|job| job.next_part());
                        (intake.unsealed(&id)?, next)
                    };
                    let sealed = shared.lts.find(&id)?.into_iter().map(|part| part.number);
                    let sealed = sealed
                        .filter(|number| *number >= from && next.is_none_or(|next| *number < next));
                    let sealed: Vec<u32> = sealed.collect();
                    if !sealed.is_empty() {
                        // They come first; a look at what is open then follows.
                        let after = sealed.last().map_or(from, |last| last + 1);
                        self.parts.extend(
                            sealed.into_iter().map(|number| PieceOf::Part(id.clone(), number)),
                        );
                        self.parts.push_back(PieceOf::Open(id, after));
                        continue;
                    }
                    (next.unwrap_or(from), unsealed.read()?)
                }
            };
            if records.is_empty() {
                continue;
            }
            self.part = Some(ReadPart { number, position: 0, records: records.into_iter() });
            return Ok(true);
        }
    }
}

fn pieces_of(of: &OfJob) -> Result<VecDeque<PieceOf>, AnyError> {
    let id = JobId::new(of.job.as_str(), of.generation)?;
    let numbers = of.parts.iter().flat_map(|(from, to)| *from..=*to);
    let mut pieces: VecDeque<PieceOf> =
        numbers.map(|number| PieceOf::Part(id.clone(), number)).collect();
    pieces.extend(of.open_from.map(|from| PieceOf::Open(id, from)));
    Ok(pieces)
}

/// Returns the name under which tickets know a caller; `None` for one that may read no job.
pub fn holder_of(caller: &Caller) -> Option<String> {
    if visibility(caller) == Visibility::Nothing {
        return None;
    }
    match caller {
        Caller::Owner => Some("owner".to_owned()),
        Caller::User(user) => Some(format!("user/{}", user.name)),
        _ => None,
    }
}
