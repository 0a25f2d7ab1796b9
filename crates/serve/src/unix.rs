//! The hub's UNIX socket. `skopos_hub::messages` describes its messages. The credentials of the peer show that the caller
//! is the owner of the hub, or root.
//!
//! Each connection has a thread. The thread answers point reads itself, because handing one over costs more than
//! answering it. If a client closes the connection while its statement runs, the statement is cancelled.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::iter;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use skopos_access::Caller;
use skopos_model::job::MAX_DOCUMENT_BYTES;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::{Answer, Error, Limits, MAX_SQL_BYTES, Way};
use tokio::runtime::Handle;

use crate::jobs;
use crate::listen::{Connections, Open};
use skopos_hub::Backend;
use skopos_hub::counts::{Counts, OpenConnection};
use skopos_hub::messages::{FlightRequest, GetRequest, Head, Request, StoreRequest, socket_path};
use skopos_hub::pieces::arrow;
use skopos_hub::read::{ReadError, read};
use skopos_hub::{Change, Question};
use skopos_term::Failure;

/// Pause after a failure to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of connections. Each has a thread that sleeps in a read.
const MAX_CONNECTIONS: u64 = 256;

/// Number of connections that are turned away and stay open, so that the client can send its request and read why.
const MAX_TURNED_AWAY: usize = 16;

/// The longest request: a statement, for whose bytes JSON needs up to six bytes each, or records of a job, the longest of
/// which is a report.
const MAX_REQUEST_BYTES: u64 = 6 * MAX_SQL_BYTES as u64 + 2 * MAX_DOCUMENT_BYTES as u64;

/// Maximum number of topics and patterns in one request without SQL.
const MAX_GET_TOPICS: usize = 256;

/// Maximum time that a write may wait for the client, which is taken for dead afterwards.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time in which a connection that is closed leaves its place, and the number of looks in it.
const CLOSING_TIME: Duration = Duration::from_millis(100);
const CLOSING_LOOKS: u32 = 20;

/// Size of the stack of a connection's thread, which parses statements: a debug build recurses through megabytes. Unused
/// pages of a stack take no memory.
const STACK_BYTES: usize = 32 << 20;

/// Capacity of a buffer that a connection keeps between two answers. Most answers fit.
const KEPT_BYTES: usize = 64 * 1024;

/// The socket, open until it is dropped.
pub(crate) struct HubSocket {
    path: PathBuf,
}

impl HubSocket {
    /// Listens in `dir` and answers from `backend`.
    ///
    /// # Errors
    /// Fails if another hub listens there, or if the socket cannot be created.
    pub(crate) fn open(
        dir: &Path,
        backend: Arc<Backend>,
        counts: Arc<Counts>,
        runtime: Handle,
    ) -> Result<Self, Failure> {
        let path = socket_path(dir);
        let failed =
            |e: &io::Error| Failure::new(format!("cannot listen at {}", path.display())).because(e);
        if UnixStream::connect(&path).is_ok() {
            return Err(Failure::new(format!("another hub listens at {} already", path.display())));
        }
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&e)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(|e| failed(&e))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(|e| failed(&e))?;
        let connections = Connections::default();
        let mut turned_away = VecDeque::new();
        let accept = move || {
            for stream in listener.incoming() {
                // Most often because too many files are open.
                let Ok(stream) = stream else {
                    std::thread::sleep(PAUSE);
                    continue;
                };
                if !is_allowed(&stream) {
                    counts.reject_connection();
                    continue;
                }
                let Some(counted) = place(&counts, &connections) else {
                    counts.reject_connection();
                    turn_away(&stream);
                    turned_away.push_back(stream);
                    if turned_away.len() > MAX_TURNED_AWAY {
                        turned_away.pop_front();
                    }
                    continue;
                };
                let stream = Arc::new(stream);
                let ending = stream.clone();
                let close = move || drop(ending.shutdown(Shutdown::Both));
                let connection = Connection {
                    activity: connections.add(false, close),
                    stream,
                    backend: backend.clone(),
                    counts: counts.clone(),
                    runtime: runtime.clone(),
                };
                let serve = move || {
                    let _counted = counted;
                    // An error here means that the client closed the connection.
                    let _ = connection.serve();
                };
                if socket_thread().stack_size(STACK_BYTES).spawn(serve).is_err() {
                    counts.reject_connection();
                }
            }
        };
        let thread = socket_thread().spawn(accept);
        thread.map_err(|e| Failure::new("no thread can be started").because(&e))?;
        Ok(Self { path })
    }
}

impl Drop for HubSocket {
    fn drop(&mut self) {
        // The accepting thread ends with the process.
        let _ = fs::remove_file(&self.path);
    }
}

