//! The parts that the cases share.

use std::path::Path;

use skopos_model::{Topic, ValueType};
use skopos_shm::{Host, Publisher, Vertex, VertexSpec, VertexWriter};

use super::redis_server::Redis;
use crate::plan::Plan;
use crate::scratch::Scratch;
use crate::stats::Timer;
use crate::worker::{Role, Worker};
use skopos_term::Failure;

/// The name of Redis in the rows.
pub(crate) const REDIS: &str = "redis";

/// The inputs of every case.
pub(super) struct Bench<'a> {
    pub(super) plan: &'a Plan,
    pub(super) scratch: &'a Scratch,
    pub(super) redis: &'a Redis,
    pub(super) timer: Timer,
}

/// The topic of the cases with one vertex.
pub(super) fn topic() -> Topic {
    numbered(0)
}

/// The topic of vertex `index`.
pub(super) fn numbered(index: usize) -> Topic {
    let text = format!("bench/vertex/v{index}/value");
    text.parse().unwrap_or_else(|_| unreachable!("{text} is a topic"))
}

/// A publisher of `vertices` vertices in `dir`.
pub(super) fn publisher(
    dir: &Path,
    vertices: usize,
) -> Result<(Publisher, Vec<VertexWriter>), Failure> {
    let publisher = Publisher::builder("bench").dir(dir).create()?;
    let writers = (0..vertices)
        .map(|index| publisher.register(VertexSpec::new(numbered(index), ValueType::U64)))
        .collect::<Result<_, _>>()?;
    Ok((publisher, writers))
}

/// The first vertex of the publisher in `dir`.
pub(super) fn vertex(dir: &Path) -> Result<Vertex, Failure> {
    Ok(Host::open_dirs(vec![dir.into()])?.find(&topic())?)
}

/// Starts a worker and waits until it is ready.
pub(super) fn start<R: Role>(role: &R) -> Result<Worker, Failure> {
    let mut worker = Worker::start(role)?;
    let _: () = worker.receive()?;
    Ok(worker)
}
