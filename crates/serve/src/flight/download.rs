//! Downloads of jobs: `GetFlightInfo` says where they lie, `DoGet` with a ticket sends the records.
//!
//! A stream has the columns of a segment. Its last message has no rows and the `app_metadata` `{"records":N,"crc":"…"}`: the
//! number of records and their CRC-32. A stream without it is not whole.
//!
//! A client may take whole segments: if a caller asks for all jobs of one, the stream is its file, in pieces without metadata. The
//! file has all records, so a client that wants most of them says that it filters.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use skopos_access::{Action, Caller, may};
use skopos_hub::counts::Counts;
use skopos_hub::jobs::{
    Download, Jobs, JobsPlace, MAX_FOUND, OfJob, Places, Portion, Question, Reading, SegmentFile,
    Wanted, download_schema, holder_of,
};
use skopos_model::job::{JobId, Kind};
use skopos_model::unpoisoned;
use skopos_query::arrow::array::{AsArray as _, RecordBatch};
use skopos_query::arrow::datatypes::Int64Type;
use skopos_query::{Engine, Error, Limits};
use skopos_wire::{Identity, TicketSigner};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code, Status};

use super::flow::{self, Flow};
use super::status;
use super::ticket::{self, Granted, SegmentGrant, seconds_now};
use crate::downloads::{
    EndpointMetadata, FileMetadata, JobName, PlacesCommand, PlacesMetadata, SAME_HUB, Trailer,
    VERSION,
};
use crate::shares::{Share, Shares};

/// Downloads of one caller at a time, and of all callers. Each has a part of a job in memory, and a thread while it reads.
const DOWNLOADS_OF_ONE: usize = 8;
const DOWNLOADS_OF_ALL: usize = 32;

/// The most questions for places of one caller and of all. Each has a thread while it looks up some thousand jobs.
const QUESTIONS_OF_ONE: usize = 4;
const QUESTIONS_OF_ALL: usize = 16;

/// The most bytes of the names of schemas in a command: each of its tickets has them.
const MAX_SCHEMA_BYTES: usize = 4096;

/// Time for a download. Its portion has at most the records of a segment, some tens of megabytes.
const DEADLINE: Duration = Duration::from_secs(600);

/// Time in which a client takes a batch. Then it is taken for dead.
const STALLED: Duration = Duration::from_secs(60);

/// Number of batches that wait for the client: one that is sent, and the next.
const WAITING: usize = 2;

/// The answer of a hub without jobs.
const NO_JOBS: &str = "this hub has no jobs";

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The longest command.
const MAX_COMMAND_BYTES: usize = 512 << 10;

/// The most jobs that a command names. Each is searched for on its own.
const MAX_NAMED: usize = 1000;

/// The most kinds and schemas of a command.
const MAX_NAMES: usize = 64;

/// Limits of the statement that finds jobs by a condition: one more than the answer has, so that it knows if others follow.
const LIMITS: Limits =
    Limits { deadline: Duration::from_secs(30), rows: MAX_FOUND + 1, threads: 0 };

/// Advice about the form of a command.
const HINT: &str = "it is {\"skopos_jobs\":1,\"jobs\":[{\"job\":\"4711\"}]}, or has \"where\" with a condition on \
                    the table `jobs`";

/// Answers requests about downloads.
#[derive(Clone)]
pub(super) struct Downloads(pub(super) Arc<Inner>);

pub(super) struct Inner {
    engine: Arc<Engine>,
    place: Arc<JobsPlace>,
    counts: Arc<Counts>,
    /// The identity of the hub, if it has a certificate of a hub.
    identity: Option<Arc<Identity>>,
    signer: OnceLock<TicketSigner>,
    /// Held while the signer is made: two first questions must not make two keys.
    making: Mutex<()>,
    running: Shares<String>,
    asking: Shares<String>,
}

/// Refuses a command.
fn invalid(text: &str) -> Status {
    status::with_hint(Code::InvalidArgument, text, Some(HINT))
}

