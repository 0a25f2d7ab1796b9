//! Takes records of jobs: `DoPut` with the descriptor path `jobs`, the name of the producer, its epoch, and the level of
//! acknowledgement (`memory`, `disk`, `replica` or `lts`; `disk` if it is left out).
//!
//! `skopos_hub::jobs` has the columns of the batches. The answer is a stream of acknowledgements, each with the
//! `app_metadata` `{"level":"disk","sequence":41}`: all records of this epoch up to that sequence have reached the level.
//! Records that are refused for good are named once: `"refused":1,"refusals":[[40,"the id of the job is empty"]]`. Streams
//! take turns. Until a batch is stored, the hub reads no more from its stream.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::server::PeekableFlightDataStream;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::json;
use skopos_access::{Action, Caller, may};
use skopos_hub::jobs::{
    AckLevel, Jobs, JobsPlace, LookedUp, Lookup, Progress, RecordColumns, Session, StoreError,
    Stored, Visit,
};
use skopos_query::arrow::array::{Array as _, ArrayRef, RecordBatch};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::{Code, Status};

use super::keep::{Primary, keep};
use super::plain_data::refusal;
use super::status;
use crate::shares::{Share, Shares};

/// The path of a descriptor, for people.
const RIGHT_PATH: &str = "its path is `jobs`, the name of the producer, its epoch (a whole number), and a level: \
    `memory`, `disk`, `replica` or `lts`";

/// Pause before records are offered again to a storage that is full.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Time for which the last records of a stream wait for their acknowledgement.
const LAST_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between two looks for an acknowledgement that no commit announces: sealing.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Number of acknowledgements that wait for the client. It may read none; then the hub reads no more records.
const WAITING: usize = 4;

/// Streams of one caller at a time, and of all callers. Each holds a batch of a megabyte, and its acknowledgements.
const STREAMS_OF_ONE: usize = 64;
const STREAMS_OF_ALL: usize = 1024;

/// Time in which a client sends the first message.
const FIRST_TIMEOUT: Duration = Duration::from_secs(60);

/// The streams of records that are open, by caller.
#[derive(Clone, Debug)]
pub(super) struct Streams(Arc<Shares<String>>);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Shares::new(STREAMS_OF_ONE, STREAMS_OF_ALL)))
    }
}

impl Streams {
    fn open(&self, caller: &Caller) -> Result<Share<String>, Status> {
        let holder = match caller {
            Caller::Owner => "owner".to_owned(),
            Caller::User(user) => format!("user/{}", user.name),
            Caller::Node(names) => format!("node/{}", names.node),
            _ => String::new(),
        };
        self.0.take(&holder).ok_or_else(|| {
            let hint =
                "a producer sends its records in one stream, and opens another when that ends";
            let text = "too many streams of records are open";
            status::with_hint(Code::ResourceExhausted, text, Some(hint))
        })
    }
}

/// The answer to `DoPut`.
pub(super) type Acknowledgements = BoxStream<'static, Result<PutResult, Status>>;

/// The address of records, from the path of a descriptor.
struct Address {
    producer: String,
    epoch: i64,
    level: AckLevel,
}

impl Address {
    fn of(descriptor: Option<&FlightDescriptor>) -> Result<Self, Status> {
        let wrong = || {
            status::with_hint(
                Code::InvalidArgument,
                "the descriptor is not one of records of jobs",
                Some(RIGHT_PATH),
            )
        };
        let path = descriptor.map_or(&[][..], |descriptor| &descriptor.path);
        let (producer, epoch, level) = match path {
            [jobs, producer, epoch] if jobs == "jobs" => (producer, epoch, None),
            [jobs, producer, epoch, level] if jobs == "jobs" => (producer, epoch, Some(level)),
            _ => return Err(wrong()),
        };
        let level = level.map_or(Some(AckLevel::Disk), |name| AckLevel::of_name(name));
        let epoch = epoch.parse().map_err(|_| wrong())?;
        Ok(Self { producer: producer.clone(), epoch, level: level.ok_or_else(wrong)? })
    }
}

