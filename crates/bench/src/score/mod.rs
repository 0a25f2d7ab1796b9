//! `skopos bench score`: samples in shared memory beside Redis Streams, on which Apollo stands.

pub(crate) mod latest;
pub(crate) mod publish;
pub(crate) mod subscribe;
pub(crate) mod memory;
pub(crate) mod redis_server;

use std::path::Path;

use skopos_model::{Topic, ValueType};
use skopos_shm::{Host, Publisher, Vertex, VertexSpec, VertexWriter};

use super::machine::Machine;
use super::report::Report;
use super::scratch::Scratch;
use super::stats::Timer;
use super::worker;
use crate::plan::Plan;
use redis_server::Redis;
use skopos_term::Failure;

/// The peer's name in the rows.
pub(crate) const REDIS: &str = "redis";

/// What every case needs.
struct Bench<'a> {
    plan: &'a Plan,
    scratch: &'a Scratch,
    redis: &'a Redis,
    timer: Timer,
}

/// Runs every case.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("redis-server", "redis-server", &["--version"]);
    let mut report = Report::new("score", machine);
    let scratch = Scratch::new()?;
    let redis = Redis::start(scratch.path());
    let bench = Bench { plan, scratch: &scratch, redis: &redis, timer: Timer::measure() };
    report.note(format!(
        "{} rounds, ours and Redis in turns; publishers are other processes; Redis over a UNIX \
         socket, without persistence",
        plan.rounds
    ));
    plan.say("latest value …");
    latest::measure(&bench, &mut report)?;
    plan.say("publish …");
    publish::measure(&bench, &mut report)?;
    plan.say("subscribe …");
    subscribe::measure(&bench, &mut report)?;
    plan.say("memory …");
    memory::measure(&bench, &mut report)?;
    Ok(report)
}

/// The vertex that the cases with one vertex use.
fn topic() -> Topic {
    numbered(0)
}

/// The topic of vertex `index`.
fn numbered(index: usize) -> Topic {
    let text = format!("bench/vertex/v{index}/value");
    text.parse().unwrap_or_else(|_| unreachable!("{text} is a topic"))
}

/// A publisher of `vertices` vertices in `dir`.
fn publisher(dir: &Path, vertices: usize) -> Result<(Publisher, Vec<VertexWriter>), Failure> {
    let publisher = Publisher::builder("bench").dir(dir).create()?;
    let writers = (0..vertices)
        .map(|index| publisher.register(VertexSpec::new(numbered(index), ValueType::U64)))
        .collect::<Result<_, _>>()?;
    Ok((publisher, writers))
}

/// The first vertex of the publisher in `dir`.
fn vertex(dir: &Path) -> Result<Vertex, Failure> {
    Ok(Host::open_dirs(vec![dir.into()])?.find(&topic())?)
}

/// Starts a worker and waits until it says that it is ready.
fn start(task: &worker::Task) -> Result<worker::Worker, Failure> {
    let mut worker = worker::Worker::start(task)?;
    let _: () = worker.hear()?;
    Ok(worker)
}
