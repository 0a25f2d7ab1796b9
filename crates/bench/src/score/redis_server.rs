//! A `redis-server` of our own, over a UNIX socket, and how it is asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::{Client, Cmd, Connection, ConnectionAddr, RedisResult, Value};

use crate::child::{Process, wait_for};
use skopos_term::Failure;

/// How long the server may take to answer first.
const START: Duration = Duration::from_secs(10);

/// The server, or why there is none.
#[derive(Debug)]
pub(crate) struct Redis(Result<Running, String>);

#[derive(Debug)]
struct Running {
    socket: PathBuf,
    _process: Process,
}

impl Redis {
    /// Starts a server whose files are in `dir`.
    pub(crate) fn start(dir: &Path) -> Self {
        Self(start(dir))
    }

    /// Where it listens; else the reason why it does not.
    pub(crate) fn socket(&self) -> Result<&Path, &str> {
        match &self.0 {
            Ok(running) => Ok(&running.socket),
            Err(reason) => Err(reason),
        }
    }
}

fn start(dir: &Path) -> Result<Running, String> {
    let socket = dir.join("redis.sock");
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
    command.arg("--unixsocket").arg(&socket).arg("--dir").arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process::start(&mut command).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "redis-server is not installed".to_owned(),
        _ => format!("redis-server cannot be started: {e}"),
    })?;
    let answers = || redis::cmd("PING").exec(&mut connect(&socket).ok()?).ok();
    wait_for(&mut process, START, answers).map_err(|why| format!("redis-server: {why}"))?;
    Ok(Running { socket, _process: process })
}

/// A connection to the server at `socket`.
pub(crate) fn connect(socket: &Path) -> RedisResult<Connection> {
    Client::open(ConnectionAddr::Unix(socket.into()))?.get_connection()
}

/// Appends `value` to the stream `key` as Apollo does: the server gives the time, and keeps about
/// as many entries as one of our rings.
pub(crate) fn xadd(key: &str, value: &[u8]) -> Cmd {
    let mut cmd = redis::cmd("XADD");
    cmd.arg(key).arg("MAXLEN").arg("~").arg(skopos_shm::DEFAULT_SLOTS).arg("*").arg("s").arg(value);
    cmd
}

/// How many entries were ever added to the stream `key`.
pub(crate) fn entries_added(connection: &mut Connection, key: &str) -> RedisResult<u64> {
    let info: HashMap<String, Value> =
        redis::cmd("XINFO").arg("STREAM").arg(key).query(connection)?;
    match info.get("entries-added") {
        Some(Value::Int(count)) => Ok(u64::try_from(*count).unwrap_or(0)),
        // Before version 7 the server did not count; without MAXLEN's help there is no telling.
        _ => Err((redis::ErrorKind::UnexpectedReturnType, "no entries-added").into()),
    }
}

/// The first entry in an answer of XREVRANGE or XRANGE, as `(id, first field's value)`.
pub(crate) fn entry(answer: &Value) -> Option<(&[u8], &[u8])> {
    let Value::Array(entries) = answer else { return None };
    fields(entries.first()?)
}

/// The last of them.
pub(crate) fn last_entry(answer: &Value) -> Option<(&[u8], &[u8])> {
    let Value::Array(entries) = answer else { return None };
    fields(entries.last()?)
}

fn fields(entry: &Value) -> Option<(&[u8], &[u8])> {
    let Value::Array(entry) = entry else { return None };
    let [Value::BulkString(id), Value::Array(fields)] = entry.as_slice() else { return None };
    let Value::BulkString(value) = fields.get(1)? else { return None };
    Some((id, value))
}

/// What a failed command makes of a measurement.
pub(crate) fn failed(e: redis::RedisError) -> Failure {
    Failure::new("redis-server did not do what it was asked").because(&e)
}