/// Stores the records of a stream, and acknowledges them.
pub(super) async fn put(
    (place, streams): (Arc<JobsPlace>, &Streams),
    caller: Caller,
    mut data: PeekableFlightDataStream,
) -> Result<Acknowledgements, Status> {
    let share = streams.open(&caller)?;
    let late = |_| Status::deadline_exceeded("the stream has no first message");
    let first = timeout(FIRST_TIMEOUT, data.peek()).await.map_err(late)?.cloned().transpose();
    let first = first.map_err(too_long)?;
    let descriptor = first.as_ref().and_then(|first| first.flight_descriptor.as_ref());
    if let Some(primary) = Primary::of(descriptor)? {
        return keep(place, caller, primary, data).await;
    }
    let address = Address::of(first.as_ref().and_then(|first| first.flight_descriptor.as_ref()))?;
    can_store(&caller)?;
    if address.level == AckLevel::Replica && place.replica().is_none() {
        return Err(status::with_hint(
            Code::FailedPrecondition,
            "this hub has no replica",
            Some("its configuration names one as `replica` in the table [hub.jobs]"),
        ));
    }
    let jobs = blocking(move || place.open()).await?;
    let jobs = jobs.map_err(|e| Status::unavailable(e.to_string()))?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let session = jobs.session();
    let (last, sent, progress, owed) = (None, None, None, 0);
    let put = Put { jobs, caller, address, session, sender, last, sent, progress, owed };
    tokio::spawn(async move {
        put.run(data).await;
        drop(share);
    });
    let acknowledgements =
        stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    Ok(acknowledgements.boxed())
}

/// Refuses a caller that may not store any record.
fn can_store(caller: &Caller) -> Result<(), Status> {
    let (node, owner) = match caller {
        Caller::Node(names) => (Some(names.node.as_str()), None),
        Caller::User(user) => (None, Some(user.name.as_str())),
        _ => (None, None),
    };
    let action = Action::StoreJob { node, owner, is_elsewhere: false };
    may(caller, action).map_err(|denied| status::denied(&denied))
}

/// A stream of records.
struct Put {
    jobs: Arc<Jobs>,
    caller: Caller,
    address: Address,
    session: Session,
    sender: Sender<Result<PutResult, Status>>,
    /// The highest sequence that was taken or known.
    last: Option<i64>,
    /// The highest sequence that was acknowledged to the client.
    sent: Option<i64>,
    /// The progress of the producer, once a record was taken.
    progress: Option<Arc<Progress>>,
    /// Bytes that its last turn had too many.
    owed: u64,
}

impl Put {
    async fn run(mut self, data: PeekableFlightDataStream) {
        if let Err(status) = self.take(data).await {
            let _ = self.sender.send(Err(status)).await;
        }
    }

    async fn take(&mut self, data: PeekableFlightDataStream) -> Result<(), Status> {
        let plain =
            data.map_err(FlightError::from).and_then(async |data: FlightData| {
                match refusal(&data) {
                    Some(reason) => Err(Status::invalid_argument(reason).into()),
                    None => Ok(data),
                }
            });
        let mut batches = FlightRecordBatchStream::new_from_flight_data(plain.boxed());
        let mut commits = self.jobs.commits();
        loop {
            tokio::select! {
                batch = batches.try_next() => match batch.map_err(refused)? {
                    Some(batch) => {
                        let stored = self.store(batch).await?;
                        self.last = self.last.max(stored.last);
                        self.acknowledge(Some(&stored)).await?;
                    }
                    None => break,
                },
                changed = commits.changed() => {
                    changed.map_err(|_| Status::unavailable("the hub ends"))?;
                    self.acknowledge(None).await?;
                }
            }
        }
        let until = Instant::now() + LAST_TIMEOUT;
        let _awaiting = (self.address.level == AckLevel::Lts).then(|| self.jobs.await_sealed());
        while self.sent < self.last {
            self.acknowledge(None).await?;
            if self.sent < self.last {
                // A running job is sealed once an hour, and a replica may be away.
                let may_take_long = matches!(self.address.level, AckLevel::Lts | AckLevel::Replica);
                if self.sender.is_closed() {
                    return Ok(());
                }
                if Instant::now() >= until && !may_take_long {
                    // The trouble names files, and jobs of others.
                    let why = self.jobs.trouble().filter(|_| self.caller == Caller::Owner);
                    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                    let text = format!("the last records were not acknowledged in time{why}");
                    return Err(Status::unavailable(text));
                }
                if self.session != self.jobs.session() {
                    return Err(Status::unavailable(StoreError::Lost.to_string()));
                }
                let look = Instant::now() + LOOK_EVERY;
                let _ = timeout_at(look, commits.changed()).await;
            }
        }
        Ok(())
    }

