//! `skopos-bench score`: samples in shared memory beside Redis Streams, the store of Apollo, beside a bare
//! seqlock, the least that a shared value can cost, and the blackboard of iceoryx2.

pub(crate) mod bench;
pub(crate) mod bare;
pub(crate) mod iceoryx;
pub(crate) mod latest;
pub(crate) mod publish;
pub(crate) mod subscribe;
pub(crate) mod memory;
pub(crate) mod redis_server;

use super::machine::Machine;
use super::report::Report;
use super::scratch::Scratch;
use super::stats::Timer;
use crate::plan::Plan;
use bench::Bench;
use redis_server::Redis;
use skopos_term::Failure;

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
    plan.say("beside a bare seqlock …");
    bare::measure(&bench, &mut report)?;
    plan.say("beside iceoryx2 …");
    iceoryx::measure(&bench, &mut report)?;
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