/// Refuses an answer that lacks a part, to a client that does not read which parts are missing.
fn incomplete(missing: &str) -> Status {
    let text = format!("the answer would lack a part of the jobs: {missing}");
    let hint = "ask again, or with `\"partial\": true` in the command, which gets the rest";
    status::with_hint(Code::Unavailable, &text, Some(hint))
}

/// Returns an error of the statement as one of the condition, which begins at the second line of the statement.
fn in_condition(mut error: Error) -> Error {
    if let Error::Syntax { at, .. } | Error::UnknownName { at: Some(at), .. } = &mut error {
        at.line = at.line.saturating_sub(1).max(1);
    }
    error
}

/// Returns the failure of the storage to a caller. Its text names files, and jobs of others, so the owner alone reads it.
fn failed(caller: &Caller, e: &dyn std::fmt::Display) -> Status {
    match caller {
        Caller::Owner => Status::unavailable(e.to_string()),
        _ => Status::unavailable("the jobs cannot be read now"),
    }
}

impl Downloads {
    pub(super) fn new(
        (engine, place): (Arc<Engine>, Arc<JobsPlace>),
        counts: Arc<Counts>,
        identity: Option<Arc<Identity>>,
    ) -> Self {
        let identity = identity.filter(|identity| identity.names().is_hub);
        let running = Shares::new(DOWNLOADS_OF_ONE, DOWNLOADS_OF_ALL);
        let asking = Shares::new(QUESTIONS_OF_ONE, QUESTIONS_OF_ALL);
        let (signer, making) = (OnceLock::new(), Mutex::default());
        Self(Arc::new(Inner { engine, place, counts, identity, signer, making, running, asking }))
    }

    /// Returns true if a command asks where jobs lie: it is JSON, and those of Flight SQL are not.
    pub(super) fn is_command(descriptor: &FlightDescriptor) -> bool {
        descriptor.cmd.first() == Some(&b'{')
    }

    /// Says where jobs lie.
    pub(super) async fn places(
        &self,
        caller: Caller,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let command = command_of(&descriptor.cmd)?;
        let holder = holder_of(&caller).unwrap_or_default();
        let share = self.0.asking.take(&holder).ok_or_else(|| {
            let hint = "ask again after the answers that are under way";
            status::with_hint(Code::ResourceExhausted, "too many questions for places", Some(hint))
        })?;
        let found = match &command.condition {
            Some(condition) => {
                Some(self.0.matching(&caller, condition, command.after.as_ref()).await?)
            }
            None => None,
        };
        let inner = self.0.clone();
        let answering = tokio::task::spawn_blocking(move || {
            // It goes on if the client leaves, so the share ends with it.
            let _share = share;
            inner.answer(&caller, command, found)
        });
        let info = answering.await.map_err(|e| Status::internal(e.to_string()))??;
        Ok(info.with_descriptor(descriptor))
    }

    /// Sends the records of a ticket.
    pub(super) async fn get(&self, caller: Caller, ticket: Ticket) -> Result<Flow, Status> {
        let inner = self.0.clone();
        let holder = holder_of(&caller).unwrap_or_default();
        let busy = || {
            let hint = "a client downloads some portions at a time, and the next ones afterwards";
            status::with_hint(Code::ResourceExhausted, "too many downloads are running", Some(hint))
        };
        let share = self.0.running.take(&holder).ok_or_else(busy)?;
        let beginning = tokio::task::spawn_blocking(move || inner.begin(&caller, &ticket.ticket));
        let begun = beginning.await.map_err(|e| Status::internal(e.to_string()))?;
        let Begun { source, reading, is_owner } = begun?;
        Ok(match source {
            Source::Records(download) => self.send_records(download, (reading, is_owner), share),
            Source::File(file) => self.send_file(file, (reading, is_owner), share),
        })
    }