    /// Stores a batch, in as many turns as it takes; waits while the storage is full.
    async fn store(&mut self, batch: RecordBatch) -> Result<Stored, Status> {
        let _waiting = self.jobs.waiting(bytes_of(&batch));
        let columns = blocking(move || RecordColumns::of(&batch)).await?;
        let columns = columns.map_err(|e| Status::invalid_argument(e.to_string()))?;
        let columns = Arc::new(columns);
        let mut all = Stored { owed: self.owed, ..Stored::default() };
        let mut looked_up = LookedUp::default();
        loop {
            let turn = self.jobs.turn(&self.caller, all.owed).await;
            let (jobs, caller) = (self.jobs.clone(), self.caller.clone());
            let (producer, epoch) = (self.address.producer.clone(), self.address.epoch);
            let (columns, session, from) = (columns.clone(), self.session, all.passed);
            let mut looked = std::mem::take(&mut looked_up);
            let storing = blocking(move || {
                let (stream, of) = ((session, &caller), (producer.as_str(), epoch));
                let each = |visit: &mut Visit<'_>| columns.for_each(from, visit);
                let (stored, rest) = jobs.store_in(turn, stream, of, &mut looked, each);
                (stored, rest, looked, jobs.progress(&caller, &producer))
            });
            let (stored, mut rest, looked, progress) = storing.await?;
            all.add(stored);
            (self.owed, self.progress) = (all.owed, progress);
            if let Some(StoreError::Lookup(lookup)) = &rest {
                // The thread is given back before the stream waits for its next turn.
                match self.look_up(lookup.clone(), looked).await? {
                    Ok(found) => {
                        looked_up = found;
                        continue;
                    }
                    Err(e) => rest = Some(e),
                }
            }
            match rest {
                None => return Ok(all),
                Some(StoreError::TurnOver | StoreError::Lookup(_)) => {}
                Some(StoreError::Busy(_)) if !self.sender.is_closed() => sleep(RETRY_AFTER).await,
                Some(e @ (StoreError::Busy(_) | StoreError::Lost)) => {
                    return Err(Status::unavailable(e.to_string()));
                }
                Some(e @ StoreError::Batch(_)) => {
                    return Err(Status::invalid_argument(e.to_string()));
                }
                Some(e @ StoreError::Producer(_)) => {
                    return Err(Status::failed_precondition(e.to_string()));
                }
            }
        }
    }

    /// Looks up a job.
    async fn look_up(
        &self,
        lookup: Lookup,
        mut looked_up: LookedUp,
    ) -> Result<Result<LookedUp, StoreError>, Status> {
        let jobs = self.jobs.clone();
        blocking(move || jobs.look_up(&lookup, &mut looked_up).map(|()| looked_up)).await
    }

    /// Tells the client what has reached its level, if that is more than before or records were refused.
    async fn acknowledge(&mut self, stored: Option<&Stored>) -> Result<(), Status> {
        let Address { epoch, level, .. } = &self.address;
        let reached = self.progress.as_ref();
        let reached = reached.and_then(|progress| level.reached(progress, *epoch, self.last));
        let refused = stored.map_or(0, |stored| stored.refused);
        if reached <= self.sent && refused == 0 {
            return Ok(());
        }
        self.sent = self.sent.max(reached);
        let mut metadata = json!({ "level": level.name(), "sequence": self.sent });
        if let Some(stored) = stored.filter(|stored| stored.refused > 0) {
            metadata["refused"] = stored.refused.into();
            metadata["refusals"] = json!(stored.refusals);
        }
        let result = PutResult { app_metadata: metadata.to_string().into_bytes().into() };
        let gone = |_| Status::cancelled("the client is gone");
        self.sender.send(Ok(result)).await.map_err(gone)
    }
}

/// Does work that blocks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Status::internal(e.to_string()))
}

