//! `skopos bench agent`: what watching this machine costs, it and its applications.
//!
//! `beside` is the agent at a fixed second, at the same time as collectd and PCP; `adaptive` the
//! agent with everything on and intervals that follow the machine, while that is idle and while it
//! is busy; `slowdown` what applications lose by it. Processes are measured from outside, all in the
//! same way: `/proc/PID/smaps_rollup` once a second, and `/proc/PID/task/*/schedstat`, whose
//! nanoseconds the scheduler counts itself, at both ends of a window.

pub(super) mod usage;
mod polls;
pub(super) mod watcher;
mod beside;
mod collectd;
mod pcp;
mod adaptive;
mod everything;
mod busy;
pub(crate) mod bursts;
mod slowdown;
mod pairs;
mod fio;
mod mpi;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::report::Report;
use super::scratch::Scratch;
use crate::plan::Plan;
use crate::programs;
use skopos_term::Failure;
use usage::Meter;

/// Time between two looks at the memory of the processes.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest window: with fewer than two ticks in it there is no cost of a poll.
const SHORTEST: Duration = Duration::from_secs(2);

/// Where everything of a run lies.
pub(super) struct Place {
    /// In memory: the agents' directories.
    pub(super) memory: Scratch,
    /// On disk: what is run, and what is read and written.
    disk: Scratch,
    /// A copy of the program. Were agents run from a file that other processes have mapped too, a part of
    /// their text would count as the other processes' in PSS.
    pub(super) program: PathBuf,
}

impl Place {
    pub(super) fn new() -> Result<Self, Failure> {
        let (memory, disk) = (Scratch::new()?, Scratch::on_disk()?);
        let program = disk.path().join("skopos");
        // `skopos agent` becomes `skopos-agent`, which has to lie beside it.
        for program in [programs::skopos()?, programs::agent()?] {
            let copy = disk.path().join(program.file_name().unwrap_or_default());
            std::fs::copy(&program, &copy).map_err(|e| {
                Failure::new(format!("cannot copy to {}", copy.display())).because(&e)
            })?;
        }
        Ok(Self { memory, disk, program })
    }
}

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

/// Looks at the memory of all until `window` is over.
pub(super) fn watch(meters: &mut [Meter], window: Duration) {
    let started = Instant::now();
    while started.elapsed() < window {
        std::thread::sleep(LOOK.min(window.saturating_sub(started.elapsed())));
        meters.iter_mut().for_each(Meter::look);
    }
}

fn notes(plan: &Plan, report: &mut Report) {
    let window = plan.window.max(SHORTEST).as_secs();
    report.note(format!(
        "windows of {window} s; processor time from /proc/PID/task/*/schedstat (ns, of all processes \
         of each), memory from smaps_rollup once a second, the largest. Programs that the agent runs \
         now and then (smartctl) are not in it"
    ));
    report.note(
        "agent, 1 Hz: a fixed second for everybody, at the same time. facts: every topic of ours; \
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
        busy::WHAT
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
