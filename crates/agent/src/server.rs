//! The agent's end of the control socket: one request a connection, few connections, short lives.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_peercred};

use crate::control::{Answer, MAX_ANSWER_BYTES, MAX_MESSAGE_BYTES, Request, socket_path};
use crate::sink::Counts;
use skopos_term::Failure;

/// Connections at one time: more than a user types, few enough to look through on every wake.
const MAX_CONNECTIONS: usize = 32;
/// How long a connection may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest path of a UNIX socket: `sun_path` of unix(7), less its final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Checks that a socket in `dir` can have a name at all.
pub(crate) fn check_path(dir: &Path) -> Result<(), Failure> {
    let len = socket_path(dir).as_os_str().len();
    if len <= MAX_SOCKET_PATH_BYTES {
        return Ok(());
    }
    Err(Failure::new(format!("the path of {} is too long for a socket in it", dir.display())).hint(
        format!("it may have {} bytes", MAX_SOCKET_PATH_BYTES - (len - dir.as_os_str().len())),
    ))
}

/// The socket and who is connected.
pub(crate) struct Server {
    path: PathBuf,
    /// Device and inode of the socket: somebody else's may be at its path one day.
    file: (u64, u64),
    listener: UnixListener,
    open: Vec<Connection>,
    next_token: u64,
}

struct Connection {
    token: u64,
    stream: UnixStream,
    received: Vec<u8>,
    since: Instant,
}

impl Server {
    /// Listens in `dir`. The caller holds the agent's segment there, so a socket that exists is a
    /// dead agent's.
    pub(crate) fn listen(dir: &Path) -> Result<Self, Failure> {
        let path = socket_path(dir);
        let failed =
            |e: io::Error| Failure::new(format!("cannot listen at {}", path.display())).because(&e);
        if let Err(e) = fs::remove_file(&path)
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(failed(e));
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let meta = fs::symlink_metadata(&path).map_err(failed)?;
        let file = (meta.dev(), meta.ino());
        Ok(Self { path, file, listener, open: Vec::new(), next_token: 0 })
    }

    /// How many descriptors [`add_to`](Self::add_to) adds.
    pub(crate) fn connections(&self) -> usize {
        1 + self.open.len()
    }

