//! The agent's end of the control socket: each connection has a single request, and the number and the life of
//! connections are bounded.

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

/// Largest number of connections: more than a user needs, and few enough to check on every wake.
const MAX_CONNECTIONS: usize = 32;
/// Timeout of a connection that does not send its request.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest path of a UNIX socket: `sun_path` of unix(7) without its final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Checks that the path of the socket in `dir` is not too long.
pub(crate) fn check_path(dir: &Path) -> Result<(), Failure> {
    let len = socket_path(dir).as_os_str().len();
    if len <= MAX_SOCKET_PATH_BYTES {
        return Ok(());
    }
    Err(Failure::new(format!("the path of {} is too long for a socket in it", dir.display())).hint(
        format!(
            "a directory's path may have {} bytes",
            MAX_SOCKET_PATH_BYTES - (len - dir.as_os_str().len())
        ),
    ))
}

/// The socket and its connections.
pub(crate) struct Server {
    path: PathBuf,
    /// Device and inode of the socket: another agent's socket may replace it at its path.
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
    /// Listens in `dir`. The caller holds the agent's segment there, so a socket that exists belongs to a dead
    /// agent.
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

    /// Returns the largest number of descriptors that [`add_to`](Self::add_to) adds.
    pub(crate) fn connections(&self) -> usize {
        1 + self.open.len()
    }

    /// Adds the listener and every connection to the descriptors of `poll(2)`.
    pub(crate) fn add_to<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        // Without room, new connections wait in the kernel's queue and are not refused.
        if self.open.len() < MAX_CONNECTIONS {
            fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        }
        for connection in &self.open {
            fds.push(PollFd::from_borrowed_fd(connection.stream.as_fd(), PollFlags::IN));
        }
    }

    /// Accepts connections and reads complete requests, each with the token of its connection. An invalid
    /// request is returned as the answer that refuses it.
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
            // Room for the longest answer, with any default of the system; the kernel doubles the size for its
            // own data.
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

    /// Sends the answer and closes the connection.
    pub(crate) fn send(&mut self, token: u64, answer: &Answer, counts: &mut Counts) {
        let Some(at) = self.open.iter().position(|c| c.token == token) else { return };
        let mut connection = self.open.swap_remove(at);
        let line = line_of(answer).unwrap_or_else(|refusal| {
            counts.requests_refused += 1;
            refusal
        });
        // The answer fits the socket's buffer; a client that is gone or does not read loses it.
        if connection.stream.write_all(&line).is_err() {
            counts.requests_refused += 1;
        }
    }

    /// Hands a connection over to the caller, which answers it.
    pub(crate) fn hand_over(&mut self, token: u64) -> Option<UnixStream> {
        let at = self.open.iter().position(|c| c.token == token)?;
        let stream = self.open.swap_remove(at).stream;
        stream.set_nonblocking(false).ok()?;
        Some(stream)
    }

    /// Returns the time until the next connection reaches its timeout.
    pub(crate) fn patience_left(&self) -> Option<Duration> {
        let left = |c: &Connection| PATIENCE.saturating_sub(c.since.elapsed());
        self.open.iter().map(left).min()
    }

    /// Closes the connections that have reached their timeout.
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
    /// Reads the available bytes, up to the end of the line.
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

/// Encodes an answer as a line. If it is too long, the error is a line that refuses the request: a client must
/// not take a part for the whole.
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
        error: format!("the answer has {} bytes, and the limit is {MAX_ANSWER_BYTES}", whole.len()),
        hint: Some("ask for less, with a pattern".to_owned()),
    }))
}

fn parse(line: &[u8]) -> Result<Request, Answer> {
    serde_json::from_slice(line).map_err(|e| Answer::Refused {
        error: format!("the request is not valid: {e}"),
        hint: Some("use the `skopos` of the agent's version".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    #[test]
    fn an_answer_is_sent_whole_or_replaced_by_a_refusal() {
        let dir = tempfile::tempdir().expect("a directory");
        let longest = MAX_ANSWER_BYTES - r#"{"done":{"topic":""}}"#.len() - 1;
        for (length, comes) in [(longest, true), (longest + 1, false), (10 * longest, false)] {
            let mut server = Server::listen(dir.path()).expect("a socket");
            let client = UnixStream::connect(socket_path(dir.path())).expect("it listens");
            let mut counts = Counts::default();
            server.accept(&mut counts);
            // The client does not read while the server sends.
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
