//! The hub's UNIX socket: one line of JSON asks, one line and an Arrow stream answer; then the next.
//!
//! ```text
//! → {"sql":"SELECT …","rows":1000000,"deadline_ms":30000}\n
//! ← {"way":"point","bytes":1234}\n  and 1,234 bytes of an Arrow IPC stream
//! ← {"way":"planned","missing":["n07"],"bytes":1234}\n  and the stream; n07 did not answer
//! ← {"error":"there is no table `lates`","hint":"did you mean `latest`?","bytes":0}\n
//! ```
//! `{"get":["mem/*"],"max_age_ms":1000}` asks for latest values without SQL, which come as a JSON document.
//! With `"standing":true` there is an answer whenever the answer has changed, until whoever asked goes
//! away: rows that are new, and behind them `gone_bytes` of another stream, of those that are gone.
//!
//! Each connection has a thread. It answers point reads by itself, since to hand one over costs more
//! than to answer it. Whoever goes away while a question is computed is not answered, and it ends.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use skopos_query::{Answer, Error, Limits, MAX_SQL_BYTES, Way};
use tokio::runtime::Handle;

use skopos_hub::Inside;
use skopos_hub::counts::Counts;
use skopos_hub::messages::{GetRequest, Head, Request, socket_path};
use skopos_hub::pieces::arrow;
use skopos_hub::read::{Unread, read};
use skopos_hub::{Change, Standing};
use skopos_term::Failure;

/// Connections at one time. Each has a thread, which sleeps in a read.
const MAX_CONNECTIONS: u64 = 256;

/// The longest request: a statement, each byte of which JSON may need six for, and what stands around.
const MAX_REQUEST_BYTES: u64 = 6 * MAX_SQL_BYTES as u64 + 1024;

/// Topics and patterns that one request may ask for without SQL.
const MAX_GET_TOPICS: usize = 256;

/// What a connection keeps of its buffers between two answers. Most answers fit.
const KEPT_BYTES: usize = 64 * 1024;

/// The socket, open until it is dropped.
pub(crate) struct Door {
    path: PathBuf,
}

