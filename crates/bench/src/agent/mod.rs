//! `skopos-bench agent`: the cost of the agent for this machine and its applications.
//!
//! `beside` measures the agent with a fixed interval of a second, at the same time as collectd and PCP.
//! `adaptive` measures the agent with all features on and intervals that follow the machine, while it
//! is idle and while it is busy. `slowdown` measures the slowdown of applications. All processes are
//! measured from outside in the same way: `/proc/PID/smaps_rollup` once a second, and
//! `/proc/PID/task/*/schedstat`, in which the scheduler counts nanoseconds, at both ends of a window.

pub(super) mod place;
pub(super) mod usage;
pub(super) mod window;
mod polls;
pub(super) mod watcher;
mod peer;
mod beside;
mod collectd;
mod pcp;
mod adaptive;
mod everything;
mod busy;
pub(crate) mod bursts;
mod application;
mod slowdown;
mod pairs;
mod fio;
mod mpi;

use super::machine::Machine;
use super::report::Report;
use crate::plan::Plan;
use place::Place;
use skopos_term::Failure;
use window::SHORTEST;

/// Runs all cases, one after the other.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("collectd", "collectd", &["-h"]);
    machine.version("pcp", "pcp", &["--version"]);
    machine.version("fio", "fio", &["--version"]);
    machine.version("mpi", "mpirun", &["--version"]);
    let mut report = Report::new("agent", machine);
    let place = Place::new()?;
    report.add(beside::run(plan, &place)?);
    report.add(adaptive::run(plan, &place)?);
    report.add(slowdown::run(plan, &place)?);
    notes(plan, &mut report);
    Ok(report)
}

fn notes(plan: &Plan, report: &mut Report) {
    let window = plan.window.max(SHORTEST).as_secs();
    report.note(format!(
        "windows of {window} s; processor time from /proc/PID/task/*/schedstat (ns, of all processes \
         of each), memory from smaps_rollup once a second, the largest. Programs that the agent runs \
         now and then (smartctl) are not in it"
    ));
    report.note(
        "agent, 1 Hz: a fixed second for all, at the same time. facts: every topic of ours; \
         values in collectd's CSV files; values in PCP's archive. pcp is pmcd, its two agents and \
         pmlogger together",
    );
    report.note(
        "cost of a poll: processor time from the agent's own poll_cpu_seconds_total and polls_total \
         over the window",
    );
    report.note(format!(
        "adaptive: policies as they come, insights in SQL, detectors on all of cpu and block, \
         predictions every second, and a peer (itself, over the loopback); {} s to settle. busy: \
         {}, and bursts of a whole processor",
        plan.settle.as_secs(),
        busy::WORDS
    ));
    report.note(
        "beside the agent: the same amount of work without the agent and with it, started anew and \
         with everything on, in the order ABBA. fio reads 4 KiB at random places of a file, past the \
         cache; the MPI program is bench/mpi/jacobi.c with two ranks. slowdown: (time with - time \
         without) / time without of each pair, the median, and the interval that holds the true \
         median 95 times in 100 (order statistics: no assumption about the noise). It is told from noise when that interval \
         is above 0. noise: how far two runs without the agent are apart, the median",
    );
}