    /// Sends records batch by batch.
    fn send_records(
        &self,
        download: Box<Download>,
        reading: (Reading, bool),
        share: Share<String>,
    ) -> Flow {
        let (batches, ended) = self.pieces(download, reading, share);
        let batches = FlightDataEncoderBuilder::new().with_schema(download_schema()).build(batches);
        let last = stream::once(ended).map(|ended| match ended {
            Ok(Ok(download)) => {
                let (records, crc) = (download.sum().records(), download.sum().crc());
                let trailer = Trailer { records, crc: format!("{crc:08x}") };
                flow::metadata(download_schema(), json(&trailer))
            }
            Ok(Err(status)) => Err(status),
            Err(_) => Err(aborted()),
        });
        batches.map_err(Status::from).chain(last).boxed()
    }

    /// Sends a file as it lies.
    fn send_file(&self, file: GrantedFile, reading: (Reading, bool), share: Share<String>) -> Flow {
        let (pieces, ended) = self.pieces(file, reading, share);
        let data = |piece: Vec<u8>| FlightData { data_body: piece.into(), ..FlightData::default() };
        let last = stream::once(ended).filter_map(|ended| async {
            match ended {
                Ok(Ok(_)) => None,
                Ok(Err(status)) => Some(Err(status)),
                Err(_) => Some(Err(aborted())),
            }
        });
        pieces.map_ok(data).map_err(Status::from).chain(last).boxed()
    }

    /// Reads a download piece by piece, at the speed of the client. Returns its end beside its pieces: pieces that wait may
    /// fill the queue, so the end has a channel of its own.
    fn pieces<D: Pieces>(
        &self,
        download: D,
        (reading, is_owner): (Reading, bool),
        share: Share<String>,
    ) -> (Arriving<D::Piece>, oneshot::Receiver<Result<D, Status>>) {
        let running = self.0.counts.run();
        let (sender, receiver) = mpsc::channel(WAITING);
        let (end, ended) = oneshot::channel();
        tokio::spawn(async move {
            let _share = share;
            let until = Instant::now() + DEADLINE;
            let pumping = pump(download, reading, &sender, is_owner);
            let late = || Err(Status::deadline_exceeded("the download took too long"));
            let result = timeout_at(until, pumping).await.unwrap_or_else(|_| late());
            if result.is_ok() {
                running.done();
            }
            let _ = end.send(result);
        });
        let pieces =
            stream::unfold(receiver, |mut receiver: mpsc::Receiver<D::Piece>| async move {
                Some((Ok(receiver.recv().await?), receiver))
            });
        (pieces.boxed(), ended)
    }
}

/// Pieces of a download.
type Arriving<P> = BoxStream<'static, Result<P, FlightError>>;

/// A download that is read piece by piece.
trait Pieces: Send + 'static {
    type Piece: Send + 'static;

    /// Reads the next piece; `None` at the end. It blocks.
    fn next(&mut self) -> Result<Option<Self::Piece>, String>;

    /// Returns the numbers of records and of bytes so far.
    fn sent(&self) -> (u64, u64);
}

impl Pieces for Box<Download> {
    type Piece = RecordBatch;

    fn next(&mut self) -> Result<Option<RecordBatch>, String> {
        self.next_batch().map_err(|e| e.to_string())
    }

    fn sent(&self) -> (u64, u64) {
        (self.sum().records(), self.sum().bytes())
    }
}

/// The file of a segment, and the number of its records.
struct GrantedFile {
    file: SegmentFile,
    records: u64,
}

impl Pieces for GrantedFile {
    type Piece = Vec<u8>;

    fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        self.file.next_piece().map_err(|e| e.to_string())
    }

    /// The records come with the last bytes, which have the metadata: a part of the file has none that can be read.
    fn sent(&self) -> (u64, u64) {
        (if self.file.is_read() { self.records } else { 0 }, self.file.at())
    }
}

/// The records of a ticket, open to be read.
struct Begun {
    source: Source,
    reading: Reading,
    is_owner: bool,
}

enum Source {
    /// On the heap: it has the pages of a segment, and goes from thread to thread for each piece.
    Records(Box<Download>),
    File(GrantedFile),
}

fn aborted() -> Status {
    Status::internal("the download was aborted")
}

