//! Who asks a hub through its UNIX socket: `skopos sql`, `skopos watch --sql` and `skopos get`.
//!
//! A hub that is not there is none. One that is there and does not answer is told of: what this machine
//! publishes is not what was asked for.

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

use crate::Change;
use crate::messages::{GetRequest, Head, Request, socket_path};
use skopos_term::Failure;

/// What a hub may need beside the time of a question: to wake up, to look for those who answer it, and to
/// write the answer. It gives a question up by itself when its time is over, and says so.
const GRACE: Duration = Duration::from_secs(5);

/// The longest wait for a hub. More than the kernel can be told is as good as for ever.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// What to do about a hub that says nothing.
const SILENT: &str = "it may be stopped, or have too much to do; `skopos get` and `skopos top` show what this machine \
     publishes without it";

/// The hub of a runtime directory; `None` if there is none. Nothing that is read from it or written to it
/// takes longer than `patience`.
///
/// # Errors
/// There is its socket, and it cannot be asked.
pub fn reach(dir: &Path, patience: Duration) -> Result<Option<UnixStream>, Failure> {
    let path = socket_path(dir);
    let opened = || {
        let address = SocketAddrUnix::new(&path)?;
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        // A hub that stands still takes nobody in, and once as many wait as may it would hold up this call.
        for direction in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, direction, Some(patience.min(LONGEST)))?;
        }
        connect(&socket, &address)?;
        Ok(UnixStream::from(socket))
    };
    let at = path.display();
    match opened() {
        Ok(stream) => Ok(Some(stream)),
        // Where a name is too long for a socket there is none either.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Ok(None),
        Err(Errno::CONNREFUSED) => Err(Failure::new(format!("the hub of {at} is dead"))
            .hint("start it again with `skopos hub`, or remove that file")),
        Err(Errno::ACCESS | Errno::PERM) => {
            Err(Failure::new(format!("this user may not ask the hub of {at}"))
                .hint("ask as the user whose hub it is, or as root, or through its HTTP door"))
        }
        Err(Errno::AGAIN) => Err(no_answer(&Errno::AGAIN.into())),
        Err(e) => Err(Failure::new(format!("the hub of {at} cannot be asked")).because(&e)),
    }
}

/// How long a hub may take for a question that has `deadline`.
pub fn patience(deadline: Duration) -> Duration {
    deadline.saturating_add(GRACE)
}

/// The hub of a runtime directory, asked one question after the other.
pub struct Client {
    dir: PathBuf,
    limits: Limits,
    stream: RefCell<Option<UnixStream>>,
}

impl Client {
    /// `None` if there is no hub.
    ///
    /// # Errors
    /// There is one, and it cannot be asked.
    pub fn open(dir: &Path, limits: Limits) -> Result<Option<Self>, Failure> {
        let stream = reach(dir, patience(limits.deadline))?;
        let of = |stream| Self { dir: dir.to_owned(), limits, stream: RefCell::new(Some(stream)) };
        Ok(stream.map(of))
    }

    /// Asks.
    ///
    /// # Errors
    /// What the hub says; it is gone, or does not answer in time.
    pub fn ask(&self, sql: &str) -> Result<Answer, Failure> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => reach(&self.dir, patience(self.limits.deadline))?.ok_or_else(gone)?,
        };
        let answer = ask(&stream, sql, &self.limits)?;
        // After a failure the next question has a connection of its own: on this one the answer to the
        // question before may come yet.
        self.stream.replace(Some(stream));
        Ok(answer)
    }
}

/// Asks the hub at the other end of `stream`.
///
/// # Errors
/// What the hub says; it is gone.
pub fn ask(stream: &UnixStream, sql: &str, limits: &Limits) -> Result<Answer, Failure> {
    let deadline_ms = milliseconds(limits.deadline);
    let request =
        Request { sql: sql.to_owned(), rows: limits.rows, deadline_ms, ..Request::default() };
    send(stream, &request)?;
    let mut input = BufReader::new(stream);
    let head = head(&mut input)?;
    let (schema, batches) = body(&mut input, head.bytes)?;
    let way = if head.way == "point" { Way::Point } else { Way::Planned };
    Ok(Answer { schema, batches, way, missing: head.missing })
}

/// Asks the hub at the other end of `stream` for latest values: the document that `GET /api/v1/get`
/// answers with.
///
/// # Errors
/// What the hub says, which is a no; it is gone.
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

/// What a hub tells of a question that stands.
pub struct Changes {
    input: BufReader<UnixStream>,
    /// How long one message may take that has begun, and the first one at all.
    patience: Duration,
    has_answered: bool,
}

impl Changes {
    /// Asks the hub at the other end of `stream`.
    ///
    /// # Errors
    /// The hub is gone.
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
        let patience = patience(deadline).min(LONGEST);
        Ok(Self { input: BufReader::new(stream), patience, has_answered: false })
    }

    /// The next change; `None` if there is none within `patience`.
    ///
    /// # Errors
    /// What the hub says; it is gone, or has not even answered for the first time.
    pub fn next(&mut self, patience: Option<Duration>) -> Result<Option<Change>, Failure> {
        let first = (!self.has_answered).then_some(self.patience);
        let wait = patience.into_iter().chain(first).min();
        self.input.get_ref().set_read_timeout(wait).map_err(|e| no_answer(&e))?;
        match self.input.fill_buf() {
            Err(e) if is_late(&e) && self.has_answered => return Ok(None),
            Err(e) => return Err(no_answer(&e)),
            Ok([]) => return Err(gone()),
            Ok(_) => {}
        }
        // What has begun comes whole, and soon.
        self.input.get_ref().set_read_timeout(Some(self.patience)).map_err(|e| no_answer(&e))?;
        let head = head(&mut self.input)?;
        let (schema, new) = body(&mut self.input, head.bytes)?;
        let (_, gone) = body(&mut self.input, head.gone_bytes.unwrap_or_default())?;
        let gone =
            gone.into_iter().next().unwrap_or_else(|| RecordBatch::new_empty(schema.clone()));
        self.has_answered = true;
        Ok(Some(Change { schema, new, gone, rows: head.rows.unwrap_or_default() }))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn is_late(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn gone() -> Failure {
    Failure::new("the hub went away")
}

fn no_answer(e: &io::Error) -> Failure {
    match e.kind() {
        _ if is_late(e) => Failure::new("the hub does not answer in time").hint(SILENT),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => gone(),
        _ => Failure::new("the hub does not answer").because(e),
    }
}

fn not_understood(e: &dyn std::error::Error) -> Failure {
    Failure::new("what the hub answers is not understood").because(e)
}

fn send(mut stream: &UnixStream, request: &impl Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_vec(request).map_err(|e| not_understood(&e))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(|e| no_answer(&e))
}

/// The line before an answer.
fn line(input: &mut impl BufRead) -> Result<Head, Failure> {
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(0) => Err(gone()),
        Ok(_) => serde_json::from_str(&line).map_err(|e| not_understood(&e)),
        Err(e) => Err(no_answer(&e)),
    }
}

/// The line before an answer; a failure if the hub refuses.
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