fn socket_thread() -> thread::Builder {
    thread::Builder::new().name("hub-socket".to_owned())
}

/// Returns a place for a connection, for which an idle one may have to go.
fn place(counts: &Arc<Counts>, connections: &Connections) -> Option<OpenConnection> {
    let found = counts.connect(MAX_CONNECTIONS);
    if found.is_some() || !connections.close_idle() {
        return found;
    }
    let mut looks = iter::repeat_with(|| {
        thread::sleep(CLOSING_TIME / CLOSING_LOOKS);
        counts.connect(MAX_CONNECTIONS)
    });
    looks.by_ref().take(CLOSING_LOOKS as usize).find_map(|found| found)
}

/// Tells a client of this user that too many connections are open. A new connection has room for a line.
fn turn_away(mut stream: &UnixStream) {
    let head = Head::refusing("too many connections are open".to_owned(), None);
    if let Ok(mut reply) = serde_json::to_vec(&head) {
        reply.push(b'\n');
        let _ = stream.set_nonblocking(true);
        let _ = stream.write_all(&reply);
        let _ = stream.shutdown(Shutdown::Write);
    }
}

/// Returns true if the peer runs as the same user or as root.
fn is_allowed(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// A request without SQL.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum OtherRequest {
    Get(GetRequest),
    Store(StoreRequest),
    Flight(FlightRequest),
}

/// One client.
struct Connection {
    stream: Arc<UnixStream>,
    activity: Open,
    backend: Arc<Backend>,
    counts: Arc<Counts>,
    runtime: Handle,
}

