//! The client of a hub's UNIX socket, for `skopos sql`, `skopos watch --sql` and `skopos get`.
//!
//! A missing hub is not an error: the caller then reads this machine alone. A hub that exists and does not answer is an
//! error, because the values of this machine do not replace its answer.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::Serialize;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::datatypes::SchemaRef;
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::ipc::reader::StreamReader;
use skopos_query::{Answer, Limits, Way};

use crate::messages::{
    FlightRequest, FlightUrl, GetRequest, Head, Request, StoreRequest, socket_path,
};
use crate::standing::Change;
use skopos_store::jobs::spool::{Sent, SpooledBatch};
use skopos_term::Failure;

/// Time that a hub may need beyond a statement's deadline: to wake up, to find the nodes that answer, and to write the
/// answer. The hub itself cancels a statement at its deadline, and reports that.
const GRACE: Duration = Duration::from_secs(5);

/// The longest timeout of a socket. The kernel cannot store a much longer one.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// Bytes of records that one request carries. A longer record has a request of its own.
const REQUEST_BYTES: usize = 1 << 20;

/// Hint about a hub that does not answer.
const SILENT: &str = "it may be stopped or overloaded; `skopos get` and `skopos top` show what this machine \
     publishes without it";

/// Connects to the hub of a runtime directory; `None` if there is none. Each read and write ends after `timeout`.
///
/// # Errors
/// Fails if the hub's socket exists and does not accept the connection.
pub fn reach(dir: &Path, timeout: Duration) -> Result<Option<UnixStream>, Failure> {
    let path = socket_path(dir);
    let opened = || {
        let address = SocketAddrUnix::new(&path)?;
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        // A hub that hangs does not accept connections. Once its backlog is full, `connect` blocks too.
        for direction in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, direction, Some(timeout.min(LONGEST)))?;
        }
        connect(&socket, &address)?;
        Ok(UnixStream::from(socket))
    };
    let at = path.display();
    match opened() {
        Ok(stream) => Ok(Some(stream)),
        // A path that is too long for a socket cannot have a hub.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Ok(None),
        Err(Errno::CONNREFUSED) => Err(Failure::new(format!("the hub at {at} is dead"))
            .hint("start it again with `skopos up` or `skopos hub`, or remove that file")),
        Err(Errno::ACCESS | Errno::PERM) => {
            Err(Failure::new(format!("this user has no access to the hub at {at}"))
                .hint("ask as the user that runs the hub, as root, or through its HTTP listener"))
        }
        Err(Errno::AGAIN) => Err(no_answer(&Errno::AGAIN.into())),
        Err(e) => Err(Failure::new(format!("the hub at {at} cannot be asked")).because(&e)),
    }
}

/// Returns the maximum time that a hub may take for a statement with `deadline`.
pub fn answer_timeout(deadline: Duration) -> Duration {
    deadline.saturating_add(GRACE)
}

/// A connection to the hub of a runtime directory, for one statement after another.
pub struct Client {
    dir: PathBuf,
    limits: Limits,
    stream: RefCell<Option<UnixStream>>,
}

impl Client {
    /// Connects to the hub in `dir`; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the hub exists and cannot be asked.
    pub fn open(dir: &Path, limits: Limits) -> Result<Option<Self>, Failure> {
        let stream = reach(dir, answer_timeout(limits.deadline))?;
        let of = |stream| Self { dir: dir.to_owned(), limits, stream: RefCell::new(Some(stream)) };
        Ok(stream.map(of))
    }

    /// Asks a statement.
    ///
    /// # Errors
    /// Fails if the hub refuses the statement, is gone, or does not answer in time.
    pub fn ask(&self, sql: &str) -> Result<Answer, Failure> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => reach(&self.dir, answer_timeout(self.limits.deadline))?.ok_or_else(gone)?,
        };
        let answer = ask(&stream, sql, &self.limits)?;
        // After a failure the connection is dropped, because a late answer to this statement may still arrive on
        // it.
        self.stream.replace(Some(stream));
        Ok(answer)
    }
}

