//! A hub with an HTTP listener, and a client that sees every byte of a response.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value as Json;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::support::{PATIENCE, Running, eventually, runtime_dir};

/// A node and its hub, whose HTTP listener has a port of its own.
pub(crate) struct Up {
    pub(crate) agent: Running,
    pub(crate) at: String,
}

/// A server-sent event.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: Json,
}

/// An HTTP response.
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}{}", self.head, String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }
}

impl Up {
    pub(crate) fn start() -> Self {
        Self::start_with(runtime_dir(), &[])
    }

    /// Starts them in a folder that may have files, with more options.
    pub(crate) fn start_with(dir: TempDir, extra: &[&str]) -> Self {
        let agent = Running::start_in(dir, "up", &[&["--http", "127.0.0.1:0"], extra].concat());
        let mut up = Self { agent, at: String::new() };
        // The kernel chose the port; `ss` shows it.
        let pid = up.agent.child.id().to_string();
        let listed = Command::new("ss").args(["-Hltnp"]).output().expect("ss(8)").stdout;
        let listed = String::from_utf8(listed).expect("UTF-8");
        let own = |line: &&str| line.contains(&format!("pid={pid},"));
        let line = listed.lines().find(own).unwrap_or_else(|| panic!("{pid}: {listed}"));
        up.at = line.split_whitespace().nth(3).expect("an address").to_owned();
        // The hub looks for new publishers once a second.
        eventually("the facts are known", || {
            up.get("/api/v1/get?topic=mem/total_bytes").status == 200
        });
        up
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    pub(crate) fn send(&self, request: &str) -> Got {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        answer(&mut BufReader::new(stream))
    }

    pub(crate) fn get(&self, path: &str) -> Got {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.at))
    }

    pub(crate) fn post(&self, kind: &str, more: &str, body: &str) -> Got {
        self.send(&post(&self.at, kind, more, body))
    }

    pub(crate) fn sql(&self, sql: &str) -> Got {
        self.post("application/sql", "", sql)
    }

    /// Collects the events of `path` until `enough` returns true.
    pub(crate) fn watch(
        &self,
        path: &str,
        mut enough: impl FnMut(&str, &Json) -> bool,
    ) -> Vec<(String, Json)> {
        let mut events = Vec::new();
        for Event { name, data, .. } in self.events(self.connect(), path, "") {
            let is_enough = enough(&name, &data);
            events.push((name, data));
            if is_enough {
                break;
            }
        }
        events
    }

    /// Requests the events of `path`, with the lines `more` in the request head.
    pub(crate) fn events(
        &self,
        mut stream: TcpStream,
        path: &str,
        more: &str,
    ) -> impl Iterator<Item = Event> + use<> {
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\n{more}\r\n", self.at).expect("sent");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
        let mut event = Event::default();
        std::iter::from_fn(move || {
            for line in lines.by_ref() {
                match line.split_once(": ") {
                    Some(("event", name)) => name.clone_into(&mut event.name),
                    Some(("id", id)) => id.clone_into(&mut event.id),
                    Some(("data", data)) => {
                        event.data = serde_json::from_str(data).expect("JSON");
                        return Some(std::mem::take(&mut event));
                    }
                    _ => assert!(!line.starts_with("HTTP/") || line == "HTTP/1.1 200 OK", "{line}"),
                }
            }
            None
        })
    }

    /// Opens a connection with a small receive buffer.
    pub(crate) fn narrow(&self) -> TcpStream {
        let at: SocketAddr = self.at.parse().expect("an address");
        let socket = narrow_socket(4096);
        socket.connect(&at.into()).expect("it listens");
        socket.into()
    }

    pub(crate) fn count(&self, listener: &str, what: &str) -> u64 {
        self.get("/healthz").json()["listeners"][listener][what].as_u64().expect("a number")
    }
}

pub(crate) fn post(at: &str, kind: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /api/v1/sql HTTP/1.1\r\nhost: {at}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n{body}"
    )
}

pub(crate) fn answer(input: &mut impl std::io::BufRead) -> Got {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).expect("a line");
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {head}"));
    let mut body = Vec::new();
    input.read_to_end(&mut body).expect("a body");
    if head.to_lowercase().contains("transfer-encoding: chunked") {
        body = dechunked(&body);
    }
    Got { status, head, body }
}

/// Returns a socket whose receive buffer has `bytes`. The kernel keeps only some ten thousand bytes in
/// the send buffer of its peer: that limit follows from the packet size, and is millions of bytes with
/// the packets of the loopback device.
pub(crate) fn narrow_socket(bytes: usize) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(bytes).expect("a socket");
    socket.set_tcp_mss(1000).expect("a socket");
    socket
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a length");
        let length = std::str::from_utf8(&bytes[..end]).expect("a length");
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return whole;
        }
        whole.extend(&bytes[end + 2..end + 2 + length]);
        bytes = &bytes[end + 4 + length..];
    }
}

/// Statements that no machine answers within a test's timeout.
pub(crate) const ENDLESS: [&str; 3] = [
    "SELECT count(*) FROM generate_series(1, 1000000000000000)",
    "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 100000000) b WHERE a.value * b.value = 7",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
];

/// Waits until the query threads are idle: the engine, too, has stopped the statement of a client that
/// went away.
pub(crate) fn until_engine_rests(child: &Child) {
    let used = || -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("it runs");
        let stats =
            tasks.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("stat")).ok());
        // "123 (query) R …": the 14th and 15th words are the CPU times, in ticks of 10 ms.
        let of_engine = stats.filter_map(|stat| {
            let words: Vec<&str> = stat.split_once(" (query) ")?.1.split(' ').collect();
            Some(words[11].parse::<u64>().ok()? + words[12].parse::<u64>().ok()?)
        });
        of_engine.sum()
    };
    // Even on a busy machine, a thread that computes gets a tick within a second.
    eventually("the engine rests", || {
        let before = used();
        std::thread::sleep(Duration::from_secs(1));
        used() == before
    });
}
