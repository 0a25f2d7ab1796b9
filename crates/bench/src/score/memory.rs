//! A thousand vertices with full rings, and a thousand readers' cursors.
//!
//! For Skopos, the sum counts the blocks of the segment's files, and the growth of anonymous memory
//! (heap) in the publishing and in the reading process. For Redis, it is the growth of `used_memory`;
//! its readers' cursors, which live in the clients, are left out.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use skopos_shm::{DEFAULT_SLOTS, Host, Subscription};

use super::bench::{self, Bench, REDIS};
use super::redis_server::{connect, failed};
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::worker::{Line, Role, Worker};
use skopos_term::Failure;

const VERTICES: usize = 1000;

/// Publishes a ring full of samples into each of a thousand vertices.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Filler {
    dir: PathBuf,
}

/// Follows each of the thousand vertices.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cursors {
    dir: PathBuf,
}

impl Role for Filler {
    const NAME: &'static str = "memory_publisher";

    fn work(self, line: &Line) -> Result<(), Failure> {
        let before = anonymous()?;
        let (_publisher, writers) = bench::publisher(&self.dir, VERTICES)?;
        for value in 1..=u64::from(DEFAULT_SLOTS) {
            for writer in &writers {
                writer.publish(value)?;
            }
        }
        line.send(&anonymous()?.saturating_sub(before))?;
        line.wait();
        Ok(())
    }
}

impl Role for Cursors {
    const NAME: &'static str = "memory_reader";

    fn work(self, line: &Line) -> Result<(), Failure> {
        let before = anonymous()?;
        let host = Host::open_dirs(vec![self.dir])?;
        let mut cursors: Vec<Subscription> = Vec::new();
        for index in 0..VERTICES {
            cursors.push(host.find(&bench::numbered(index))?.subscribe_from_oldest());
        }
        let mut samples = 0;
        for cursor in &mut cursors {
            while cursor.try_next()?.is_some() {
                samples += 1;
            }
        }
        let expected = VERTICES * DEFAULT_SLOTS as usize;
        if samples != expected {
            return Err(Failure::new(format!("{samples} of {expected} samples read")));
        }
        line.send(&anonymous()?.saturating_sub(before))?;
        line.wait();
        Ok(())
    }
}

/// Bytes of this process's heap and stacks that are in memory.
fn anonymous() -> Result<u64, Failure> {
    let path = "/proc/self/smaps_rollup";
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::new(format!("cannot read {path}")).because(&e))?;
    text.lines()
        .find_map(|line| {
            line.strip_prefix("Anonymous:")?.trim().strip_suffix("kB")?.trim().parse().ok()
        })
        .map(|kib: u64| kib * 1024)
        .ok_or_else(|| Failure::new(format!("{path} has no line Anonymous")))
}

pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> Result<(), Failure> {
    let dir = bench.scratch.dir("memory")?;
    let mut publisher = Worker::start(&Filler { dir: dir.clone() })?;
    let publishing: u64 = publisher.receive()?;
    let mut reader = Worker::start(&Cursors { dir: dir.clone() })?;
    let reading: u64 = reader.receive()?;
    let files = file_blocks(&dir)?;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let figure = match bench.redis.socket() {
        Ok(socket) => Figure::Known(megabytes(redis_growth(socket).map_err(failed)?)),
        Err(reason) => Figure::Unknown(reason.to_owned()),
    };
    let all = megabytes(files + publishing + reading);
    let case = "memory, 1,000 vertices and 1,000 cursors";
    report.add([Row::new(case, "all of it", "MB", all, Better::Lower)
        .peer(REDIS, figure)
        .goal(Goal::AtMost(16.0))]);
    report.note(format!(
        "memory: rings of {DEFAULT_SLOTS} samples, all full; {:.2} MB are the segment's files, \
         {:.2} MB the publisher's heap, {:.2} MB the reader's with its cursors; Redis: growth of \
         used_memory, without its clients",
        megabytes(files),
        megabytes(publishing),
        megabytes(reading),
    ));
    Ok(())
}

/// The size of the blocks of the files in `dir`, whose file system is memory.
fn file_blocks(dir: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        bytes += entry?.metadata()?.blocks() * 512;
    }
    Ok(bytes)
}

/// The growth of `used_memory` by a thousand streams of as many entries.
fn redis_growth(socket: &Path) -> redis::RedisResult<u64> {
    let mut connection = connect(socket)?;
    redis::cmd("FLUSHALL").exec(&mut connection)?;
    let before = used_memory(&mut connection)?;
    for value in 1..=u128::from(DEFAULT_SLOTS) {
        let mut pipe = redis::Pipeline::with_capacity(VERTICES);
        for index in 0..VERTICES {
            let key = bench::numbered(index).to_string();
            pipe.cmd("XADD").arg(key).arg("*").arg("s").arg(&value.to_le_bytes()).ignore();
        }
        pipe.exec(&mut connection)?;
    }
    Ok(used_memory(&mut connection)?.saturating_sub(before))
}

fn used_memory(connection: &mut redis::Connection) -> redis::RedisResult<u64> {
    let info: String = redis::cmd("INFO").arg("memory").query(connection)?;
    info.lines()
        .find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok())
        .ok_or_else(|| (redis::ErrorKind::UnexpectedReturnType, "INFO has no used_memory").into())
}
