//! A private `redis-server` over a UNIX socket, and its commands.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::{Client, Cmd, Connection, ConnectionAddr, RedisResult, Value};

use crate::child::{Process, wait_for};
use skopos_term::Failure;

/// The longest time until the first answer of the server.
const START: Duration = Duration::from_secs(10);

/// The server, or the reason why it does not run.
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

    /// The path of its socket, or the reason why it does not run.
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

/// Number of entries that were ever added to the stream `key`.
pub(crate) fn entries_added(connection: &mut Connection, key: &str) -> RedisResult<u64> {
    let info: HashMap<String, Value> =
        redis::cmd("XINFO").arg("STREAM").arg(key).query(connection)?;
    match info.get("entries-added") {
        Some(Value::Int(count)) => Ok(u64::try_from(*count).unwrap_or(0)),
        // Before version 7 the server did not count them.
        _ => Err((redis::ErrorKind::UnexpectedReturnType, "no entries-added").into()),
    }
}

/// The first entry in an answer of XREVRANGE or XRANGE, as `(id, first field's value)`.
pub(crate) fn entry(answer: &Value) -> Option<(&[u8], &[u8])> {
    let Value::Array(entries) = answer else { return None };
    fields(entries.first()?)
}

/// The last entry in such an answer.
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

/// The failure of a measurement whose command failed.
pub(crate) fn failed(e: redis::RedisError) -> Failure {
    Failure::new("redis-server refused a command").because(&e)
}
