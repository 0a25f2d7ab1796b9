//! The same graph in the way of Apollo's public code: a vertex is a Redis stream, and an insight is a
//! thread that reads its inputs from streams and writes its value to a stream. Apollo polls; here
//! Redis wakes the threads (XREAD BLOCK), which is faster.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, Value};
use serde::{Deserialize, Serialize};

use super::shape::{LIFE, Shape, beat};
use crate::clock::monotonic;
use crate::score::redis_server::{connect, failed, last_entry, xadd};
use crate::stats::Latencies;
use crate::worker::{Line, Role, Worker};
use skopos_term::Failure;

/// The insight at the top.
const TOP: &str = "dag-top";
/// The timeout of an XREAD.
const WAIT: Duration = Duration::from_millis(100);

/// Publishes facts and the insights over them into Redis.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RedisDag {
    socket: PathBuf,
    shape: Shape,
}

impl Role for RedisDag {
    const NAME: &'static str = "dag_redis";

    fn work(self, line: &Line) -> Result<(), Failure> {
        let mut connection = connect(&self.socket).map_err(failed)?;
        let mut below: Vec<String> = (0..self.shape.facts).map(|n| format!("dag-f{n}")).collect();
        let facts = below.clone();
        for layer in 1..=self.shape.layers {
            let top = layer == self.shape.layers;
            let own = if top { TOP.to_owned() } else { format!("dag-l{layer}") };
            let mut insight = Streams::new(&self.socket, below).map_err(failed)?;
            below = vec![own.clone()];
            let mut out = connect(&self.socket).map_err(failed)?;
            // The thread ends with this process.
            std::thread::spawn(move || {
                while let Ok(found) = insight.next() {
                    if found
                        && xadd(&own, &insight.greatest().to_le_bytes()).exec(&mut out).is_err()
                    {
                        break;
                    }
                }
            });
        }
        line.send(&())?;
        let changing = if self.shape.all_change { self.shape.facts } else { 1 };
        beat(|round| {
            let now = monotonic();
            let mut pipe = redis::pipe();
            // The time comes last, so that readers see it after all other facts.
            for (place, key) in facts[..changing].iter().enumerate().rev() {
                let value = if place == 0 { now } else { round };
                pipe.add_command(xadd(key, &value.to_le_bytes())).ignore();
            }
            pipe.exec(&mut connection).map_err(failed)
        })
    }
}

/// Streams that are read together, and the latest value of each.
struct Streams {
    connection: Connection,
    keys: Vec<String>,
    last: Vec<Vec<u8>>,
    values: Vec<u64>,
}

impl Streams {
    fn new(socket: &Path, keys: Vec<String>) -> RedisResult<Self> {
        let (last, values) = (vec![b"0-0".to_vec(); keys.len()], vec![0; keys.len()]);
        Ok(Self { connection: connect(socket)?, keys, last, values })
    }

    /// Waits a while for new entries; true if there are any.
    fn next(&mut self) -> RedisResult<bool> {
        let mut ask = redis::cmd("XREAD");
        // All new entries arrive; only the latest of a stream is used.
        ask.arg("BLOCK").arg(WAIT.as_millis() as u64).arg("STREAMS");
        ask.arg(&self.keys).arg(&self.last);
        let answer: Value = ask.query(&mut self.connection)?;
        let Value::Array(streams) = &answer else { return Ok(false) };
        // The answer has the streams with new entries, in the order of the request.
        let mut place = 0;
        for stream in streams {
            let Value::Array(stream) = stream else { continue };
            let [Value::BulkString(key), entries] = stream.as_slice() else { continue };
            while self.keys.get(place).is_some_and(|other| other.as_bytes() != key.as_slice()) {
                place += 1;
            }
            if let (Some((id, value)), true) = (last_entry(entries), place < self.keys.len()) {
                self.last[place] = id.to_vec();
                self.values[place] = value.try_into().map_or(0, u64::from_le_bytes);
            }
        }
        Ok(!streams.is_empty())
    }

    fn greatest(&self) -> u64 {
        self.values.iter().copied().max().unwrap_or(0)
    }
}

/// Measures for `slice` with a reader that is woken.
pub(super) fn measure(
    socket: &Path,
    shape: Shape,
    slice: Duration,
    into: &mut Latencies,
) -> Result<(), Failure> {
    let mut connection = connect(socket).map_err(failed)?;
    redis::cmd("FLUSHALL").exec(&mut connection).map_err(failed)?;
    let task = RedisDag { socket: socket.into(), shape };
    let mut worker = Worker::start(&task)?;
    let _: () = worker.receive()?;
    let mut top = Streams::new(socket, vec![TOP.to_owned()]).map_err(failed)?;
    let begun = Instant::now();
    let mut last = 0;
    while begun.elapsed() < slice {
        let found = top.next().map_err(failed)?;
        let (now, then) = (monotonic(), top.greatest());
        if found && then > last {
            // The first value may have waited for this reader.
            if last > 0 {
                into.record(now.saturating_sub(then));
            }
            last = then;
        }
        if begun.elapsed() > LIFE || !worker.runs() {
            return Err(Failure::new("the publisher ended"));
        }
    }
    Ok(())
}