impl Door {
    /// Listens in `dir` and answers from `inside`.
    ///
    /// # Errors
    /// Another hub listens there; the socket cannot be made.
    pub(crate) fn open(
        dir: &Path,
        inside: Arc<Inside>,
        counts: Arc<Counts>,
        runtime: Handle,
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
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let connected = counts.connect(MAX_CONNECTIONS);
                let Some(connected) = connected.filter(|_| is_allowed(&stream)) else {
                    counts.turn_away();
                    continue;
                };
                let one = Connection {
                    stream,
                    inside: inside.clone(),
                    counts: counts.clone(),
                    runtime: runtime.clone(),
                };
                let serve = move || {
                    let _connected = connected;
                    // Whoever went away gets no answer.
                    let _ = one.serve();
                };
                if std::thread::Builder::new().name("door".to_owned()).spawn(serve).is_err() {
                    counts.turn_away();
                }
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

struct Connection {
    stream: UnixStream,
    inside: Arc<Inside>,
    counts: Arc<Counts>,
    runtime: Handle,
}

impl Connection {
    fn serve(&self) -> io::Result<()> {
        let mut input = BufReader::new(&self.stream);
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
            let head = match serde_json::from_slice::<Request>(&line) {
                Err(e) => match serde_json::from_slice::<GetRequest>(&line) {
                    Err(_) => Head::refusing(format!("not a request: {e}"), None),
                    Ok(request) => self.get(&request, &mut body)?,
                },
                Ok(request) if request.standing => return self.stand(request),
                Ok(request) => match self.answer(&request)? {
                    Err(e) => Head::refusing(e.to_string(), e.hint()),
                    Ok(answer) => match arrow(&answer.schema, &answer.batches, &mut body) {
                        Err(e) => Head::refusing(e.to_string(), None),
                        Ok(()) => {
                            let way = if answer.way == Way::Point { "point" } else { "planned" };
                            let (way, bytes) = (way.to_owned(), body.len());
                            Head { way, missing: answer.missing, bytes, ..Head::default() }
                        }
                    },
                },
            };
            if head.error.is_some() {
                self.counts.refuse();
                body.clear();
            }
            serde_json::to_writer(&mut reply, &head)?;
            reply.push(b'\n');
            reply.extend_from_slice(&body);
            (&self.stream).write_all(&reply)?;
            if line.last() != Some(&b'\n') {
                return Ok(());
            }
        }
    }

    /// Latest values. They may have to be measured, for which this thread waits.
    fn get(&self, request: &GetRequest, body: &mut Vec<u8>) -> io::Result<Head> {
        if request.get.len() > MAX_GET_TOPICS {
            let told = format!("{MAX_GET_TOPICS} topics can be asked for at most");
            return Ok(Head::refusing(told, None));
        }
        let max_age = request.max_age_ms.map(Duration::from_millis);
        match read(&self.inside, &request.get, max_age) {
            Ok(readings) => {
                serde_json::to_writer(&mut *body, &readings)?;
                Ok(Head { bytes: body.len(), ..Head::default() })
            }
            Err(Unread::Wrong(failure) | Unread::Nothing(failure)) => {
                let hint = failure.hint_text().map(str::to_owned);
                Ok(Head::refusing(failure.message().to_owned(), hint))
            }
        }
    }

    /// The outer error is that whoever asked is gone.
    fn answer(&self, request: &Request) -> io::Result<Result<Answer, Error>> {
        let engine = &self.inside.engine;
        if let Some(answer) = engine.point(&request.sql) {
            let is_short = answer.rows() <= request.rows;
            return Ok(if is_short { Ok(answer) } else { Err(Error::TooManyRows(request.rows)) });
        }
        let deadline = Duration::from_millis(request.deadline_ms);
        let limits = Limits { deadline, rows: request.rows };
        let (engine, sql) = (engine.clone(), request.sql.clone());
        let running = self.counts.run();
        self.until_gone(async move {
            let answer = engine.query(&sql, &limits).await;
            running.done();
            answer
        })
    }

    /// Answers whenever the answer has changed.
    fn stand(&self, request: Request) -> io::Result<()> {
        let _standing = self.counts.stand();
        self.tell_changes(request)
    }

    fn tell_changes(&self, request: Request) -> io::Result<()> {
        let every = request.every_ms.map(Duration::from_millis);
        let deadline = Duration::from_millis(request.deadline_ms);
        let (engine, news) = (self.inside.engine.clone(), self.inside.news());
        let begun = Standing::new(engine, request.sql, every, deadline, news);
        let mut standing = match self.until_gone(begun)? {
            Ok(standing) => standing,
            Err(e) => return self.refuse(&e),
        };
        loop {
            let next = async move {
                let change = standing.next().await;
                (standing, change)
            };
            let change;
            (standing, change) = self.until_gone(next)?;
            match change {
                // This waits for a slow reader, on a thread that has nothing else to do.
                Ok(change) => self.tell(&change)?,
                Err(e) => return self.refuse(&e),
            }
        }
    }

    /// What comes of `work`; an error as soon as nobody is at the other end, and then it ends.
    fn until_gone<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let done = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let rings = Rings(done.clone());
        let task = self.runtime.spawn(async move {
            let _rings = rings;
            work.await
        });
        // Without any event asked for, the end of what can be written is told: who has only said that
        // no more questions come still listens.
        let mut waited =
            [PollFd::new(&self.stream, PollFlags::empty()), PollFd::new(&*done, PollFlags::IN)];
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

    fn tell(&self, change: &Change) -> io::Result<()> {
        let (mut new, mut gone, mut reply) = (Vec::new(), Vec::new(), Vec::new());
        let encoded = arrow(&change.schema, &change.new, &mut new)
            .and_then(|()| arrow(&change.schema, [&change.gone], &mut gone));
        encoded.map_err(io::Error::other)?;
        let (bytes, gone_bytes, rows) = (new.len(), Some(gone.len()), Some(change.rows));
        serde_json::to_writer(&mut reply, &Head { bytes, gone_bytes, rows, ..Head::default() })?;
        reply.push(b'\n');
        reply.extend(new);
        reply.extend(gone);
        (&self.stream).write_all(&reply)
    }

    fn refuse(&self, error: &Error) -> io::Result<()> {
        self.counts.refuse();
        let mut reply = serde_json::to_vec(&Head::refusing(error.to_string(), error.hint()))?;
        reply.push(b'\n');
        (&self.stream).write_all(&reply)
    }
}

/// Wakes who polls, when it is dropped: also where what was done panics.
struct Rings(Arc<OwnedFd>);

impl Drop for Rings {
    fn drop(&mut self) {
        // It cannot be full.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}