impl Connection {
    fn serve(&self) -> io::Result<()> {
        self.stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let mut input = BufReader::new(&*self.stream);
        let (mut line, mut body, mut reply) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            for buffer in [&mut line, &mut body, &mut reply] {
                buffer.clear();
                buffer.shrink_to(KEPT_BYTES);
            }
            let read = (&mut input).take(MAX_REQUEST_BYTES).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(());
            }
            self.counts.request();
            self.activity.received();
            // An answer holds its permit until it is sent.
            let mut held = None;
            let head = match serde_json::from_slice::<Request>(&line) {
                Err(e) => match serde_json::from_slice::<OtherRequest>(&line) {
                    Err(_) => Head::refusing(format!("not a request: {e}"), None),
                    Ok(OtherRequest::Get(request)) => self.get(&request, &mut body)?,
                    Ok(OtherRequest::Store(request)) => jobs::store(&self.backend, &request),
                    Ok(OtherRequest::Flight(request)) => self.flight(&request, &mut body)?,
                },
                Ok(request) if request.standing => return self.answer_standing(request),
                Ok(request) => match self.answer(&request)? {
                    Err(e) => Head::refusing(e.to_string(), e.hint()),
                    Ok(answer) => {
                        let head = encoded(&answer, &mut body);
                        held = Some(answer);
                        head
                    }
                },
            };
            if head.error.is_some() {
                self.counts.refuse();
                body.clear();
            }
            serde_json::to_writer(&mut reply, &head)?;
            reply.push(b'\n');
            if body.len() <= KEPT_BYTES {
                // Most answers take one write.
                reply.append(&mut body);
            }
            (&*self.stream).write_all(&reply)?;
            (&*self.stream).write_all(&body)?;
            drop(held);
            self.activity.sent();
            if line.last() != Some(&b'\n') {
                return Ok(());
            }
        }
    }

    /// Answers with latest values. This thread waits for measurements.
    fn get(&self, request: &GetRequest, body: &mut Vec<u8>) -> io::Result<Head> {
        if request.get.len() > MAX_GET_TOPICS {
            let error = format!("a request can name at most {MAX_GET_TOPICS} topics");
            return Ok(Head::refusing(error, None));
        }
        let max_age = request.max_age_ms.map(Duration::from_millis);
        match read(&self.backend, &request.get, max_age) {
            Ok(readings) => {
                serde_json::to_writer(&mut *body, &readings)?;
                Ok(Head { bytes: body.len(), ..Head::default() })
            }
            Err(ReadError::Invalid(failure) | ReadError::NoMatch(failure)) => {
                let hint = failure.hint_text().map(str::to_owned);
                Ok(Head::refusing(failure.message().to_owned(), hint))
            }
        }
    }

    /// Answers with the address of the Flight listener.
    fn flight(&self, request: &FlightRequest, body: &mut Vec<u8>) -> io::Result<Head> {
        let url = self.backend.flight.get().filter(|_| request.flight_address);
        let Some(url) = url else {
            let error = "the hub has no Flight listener".to_owned();
            let hint = "start it without `--flight none`, or with an address that is free";
            return Ok(Head::refusing(error, Some(hint.to_owned())));
        };
        serde_json::to_writer(&mut *body, url)?;
        Ok(Head { bytes: body.len(), ..Head::default() })
    }

    /// Answers a statement. The outer error means that the client is gone.
    fn answer(&self, request: &Request) -> io::Result<Result<Answer, Error>> {
        let engine = &self.backend.engine;
        if let Some(answer) = engine.point(&Caller::Owner, &request.sql) {
            let is_short = answer.rows() <= request.rows;
            return Ok(if is_short { Ok(answer) } else { Err(Error::TooManyRows(request.rows)) });
        }
        let deadline = Duration::from_millis(request.deadline_ms);
        let limits = Limits { deadline, rows: request.rows, ..Limits::default() };
        let (engine, sql) = (engine.clone(), request.sql.clone());
        let running = self.counts.run();
        self.while_connected(async move {
            let planned =
                async { engine.planned(&Caller::Owner, &sql, &limits).await?.collect().await };
            let answer = planned.await;
            running.done();
            answer
        })
    }

    /// Answers a standing question after each change.
    fn answer_standing(&self, request: Request) -> io::Result<()> {
        let _standing = self.counts.stand();
        self.send_changes(request)
    }

    fn send_changes(&self, request: Request) -> io::Result<()> {
        let every = request.every_ms.map(Duration::from_millis);
        let deadline = Duration::from_millis(request.deadline_ms);
        let question = Question { caller: Caller::Owner, sql: request.sql, every, deadline };
        let backend = self.backend.clone();
        let begun = async move { backend.standings.ask(question, backend.news()).await };
        let mut standing = match self.while_connected(begun)? {
            Ok(standing) => standing,
            Err(e) => return self.refuse(&e),
        };
        loop {
            let next = async move {
                let change = standing.next().await;
                (standing, change)
            };
            let change;
            (standing, change) = self.while_connected(next)?;
            match change {
                // This blocks on a slow client; the thread has no other work.
                Ok(change) => self.send(&change)?,
                Err(e) => return self.refuse(&e),
            }
        }
    }

    /// Runs `work` and returns its result. If the client closes the connection meanwhile, `work` is aborted and the call
    /// fails.
    fn while_connected<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let done = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let signal = SignalOnDrop(done.clone());
        let task = self.runtime.spawn(async move {
            let _signal = signal;
            work.await
        });
        // Without requested events, `poll` reports only that the connection is closed in both directions. A client
        // that has only ended its requests still reads.
        let mut waited =
            [PollFd::new(&*self.stream, PollFlags::empty()), PollFd::new(&*done, PollFlags::IN)];
        while waited.iter().all(|fd| fd.revents().is_empty()) {
            match poll(&mut waited, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        if waited[1].revents().is_empty() {
            task.abort();
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.runtime.block_on(task).map_err(io::Error::other)
    }

    fn send(&self, change: &Change) -> io::Result<()> {
        let (mut new, mut gone, mut reply) = (Vec::new(), Vec::new(), Vec::new());
        let encoded = arrow(&change.schema, &change.new, &mut new)
            .and_then(|()| arrow(&change.schema, [&change.gone], &mut gone));
        encoded.map_err(io::Error::other)?;
        let (bytes, gone_bytes, rows) = (new.len(), Some(gone.len()), Some(change.rows));
        serde_json::to_writer(&mut reply, &Head { bytes, gone_bytes, rows, ..Head::default() })?;
        reply.push(b'\n');
        reply.extend(new);
        reply.extend(gone);
        (&*self.stream).write_all(&reply)
    }

    fn refuse(&self, error: &Error) -> io::Result<()> {
        self.counts.refuse();
        let mut reply = serde_json::to_vec(&Head::refusing(error.to_string(), error.hint()))?;
        reply.push(b'\n');
        (&*self.stream).write_all(&reply)
    }
}

/// Encodes an answer as `body`, and returns its head.
fn encoded(answer: &Answer, body: &mut Vec<u8>) -> Head {
    let bytes = answer.batches.iter().map(RecordBatch::get_array_memory_size).sum();
    if let Err(e) = answer.hold(bytes) {
        return Head::refusing(e.to_string(), e.hint());
    }
    match arrow(&answer.schema, &answer.batches, &mut *body) {
        Err(e) => Head::refusing(e.to_string(), None),
        Ok(()) => {
            let way = if answer.way == Way::Point { "point" } else { "planned" };
            let (way, missing, bytes) = (way.to_owned(), answer.missing.clone(), body.len());
            Head { way, missing, bytes, ..Head::default() }
        }
    }
}

/// Wakes the polling thread when it is dropped, also after a panic.
struct SignalOnDrop(Arc<OwnedFd>);

impl Drop for SignalOnDrop {
    fn drop(&mut self) {
        // The counter of the descriptor cannot overflow.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}