    /// Adds the listener and every connection to what is waited for.
    pub(crate) fn add_to<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        // Without room the others wait in the kernel's queue, and are not turned away.
        if self.open.len() < MAX_CONNECTIONS {
            fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        }
        for connection in &self.open {
            fds.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), PollFlags::IN));
        }
    }

    /// Takes new connections and whole requests; each request with a token to answer it by. A
    /// request that is none comes as the answer that says so.
    pub(crate) fn receive(&mut self, counts: &mut Counts) -> Vec<(u64, Result<Request, Answer>)> {
        self.accept(counts);
        let mut requests = Vec::new();
        let mut gone = Vec::new();
        for connection in &mut self.open {
            match connection.read() {
                Progress::Waiting => {}
                Progress::Request(line) => {
                    let request = parse(&line).inspect_err(|_| counts.requests_refused += 1);
                    requests.push((connection.token, request));
                }
                Progress::Gone => {
                    counts.requests_refused += 1;
                    gone.push(connection.token);
                }
            }
        }
        self.open.retain(|c| !gone.contains(&c.token));
        requests
    }

    fn accept(&mut self, counts: &mut Counts) {
        while self.open.len() < MAX_CONNECTIONS
            && let Ok((stream, _)) = self.listener.accept()
        {
            let own = rustix::process::geteuid();
            let allowed =
                socket_peercred(&stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root());
            // Room for the longest answer whatever the system's default is; the kernel doubles it
            // for what it keeps beside.
            let has_room = set_socket_send_buffer_size(&stream, MAX_ANSWER_BYTES).is_ok();
            if !allowed || !has_room || stream.set_nonblocking(true).is_err() {
                counts.requests_refused += 1;
                continue;
            }
            let token = self.next_token;
            self.next_token += 1;
            let since = Instant::now();
            self.open.push(Connection { token, stream, received: Vec::new(), since });
        }
    }

    /// Answers and hangs up.
    pub(crate) fn send(&mut self, token: u64, answer: &Answer, counts: &mut Counts) {
        let Some(at) = self.open.iter().position(|c| c.token == token) else { return };
        let mut connection = self.open.swap_remove(at);
        let line = line_of(answer).unwrap_or_else(|refusal| {
            counts.requests_refused += 1;
            refusal
        });
        // An answer fits a socket's buffer; a peer that has gone, or does not read, loses it.
        if connection.stream.write_all(&line).is_err() {
            counts.requests_refused += 1;
        }
    }

    /// Leaves a connection to somebody else, who answers it.
    pub(crate) fn hand_over(&mut self, token: u64) -> Option<UnixStream> {
        let at = self.open.iter().position(|c| c.token == token)?;
        let stream = self.open.swap_remove(at).stream;
        stream.set_nonblocking(false).ok()?;
        Some(stream)
    }

    /// When the next connection has said nothing for too long.
    pub(crate) fn patience_left(&self) -> Option<Duration> {
        let left = |c: &Connection| PATIENCE.saturating_sub(c.since.elapsed());
        self.open.iter().map(left).min()
    }

    /// Hangs up on those who do not say what they want.
    pub(crate) fn expire(&mut self, counts: &mut Counts) {
        let before = self.open.len();
        self.open.retain(|c| c.since.elapsed() < PATIENCE);
        counts.requests_refused += (before - self.open.len()) as u64;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let own = |meta: fs::Metadata| (meta.dev(), meta.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

enum Progress {
    Waiting,
    Request(Vec<u8>),
    Gone,
}

impl Connection {
    /// Reads what is there, up to the end of the line.
    fn read(&mut self) -> Progress {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Progress::Gone,
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Progress::Gone,
            }
            if self.received.contains(&b'\n') {
                break;
            }
            if self.received.len() > MAX_MESSAGE_BYTES {
                return Progress::Gone;
            }
        }
        match self.received.iter().position(|&b| b == b'\n') {
            Some(end) => Progress::Request(self.received[..end].to_vec()),
            None => Progress::Waiting,
        }
    }
}

/// The answer as it is sent. One that is too long comes as the error, which is a refusal that says
/// so: a reader must not take a part for the whole.
fn line_of(answer: &Answer) -> Result<Vec<u8>, Vec<u8>> {
    let line = |answer: &Answer| {
        let mut line = serde_json::to_vec(answer).unwrap_or_default();
        line.push(b'\n');
        line
    };
    let whole = line(answer);
    if whole.len() <= MAX_ANSWER_BYTES {
        return Ok(whole);
    }
    Err(line(&Answer::Refused {
        error: format!(
            "the answer has {} bytes, more than the {MAX_ANSWER_BYTES} that are sent at once",
            whole.len()
        ),
        hint: Some("ask for less, with a pattern".to_owned()),
    }))
}

fn parse(line: &[u8]) -> Result<Request, Answer> {
    serde_json::from_slice(line).map_err(|e| Answer::Refused {
        error: format!("the request is not understood: {e}"),
        hint: Some("use the `skopos` of the agent's version".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    #[test]
    fn an_answer_comes_whole_or_as_a_refusal_and_never_cut() {
        let dir = tempfile::tempdir().expect("a directory");
        let longest = MAX_ANSWER_BYTES - r#"{"done":{"topic":""}}"#.len() - 1;
        for (length, comes) in [(longest, true), (longest + 1, false), (10 * longest, false)] {
            let mut server = Server::listen(dir.path()).expect("a socket");
            let client = UnixStream::connect(socket_path(dir.path())).expect("it listens");
            let mut counts = Counts::default();
            server.accept(&mut counts);
            // Nobody reads while it is sent.
            server.send(0, &Answer::Done { topic: "x".repeat(length) }, &mut counts);
            let mut line = String::new();
            BufReader::new(client).read_line(&mut line).expect("text");
            assert!(line.ends_with('\n'), "{} bytes", line.len());
            match serde_json::from_str(&line).expect("a whole answer") {
                Answer::Done { topic } => assert!(comes && topic.len() == length, "{length}"),
                Answer::Refused { error, .. } => {
                    assert!(!comes && error.contains("131072"), "{length}: {error}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(counts.requests_refused, u64::from(!comes));
        }
    }
}
