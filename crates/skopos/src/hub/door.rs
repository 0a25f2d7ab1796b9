//! The hub's UNIX socket: one line of JSON asks, one line and an Arrow stream answer; then the next.
//!
//! ```text
//! → {"sql":"SELECT …","rows":1000000,"deadline_ms":30000}\n
//! ← {"way":"point","bytes":1234}\n  and 1,234 bytes of an Arrow IPC stream
//! ← {"way":"planned","missing":["n07"],"bytes":1234}\n  and the stream; n07 did not answer
//! ← {"error":"there is no table `lates`","hint":"did you mean `latest`?","bytes":0}\n
//! ```

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};
use skopos_query::arrow::error::ArrowError;
use skopos_query::arrow::ipc::reader::StreamReader;
use skopos_query::arrow::ipc::writer::StreamWriter;
use skopos_query::{Answer, Engine, Limits, MAX_SQL_BYTES, Way};

use crate::failure::Failure;

/// Connections at one time. Each has a thread, which sleeps in a read.
const MAX_CONNECTIONS: usize = 256;

/// The longest request: a statement, each byte of which JSON may need six for, and what stands around.
const MAX_REQUEST_BYTES: u64 = 6 * MAX_SQL_BYTES as u64 + 1024;

/// Where the hub of a runtime directory listens.
pub(crate) fn socket_path(dir: &Path) -> PathBuf {
    dir.join("hub.sock")
}

#[derive(Deserialize, Serialize)]
struct Request {
    sql: String,
    rows: usize,
    deadline_ms: u64,
}

/// The line before an answer.
#[derive(Default, Deserialize, Serialize)]
struct Head {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    way: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Nodes without whose history the answer is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    bytes: usize,
}

/// The socket, open until it is dropped.
pub(crate) struct Door {
    path: PathBuf,
}

impl Door {
    /// Listens in `dir` and answers with `engine`.
    ///
    /// # Errors
    /// Another hub listens there; the socket cannot be made.
    pub(crate) fn open(
        dir: &Path,
        engine: Arc<Engine>,
        runtime: tokio::runtime::Handle,
    ) -> Result<Self, Failure> {
        let path = socket_path(dir);
        let failed =
            |e: &io::Error| Failure::new(format!("cannot listen at {}", path.display())).because(e);
        if UnixStream::connect(&path).is_ok() {
            return Err(Failure::new(format!("a hub listens at {} already", path.display())));
        }
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&e)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(|e| failed(&e))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(|e| failed(&e))?;
        let open = Arc::new(AtomicUsize::new(0));
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let (engine, runtime, open) = (engine.clone(), runtime.clone(), open.clone());
                if !is_allowed(&stream) || open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                    continue;
                }
                let serve = move || {
                    // Whoever went away gets no answer.
                    let _ = serve(&stream, &engine, &runtime);
                    open.fetch_sub(1, Ordering::Relaxed);
                };
                let _ = std::thread::Builder::new().name("door".to_owned()).spawn(serve);
            }
        };
        let thread = std::thread::Builder::new().name("door".to_owned()).spawn(accept);
        thread.map_err(|e| Failure::new("no thread can be started").because(&e))?;
        Ok(Self { path })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The thread that accepts goes with the process.
        let _ = fs::remove_file(&self.path);
    }
}

/// The same user, or root.
fn is_allowed(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

fn serve(stream: &UnixStream, engine: &Engine, runtime: &tokio::runtime::Handle) -> io::Result<()> {
    let mut input = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input).take(MAX_REQUEST_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let (head, body) = answer(&line, engine, runtime);
        let mut reply = serde_json::to_vec(&Head { bytes: body.len(), ..head })?;
        reply.push(b'\n');
        reply.extend_from_slice(&body);
        (&mut &*stream).write_all(&reply)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
    }
}

fn answer(line: &[u8], engine: &Engine, runtime: &tokio::runtime::Handle) -> (Head, Vec<u8>) {
    let failed = |error: String, hint: Option<String>| {
        (Head { error: Some(error), hint, ..Head::default() }, Vec::new())
    };
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(e) => return failed(format!("not a request: {e}"), None),
    };
    let limits =
        Limits { deadline: Duration::from_millis(request.deadline_ms), rows: request.rows };
    match runtime.block_on(engine.query(&request.sql, &limits)) {
        Err(e) => failed(e.to_string(), e.hint()),
        Ok(answer) => match encode(&answer) {
            Ok(body) => {
                let way = if answer.way == Way::Point { "point" } else { "planned" };
                let (way, missing) = (way.to_owned(), answer.missing);
                (Head { way, missing, ..Head::default() }, body)
            }
            Err(e) => failed(e.to_string(), None),
        },
    }
}

fn encode(answer: &Answer) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &answer.schema)?;
    answer.batches.iter().try_for_each(|batch| writer.write(batch))?;
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

/// Asks the hub at the other end of `stream`.
///
/// # Errors
/// What the hub says; it is gone.
pub(crate) fn ask(stream: &UnixStream, sql: &str, limits: &Limits) -> Result<Answer, Failure> {
    let gone = |e: &dyn std::error::Error| Failure::new("the hub does not answer").because(e);
    let deadline_ms = u64::try_from(limits.deadline.as_millis()).unwrap_or(u64::MAX);
    let request = Request { sql: sql.to_owned(), rows: limits.rows, deadline_ms };
    let mut line = serde_json::to_vec(&request).map_err(|e| gone(&e))?;
    line.push(b'\n');
    (&mut &*stream).write_all(&line).map_err(|e| gone(&e))?;
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| gone(&e))?;
    let head: Head = serde_json::from_str(&line).map_err(|e| gone(&e))?;
    if let Some(error) = head.error {
        let failure = Failure::new(error);
        return Err(match head.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        });
    }
    let mut body = vec![0; head.bytes];
    input.read_exact(&mut body).map_err(|e| gone(&e))?;
    let reader = StreamReader::try_new(body.as_slice(), None).map_err(|e| gone(&e))?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|e| gone(&e))?;
    let way = if head.way == "point" { Way::Point } else { Way::Planned };
    Ok(Answer { schema, batches, way, missing: head.missing })
}