/// Passes pieces on until the last one. Returns the download, which has the sum of all.
async fn pump<D: Pieces>(
    mut download: D,
    mut reading: Reading,
    sender: &mpsc::Sender<D::Piece>,
    is_owner: bool,
) -> Result<D, Status> {
    // The deadline may drop this at any await.
    reading.fail("it was not finished");
    loop {
        let work = move || {
            let piece = download.next();
            (download, piece)
        };
        let piece;
        let read = tokio::task::spawn_blocking(work).await;
        (download, piece) = read.map_err(|e| Status::internal(e.to_string()))?;
        let piece = match piece {
            Ok(Some(piece)) => piece,
            Ok(None) => {
                reading.finish();
                return Ok(download);
            }
            Err(why) => {
                reading.fail(&why);
                let why = if is_owner { why } else { "the records cannot be read".to_owned() };
                return Err(Status::data_loss(why));
            }
        };
        let (records, bytes) = download.sent();
        match timeout(STALLED, sender.send(piece)).await {
            Ok(Ok(())) => reading.sent(records, bytes),
            Ok(Err(_)) => {
                reading.fail("the client went away");
                return Err(Status::cancelled("the client is gone"));
            }
            Err(_) => {
                reading.fail("the client did not read");
                return Err(Status::deadline_exceeded("the client did not read in time"));
            }
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Reads and checks a command.
fn command_of(bytes: &[u8]) -> Result<PlacesCommand, Status> {
    if bytes.len() > MAX_COMMAND_BYTES {
        return Err(invalid("the command is too long"));
    }
    let command: PlacesCommand = serde_json::from_slice(bytes)
        .map_err(|e| invalid(&format!("the command is not one about jobs: {e}")))?;
    let wanted = &command.records;
    let kinds = &wanted.kinds;
    if command.skopos_jobs != VERSION {
        return Err(invalid("the command has a version that this hub does not know"));
    }
    if command.jobs.is_empty() == command.condition.is_none() {
        return Err(invalid("the command has to have either `jobs` or `where`"));
    }
    if command.jobs.len() > MAX_NAMED {
        return Err(invalid(&format!("the command names more than {MAX_NAMED} jobs")));
    }
    if kinds.len() > MAX_NAMES || wanted.schemas.len() > MAX_NAMES {
        return Err(invalid(&format!("the command has more than {MAX_NAMES} kinds or schemas")));
    }
    if wanted.schemas.iter().map(String::len).sum::<usize>() > MAX_SCHEMA_BYTES {
        return Err(invalid("the names of the schemas are too long"));
    }
    if let Some(unknown) = kinds.iter().find(|kind| Kind::of_name(kind).is_none()) {
        return Err(invalid(&format!("there is no kind {unknown:?} of records")));
    }
    Ok(command)
}

impl Inner {
    fn signer(&self, caller: &Caller) -> Result<&TicketSigner, Status> {
        if let Some(signer) = self.signer.get() {
            return Ok(signer);
        }
        let _making = unpoisoned(self.making.lock());
        if let Some(signer) = self.signer.get() {
            return Ok(signer);
        }
        let signer = match (&self.identity, self.place.folder()) {
            (Some(identity), _) => TicketSigner::certified(identity.clone()),
            (None, Some(folder)) if !folder.exists() => return Err(Status::not_found(NO_JOBS)),
            (None, Some(folder)) => TicketSigner::open(folder).map_err(|e| failed(caller, &e))?,
            (None, None) => return Err(failed(caller, &"the place of jobs is not known")),
        };
        Ok(self.signer.get_or_init(|| signer))
    }

    fn jobs(&self, caller: &Caller) -> Result<Option<Arc<Jobs>>, Status> {
        self.place.get().map_err(|e| failed(caller, &e))
    }

    /// Returns the jobs that the caller may read and that pass a condition of SQL; one more than an answer has if others
    /// follow.
    async fn matching(
        &self,
        caller: &Caller,
        condition: &str,
        after: Option<&JobName>,
    ) -> Result<Matching, Status> {
        let after = after.map_or(String::new(), |after| {
            let job = after.job.replace('\'', "''");
            let generation = after.generation.unwrap_or(0);
            format!(" AND (job > '{job}' OR job = '{job}' AND generation > {generation})")
        });
        // The condition has the rights of the caller. A comment in it ends with its line.
        let sql = format!(
            "SELECT job, generation FROM jobs WHERE (\n{condition}\n){after} ORDER BY job, generation \
             LIMIT {}",
            MAX_FOUND + 1
        );
        let answer = async { self.engine.planned(caller, &sql, &LIMITS).await?.collect().await };
        let answer = answer.await.map_err(|e| status::of(&in_condition(e)))?;
        Ok(Matching { ids: ids_of(&answer.batches)?, missing: answer.missing })
    }

    /// Answers where jobs lie. `matching` are those that pass the condition of the command.
    pub(super) fn answer(
        &self,
        caller: &Caller,
        command: PlacesCommand,
        matching: Option<Matching>,
    ) -> Result<FlightInfo, Status> {
        let Matching { mut ids, mut missing } = matching.unwrap_or_default();
        let copies = self.place.shown_copies().map_err(|e| failed(caller, &e))?;
        missing.extend(copies.missing());
        missing.sort_unstable();
        missing.dedup();
        if let Some(first) = missing.first().filter(|_| !command.partial) {
            return Err(incomplete(first));
        }
        // The jobs of this hub come first.
        let sources: Vec<Arc<Jobs>> = self.jobs(caller)?.into_iter().chain(copies.jobs).collect();
        let Some(first) = sources.first() else {
            return self.described(caller, Found::default(), missing, &command.records);
        };
        if self.identity.is_none() {
            // The folder has the key of tickets, also if the hub has nothing but copies.
            self.place.open().map_err(|e| failed(caller, &e))?;
        }
        let mut reading = first.reading(caller, Question::Places);
        let is_full = ids.len() > MAX_FOUND;
        for name in &command.jobs {
            reading.id(&name.job);
            let mut is_shown = false;
            for jobs in &sources {
                let runs = jobs.runs(caller, &name.job, name.generation);
                let runs = runs.map_err(|e| failed(caller, &e))?;
                is_shown |= !runs.is_empty();
                ids.extend(runs);
            }
            if !is_shown {
                reading.refuse("a job that was named was not shown");
            }
        }
        if let Some(after) = &command.after
            && let Ok(after) = JobId::new(after.job.as_str(), after.generation.unwrap_or(0))
        {
            ids = ids.split_off(&after);
            ids.remove(&after);
        }
        let takes_files = command.segments && (command.records.is_all() || command.filters);
        let whole_for = takes_files.then_some(&command.records);
        let found = places_in(&sources, caller, &ids, whole_for).map_err(|e| {
            reading.fail(&e.to_string());
            failed(caller, &e)
        });
        let mut found = found?;
        if is_full && found.after.is_none() {
            // Some of the jobs have gone since they were found, and others follow all the same.
            found.after = ids.last().cloned();
        }
        reading.jobs(found.places.iter().map(|(_, places)| places.jobs).sum());
        self.described(caller, found, missing, &command.records)
    }

    fn described(
        &self,
        caller: &Caller,
        Found { places, after }: Found,
        missing: Vec<String>,
        wanted: &Wanted,
    ) -> Result<FlightInfo, Status> {
        let (mut endpoints, mut total) = (Vec::new(), 0);
        let count = places.iter().map(|(_, places)| places.jobs).sum();
        for (jobs, places) in places {
            let storage = match jobs.copy_of() {
                Some(_) => jobs.storage(),
                None => self.place.storage(),
            };
            let locations = self.locations(&jobs);
            for portion in places.portions {
                total += portion.records;
                let endpoint = self.endpoint((caller, storage), portion, wanted)?;
                let Some(endpoint) = endpoint else { continue };
                let located = |endpoint: FlightEndpoint, at: &String| endpoint.with_location(at);
                endpoints.push(locations.iter().fold(endpoint, located));
            }
        }
        let name =
            |id: JobId| JobName { job: id.job().to_owned(), generation: Some(id.generation()) };
        // They name the other sites also where this hub has no jobs.
        let metadata = PlacesMetadata {
            site: self.place.site().to_owned(),
            jobs: count,
            after: after.map(name),
            missing,
            sites: self.place.sites().clone(),
        };
        info(endpoints, total, &metadata)
    }

    /// Returns the locations of some jobs; none if they are at the hub that was asked alone.
    fn locations(&self, jobs: &Jobs) -> Vec<String> {
        let mut locations = self.place.locations().to_vec();
        if let Some(replica) = self.place.replica().filter(|_| jobs.copy_of().is_none()) {
            if locations.is_empty() {
                locations.push(SAME_HUB.to_owned());
            }
            locations.push(replica.to_owned());
        }
        locations
    }

    /// Returns the endpoint of a portion without its locations; `None` for a caller that may read no job.
    fn endpoint(
        &self,
        (caller, storage): (&Caller, Option<u64>),
        portion: Portion,
        wanted: &Wanted,
    ) -> Result<Option<FlightEndpoint>, Status> {
        let whole = portion.segment;
        let metadata = EndpointMetadata {
            records: portion.records,
            sealed: portion.is_sealed,
            jobs: portion.jobs.clone(),
            segment: whole
                .as_ref()
                .map(|it| FileMetadata { name: it.name.clone(), bytes: it.bytes }),
        };
        let records = portion.records;
        let segment = whole.map(|it| SegmentGrant { name: it.name, records });
        let granted = Granted { jobs: portion.jobs, wanted: wanted.clone(), segment, storage };
        let signer = self.signer(caller)?;
        let ticket = ticket::ticket(signer, (caller, self.place.site()), granted, seconds_now());
        Ok(ticket.map(|ticket| {
            let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket));
            endpoint.with_app_metadata(json(&metadata))
        }))
    }

    /// Checks a ticket, and begins its download.
    fn begin(&self, caller: &Caller, ticket: &[u8]) -> Result<Begun, Status> {
        let site = self.place.site();
        let granted = ticket::check(self.signer(caller)?, (caller, site), ticket, seconds_now());
        let storage = granted.as_ref().ok().and_then(|granted| granted.storage);
        let jobs = self.place.of_storage(storage).map_err(|e| failed(caller, &e))?;
        let Some(jobs) = jobs else {
            let gone =
                if storage.is_none() { NO_JOBS } else { "this hub does not have these jobs" };
            let status = granted.err().unwrap_or_else(|| Status::not_found(gone));
            // The log of a copy notes the refusal, because this hub has none itself.
            let copy = self.place.any_copy().map_err(|e| failed(caller, &e))?;
            if let Some(copy) = copy {
                let why = status.message().lines().next().unwrap_or_default();
                copy.reading(caller, Question::Download).refuse(why);
            }
            return Err(status);
        };
        let mut reading = jobs.reading(caller, Question::Download);
        let refuse = |reading: &mut Reading, status: Status| {
            reading.refuse(status.message().lines().next().unwrap_or_default());
            status
        };
        let granted = granted.map_err(|status| refuse(&mut reading, status))?;
        granted.jobs.iter().for_each(|of| reading.id(&of.job));
        // The rights may have changed since the ticket was given.
        let ids = granted.jobs.iter().map(OfJob::id).collect::<Option<Vec<JobId>>>();
        let visible = ids.map_or(Ok(false), |ids| {
            jobs.visible(caller, &ids).map(|visible| ids.iter().all(|id| visible.contains(id)))
        });
        if !visible.map_err(|e| failed(caller, &e))? {
            let status =
                Status::permission_denied("a job of the ticket may not be read, or is gone");
            return Err(refuse(&mut reading, status));
        }
        reading.jobs(granted.jobs.len() as u64);
        let is_owner = may(caller, Action::ReadLog).is_ok();
        let source = match granted.segment {
            None => Source::Records(Box::new(jobs.download(granted.jobs, granted.wanted))),
            Some(SegmentGrant { name, records }) => {
                let file = jobs.segment_file(&name).map_err(|e| failed(caller, &e))?;
                let gone =
                    || Status::not_found("the segment was merged with another one, or removed");
                let file = file.ok_or_else(|| {
                    reading.fail("the segment is gone");
                    gone()
                })?;
                Source::File(GrantedFile { file, records })
            }
        };
        Ok(Begun { source, reading, is_owner })
    }
}

/// The jobs that pass a condition, by id and run.
#[derive(Default)]
pub(super) struct Matching {
    pub(super) ids: BTreeSet<JobId>,
    /// Parts of the site's jobs to which the condition was not applied, for people.
    pub(super) missing: Vec<String>,
}

/// Returns the jobs of rows with an id and a run. A condition can be written so that it adds rows of its own.
///
/// # Errors
/// A row does not name a job.
pub(super) fn ids_of(batches: &[RecordBatch]) -> Result<BTreeSet<JobId>, Status> {
    let mut ids = BTreeSet::new();
    for batch in batches {
        let jobs = batch.columns().first().and_then(|c| c.as_string_opt::<i32>());
        let runs = batch.columns().get(1).and_then(|c| c.as_primitive_opt::<Int64Type>());
        let (Some(jobs), Some(runs)) = (jobs, runs) else {
            return Err(invalid("the condition is not one on the table `jobs`"));
        };
        for (job, run) in jobs.iter().zip(runs.iter()) {
            let run = run.and_then(|run| u32::try_from(run).ok());
            let id = job.zip(run).and_then(|(job, run)| JobId::new(job, run).ok());
            let odd = || invalid("a row of the condition is not in the table `jobs`");
            ids.insert(id.ok_or_else(odd)?);
        }
    }
    Ok(ids)
}

/// The places of jobs in each source, and the last of these jobs if others follow.
#[derive(Default)]
struct Found {
    places: Vec<(Arc<Jobs>, Places)>,
    after: Option<JobId>,
}

/// Returns the places of jobs in each source, and the last of these jobs if others follow. A job that several sources have is
/// one of the first of them. Each source is asked once whether the caller may read a job.
fn places_in(
    sources: &[Arc<Jobs>],
    caller: &Caller,
    ids: &BTreeSet<JobId>,
    whole_for: Option<&Wanted>,
) -> Result<Found, AnyError> {
    if let [jobs] = sources {
        let places = jobs.places(caller, ids, whole_for)?;
        let after = places.after.clone();
        return Ok(Found { places: vec![(jobs.clone(), places)], after });
    }
    let mut left: Vec<JobId> = ids.iter().cloned().collect();
    let mut of_sources = Vec::new();
    for jobs in sources {
        let visible = jobs.visible(caller, &left)?;
        left.retain(|id| !visible.contains(id));
        of_sources.push((jobs.clone(), visible));
    }
    let places = |of: &[(Arc<Jobs>, BTreeSet<JobId>)]| -> Result<Vec<_>, AnyError> {
        of.iter().map(|(jobs, ids)| Ok((jobs.clone(), jobs.places_of(ids, whole_for)?))).collect()
    };
    let all = places(&of_sources)?;
    let after = all.iter().filter_map(|(_, places)| places.after.clone()).min();
    let Some(last) = after.clone() else { return Ok(Found { places: all, after }) };
    // The answer has no job after that one, whatever its source.
    for (_, ids) in &mut of_sources {
        ids.retain(|id| *id <= last);
    }
    Ok(Found { places: places(&of_sources)?, after })
}

fn info(
    endpoints: Vec<FlightEndpoint>,
    records: u64,
    metadata: &PlacesMetadata,
) -> Result<FlightInfo, Status> {
    let info = FlightInfo::new().try_with_schema(&download_schema());
    Ok(info
        .map_err(|e| Status::internal(e.to_string()))?
        .with_endpoints(endpoints)
        .with_total_records(i64::try_from(records).unwrap_or(-1))
        .with_total_bytes(-1)
        .with_app_metadata(json(metadata)))
}