/// Asks the hub at the other end of `stream` a statement.
///
/// # Errors
/// Fails if the hub refuses the statement or is gone.
pub fn ask(stream: &UnixStream, sql: &str, limits: &Limits) -> Result<Answer, Failure> {
    let deadline_ms = milliseconds(limits.deadline);
    let request =
        Request { sql: sql.to_owned(), rows: limits.rows, deadline_ms, ..Request::default() };
    send(stream, &request)?;
    let mut input = BufReader::new(stream);
    let head = head(&mut input)?;
    let (schema, batches) = body(&mut input, head.bytes)?;
    let way = if head.way == "point" { Way::Point } else { Way::Planned };
    Ok(Answer::new(schema, batches, way, head.missing))
}

/// Asks the hub at the other end of `stream` for latest values. Returns the document of `GET /api/v1/get`.
///
/// # Errors
/// Fails if no topic matches, if the hub refuses the request, or if it is gone.
pub fn get(
    stream: &UnixStream,
    topics: &[String],
    max_age: Option<Duration>,
) -> Result<serde_json::Value, Failure> {
    let max_age_ms = max_age.map(milliseconds);
    send(stream, &GetRequest { get: topics.to_vec(), max_age_ms })?;
    let mut input = BufReader::new(stream);
    let head = line(&mut input)?;
    if let Some(error) = head.error {
        let failure = Failure::no(error);
        return Err(head.hint.into_iter().fold(failure, Failure::hint));
    }
    let mut body = vec![0; head.bytes];
    input.read_exact(&mut body).map_err(|e| no_answer(&e))?;
    serde_json::from_slice(&body).map_err(|e| not_understood(&e))
}

/// Asks the hub at the other end of `stream` for the address of its Flight listener.
///
/// # Errors
/// Fails if the listener is not open, or the hub is gone.
pub fn flight_url(stream: &UnixStream) -> Result<FlightUrl, Failure> {
    send(stream, &FlightRequest { flight_address: true })?;
    let mut input = BufReader::new(stream);
    let mut body = vec![0; head(&mut input)?.bytes];
    input.read_exact(&mut body).map_err(|e| no_answer(&e))?;
    serde_json::from_slice(&body).map_err(|e| not_understood(&e))
}

/// Stores records of jobs in the hub at the other end of `stream`, which answers once they are durable.
///
/// # Errors
/// Fails if the hub refuses a record, cannot store it, or is gone.
pub fn store_jobs(stream: &UnixStream, request: &StoreRequest) -> Result<(), Failure> {
    send(stream, request)?;
    head(&mut BufReader::new(stream)).map(drop)
}

/// Stores a batch of records in the hub at the other end of `stream`, which answers once they are durable.
pub fn store_batch(stream: &UnixStream, batch: &SpooledBatch) -> Sent {
    let (mut refused, mut new, mut rest) = (None, 0, batch.records.as_slice());
    while !rest.is_empty() {
        let mut bytes = 0;
        let fitting = rest.iter().take_while(|(_, record)| {
            bytes += record.as_bytes().len();
            bytes <= REQUEST_BYTES
        });
        let (records, after) = rest.split_at(fitting.count().max(1));
        let answer = send(stream, &StoreRequest::of(batch, records))
            .and_then(|()| line(&mut BufReader::new(stream)));
        match answer {
            Err(failure) => return Sent::Later(failure.in_one_line()),
            Ok(Head { error: None, new: stored, .. }) => new += stored.unwrap_or_default(),
            Ok(Head { error: Some(why), refused: Some(_), .. }) => refused = refused.or(Some(why)),
            Ok(Head { error: Some(why), .. }) => return Sent::Later(why),
        }
        rest = after;
    }
    refused.map_or(Sent::Acknowledged { new }, Sent::Refused)
}