/// Returns the bytes of the columns of a batch.
fn bytes_of(batch: &RecordBatch) -> u64 {
    let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or_default();
    batch.columns().iter().map(bytes).sum::<usize>() as u64
}

/// Adds to the refusal of a long message what its producer can do.
fn too_long(status: Status) -> Status {
    let hint = "send records in batches of less than a megabyte";
    match status.code() {
        code @ Code::OutOfRange => status::with_hint(code, status.message(), Some(hint)),
        _ => status,
    }
}

fn refused(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => too_long(*status),
        other => Status::invalid_argument(format!("the records are not valid: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use skopos_access::{Role, User};
    use skopos_hub::jobs::JobsSettings;
    use skopos_model::schema::Metric;
    use skopos_query::arrow::array::{Int64Array, StringArray};

    use super::*;

    /// Time that ends a test which hangs.
    const PATIENCE: Duration = Duration::from_secs(180);

    fn start_of(job: &str, user: &str) -> RecordBatch {
        let start = json!({ "user": user }).to_string();
        let number = |number: i64| Arc::new(Int64Array::from(vec![number])) as ArrayRef;
        let text = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let columns = [
            ("sequence", number(0)),
            ("time", number(1)),
            ("job", text(job)),
            ("kind", text("start")),
            ("document", text(&start)),
        ];
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    /// Returns a stream of a user.
    fn stream_of(jobs: &Arc<Jobs>, name: &str) -> Put {
        let user = User { name: name.to_owned(), role: Role::Member, ..User::default() };
        let address = Address { producer: "p".to_owned(), epoch: 1, level: AckLevel::Disk };
        let (jobs, session, (sender, _)) = (jobs.clone(), jobs.session(), mpsc::channel(WAITING));
        let (last, sent, progress, owed) = (None, None, None, 0);
        Put {
            jobs,
            caller: Caller::User(user),
            address,
            session,
            sender,
            last,
            sent,
            progress,
            owed,
        }
    }

    #[test]
    fn more_streams_than_threads_look_up_their_jobs() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = Some(folder.path().join("jobs"));
        let place = JobsPlace::new(folder, "s", JobsSettings::default());
        let jobs = place.open().expect("opened");
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).max_blocking_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (waited, all) = runtime.block_on(async {
            let held = jobs.turn(&Caller::Owner, 0).await;
            let streams = ["ann", "bob", "eve"].map(|name| {
                let mut put = stream_of(&jobs, name);
                let batch = start_of(&format!("{name}/1"), name);
                tokio::spawn(async move { put.store(batch).await })
            });
            let waiting = || {
                let number = |(metric, number): (&Metric, u64)| {
                    (metric.name == "waiting_bytes").then_some(number)
                };
                Jobs::numbers(Some(&jobs)).into_iter().find_map(number).unwrap_or_default()
            };
            let waited = timeout(PATIENCE, async {
                // A stream that has failed waits no more.
                while waiting() < 3 * bytes_of(&start_of("ann/1", "ann"))
                    && !streams.iter().any(|stream| stream.is_finished())
                {
                    tokio::task::yield_now().await;
                }
            });
            let waited = waited.await;
            drop(held);
            let all = timeout(PATIENCE, async {
                let mut all = Vec::new();
                for stream in streams {
                    let stored = stream.await.expect("no panic");
                    let stored = stored.map_err(|status| status.to_string());
                    all.push(stored.map(|stored| (stored.accepted, stored.refusals)));
                }
                all
            });
            (waited, all.await)
        });
        // A thread that waits for ever would keep the test from its end.
        runtime.shutdown_background();
        assert_eq!(all.expect("no stream waits for ever"), vec![Ok((1, Vec::new())); 3]);
        assert!(waited.is_ok(), "not all streams wait for their turn");
    }

    #[test]
    fn a_caller_has_a_bounded_number_of_streams_and_leaves_room_for_others() {
        let streams = Streams::default();
        let open = |caller: &Caller| streams.open(caller).map_err(|status| status.code());
        let held: Vec<_> = (0..STREAMS_OF_ONE).map(|_| open(&Caller::Owner)).collect();
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(open(&Caller::Owner).err(), Some(Code::ResourceExhausted));
        assert!(open(&Caller::Anybody).is_ok());
        drop(held);
        assert!(open(&Caller::Owner).is_ok());
    }
}