/// The changes of a standing question, as the hub sends them.
pub struct Changes {
    input: BufReader<UnixStream>,
    /// Maximum time for the rest of a message that has begun, and for the first message.
    timeout: Duration,
    has_answered: bool,
}

impl Changes {
    /// Asks a standing question to the hub at the other end of `stream`.
    ///
    /// # Errors
    /// Fails if the hub is gone.
    pub fn of(
        stream: UnixStream,
        sql: &str,
        every: Option<Duration>,
        deadline: Duration,
    ) -> Result<Self, Failure> {
        let request = Request {
            sql: sql.to_owned(),
            deadline_ms: milliseconds(deadline),
            standing: true,
            every_ms: every.map(milliseconds),
            ..Request::default()
        };
        send(&stream, &request)?;
        let timeout = answer_timeout(deadline).min(LONGEST);
        Ok(Self { input: BufReader::new(stream), timeout, has_answered: false })
    }

    /// Waits for the next change; `None` if there is none within `wait`.
    ///
    /// # Errors
    /// Fails if the hub refuses the statement, is gone, or has not sent its first answer in time.
    pub fn next(&mut self, wait: Option<Duration>) -> Result<Option<Change>, Failure> {
        let first = (!self.has_answered).then_some(self.timeout);
        let wait = wait.into_iter().chain(first).min();
        self.input.get_ref().set_read_timeout(wait).map_err(|e| no_answer(&e))?;
        match self.input.fill_buf() {
            Err(e) if is_late(&e) && self.has_answered => return Ok(None),
            Err(e) => return Err(no_answer(&e)),
            Ok([]) => return Err(gone()),
            Ok(_) => {}
        }
        // The rest of a message follows soon after its first byte.
        self.input.get_ref().set_read_timeout(Some(self.timeout)).map_err(|e| no_answer(&e))?;
        let head = head(&mut self.input)?;
        let (schema, new) = body(&mut self.input, head.bytes)?;
        let (_, gone) = body(&mut self.input, head.gone_bytes.unwrap_or_default())?;
        let gone =
            gone.into_iter().next().unwrap_or_else(|| RecordBatch::new_empty(schema.clone()));
        self.has_answered = true;
        Ok(Some(Change::new(schema, new, gone, head.rows.unwrap_or_default())))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn is_late(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn gone() -> Failure {
    Failure::new("the hub closed the connection")
}

fn no_answer(e: &io::Error) -> Failure {
    match e.kind() {
        _ if is_late(e) => Failure::new("the hub does not answer in time").hint(SILENT),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => gone(),
        _ => Failure::new("the hub does not answer").because(e),
    }
}

fn not_understood(e: &dyn std::error::Error) -> Failure {
    Failure::new("the hub's answer is not valid").because(e)
}

fn send(mut stream: &UnixStream, request: &impl Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(request).map_err(|e| not_understood(&e))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(|e| no_answer(&e))
}

/// Reads the head of an answer.
fn line(input: &mut impl BufRead) -> Result<Head, Failure> {
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(0) => Err(gone()),
        Ok(_) => serde_json::from_str(&line).map_err(|e| not_understood(&e)),
        Err(e) => Err(no_answer(&e)),
    }
}

/// Reads the head of an answer; a refusal is a failure.
fn head(input: &mut impl BufRead) -> Result<Head, Failure> {
    let mut head = line(input)?;
    let Some(error) = head.error.take() else { return Ok(head) };
    let failure = Failure::new(error);
    Err(match head.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    })
}

fn body(input: &mut impl Read, bytes: usize) -> Result<(SchemaRef, Vec<RecordBatch>), Failure> {
    let mut body = vec![0; bytes];
    input.read_exact(&mut body).map_err(|e| no_answer(&e))?;
    let reader = StreamReader::try_new(body.as_slice(), None).map_err(|e| not_understood(&e))?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, ArrowError>>().map_err(|e| not_understood(&e))?;
    Ok((schema, batches))
}
