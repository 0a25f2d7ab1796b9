//! `skopos bench agent`: what watching this machine once a second costs, beside collectd and PCP.
//!
//! All three run at the same time, sense comparable things at 1 s, and are measured from outside in
//! the same way: `/proc/PID/smaps_rollup` once a second, and `/proc/PID/task/*/schedstat`, whose
//! nanoseconds the scheduler counts itself, at both ends of the window.

mod usage;
mod polls;
mod collectd;
mod pcp;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use skopos_shm::{Host, Segment};

use super::Plan;
use super::child::{Process, wait_for};
use super::machine::Machine;
use super::report::{Better, Figure, Goal, Report, Row};
use super::scratch::Scratch;
use crate::failure::Failure;
use collectd::Collectd;
use pcp::Pcp;
use polls::Polls;
use usage::{Meter, Usage};

/// How long the agent may take to publish its first facts.
const START: Duration = Duration::from_secs(10);
/// Time between the first facts and the window: everybody has opened their files by then.
const SETTLE: Duration = Duration::from_secs(4);
/// Time between two looks at the memory of the processes.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest window: with fewer than two ticks in it there is no cost of a poll.
const SHORTEST: Duration = Duration::from_secs(2);
/// From a tick to the moments at which counters are read: halfway to the next one.
const OFF_TICK: Duration = Duration::from_millis(400);

/// A monitor that runs beside ours.
trait Peer {
    /// Its name in the rows.
    fn name(&self) -> &'static str;
    /// All of its processes, or why it does not run.
    fn pids(&mut self) -> Result<Vec<u32>, String>;
    /// How many values it wrote each second; asked once, at the end.
    fn values(&mut self) -> Result<usize, String>;
}

/// Runs all three for the window.
pub(crate) fn run(plan: &Plan) -> Result<Report, Failure> {
    let mut machine = Machine::this();
    machine.version("collectd", "collectd", &["-h"]);
    machine.version("pcp", "pcp", &["--version"]);
    let mut report = Report::new("agent", machine);
    let scratch = Scratch::new()?;
    let disk = Scratch::on_disk()?;
    let mut agent = Agent::start(scratch.dir("agent")?, &program(disk.path())?)?;
    let mut peers: [Box<dyn Peer>; 2] = [
        Box::new(Collectd::start(&scratch.dir("collectd")?)),
        Box::new(Pcp::start(&scratch.dir("pcp")?)),
    ];
    let window = plan.window.max(SHORTEST);
    plan.say(&format!("measuring for {} s …", window.as_secs()));
    std::thread::sleep(SETTLE.min(window));
    wait_between_ticks(&agent.segment)?;
    let polls = Polls::start(&agent.segment)?;
    let mut meters: Vec<Meter> = vec![Meter::start(vec![agent.process.pid()])];
    meters.extend(peers.iter_mut().map(|peer| Meter::of(peer.pids())));
    let started = Instant::now();
    while started.elapsed() < window {
        std::thread::sleep(LOOK.min(window.saturating_sub(started.elapsed())));
        meters.iter_mut().for_each(Meter::look);
    }
    let usages: Vec<Result<Usage, String>> = meters.into_iter().map(Meter::stop).collect();
    let polls = polls.stop()?;
    if !agent.process.runs() {
        return Err(Failure::new("the agent ended while it was measured"));
    }
    let facts = agent.segment.vertices().len();
    let ours = usages[0].clone().map_err(Failure::new)?;
    let beside: Vec<Beside> = peers
        .iter_mut()
        .zip(&usages[1..])
        .map(|(peer, usage)| Beside::new(peer.as_mut(), usage))
        .collect();
    report.add(rows(&ours, facts, &beside));
    report.add(polls.rows());
    notes(window, &mut report);
    Ok(report)
}

fn notes(window: Duration, report: &mut Report) {
    report.note(format!(
        "window of {} s, everybody at 1 s and at the same time; processor time from \
         /proc/PID/task/*/schedstat (ns, of all processes of each), memory from smaps_rollup once a \
         second, the largest",
        window.as_secs()
    ));
    report.note(
        "facts: every topic of ours; values in collectd's CSV files; values in PCP's archive. \
         pcp is pmcd, its two agents and pmlogger together",
    );
    report.note(
        "sensors: processor time of their polls, from the agent's own poll_cpu_seconds_total and \
         polls_total over the window",
    );
}

/// A copy of this binary in `dir`. Were the agent run from the same file as its benchmark, half of
/// its text would count as the benchmark's in PSS.
fn program(dir: &Path) -> Result<PathBuf, Failure> {
    let copy = dir.join("skopos");
    std::env::current_exe()
        .and_then(|own| std::fs::copy(own, &copy))
        .map_err(|e| Failure::new(format!("cannot copy to {}", copy.display())).because(&e))?;
    Ok(copy)
}

/// The agent: a copy of this binary.
struct Agent {
    process: Process,
    segment: Segment,
}

impl Agent {
    fn start(dir: PathBuf, program: &Path) -> Result<Self, Failure> {
        let broken = |e: std::io::Error| Failure::new("cannot start the agent").because(&e);
        let log = dir.with_extension("log");
        let mut command = Command::new(program);
        command.args(["agent", "--interval", "1s", "--dir"]).arg(&dir);
        command.env_remove(skopos_shm::DIR_VARIABLE);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log).map_err(broken)?);
        let mut process = Process::start(&mut command).map_err(broken)?;
        let segment = wait_for(&mut process, START, || published(&dir)).map_err(|why| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            Failure::new(format!("the agent does not publish: {why}")).hint(said.trim())
        })?;
        Ok(Self { process, segment })
    }
}

/// The agent's segment, once it has facts of its own.
fn published(dir: &Path) -> Option<Segment> {
    let host = Host::open_dirs(vec![dir.into()]).ok()?;
    let segment = host.segments().first()?;
    Polls::start(segment).is_ok().then(|| segment.clone())
}

/// Waits for the next tick, and then for half of the time to the one after it.
fn wait_between_ticks(segment: &Segment) -> Result<(), Failure> {
    let mut ticks = Polls::any(segment)?.subscribe();
    ticks.next_timeout(START)?;
    std::thread::sleep(OFF_TICK);
    Ok(())
}

/// A peer's numbers.
struct Beside {
    name: &'static str,
    usage: Result<Usage, String>,
    values: Result<usize, String>,
}

impl Beside {
    fn new(peer: &mut dyn Peer, usage: &Result<Usage, String>) -> Self {
        let values = usage.clone().and_then(|_| peer.values());
        Self { name: peer.name(), usage: usage.clone(), values }
    }

    fn figure(&self, of: impl Fn(&Usage) -> f64) -> Figure {
        match &self.usage {
            Ok(usage) => Figure::Known(of(usage)),
            Err(reason) => Figure::Unknown(reason.clone()),
        }
    }

    fn values(&self, of: impl Fn(&Usage, f64) -> f64) -> Figure {
        match (&self.usage, &self.values) {
            (Ok(usage), Ok(values)) => Figure::Known(of(usage, *values as f64)),
            (Err(reason), _) | (_, Err(reason)) => Figure::Unknown(reason.clone()),
        }
    }
}

fn rows(ours: &Usage, facts: usize, beside: &[Beside]) -> Vec<Row> {
    let case = "agent, 1 Hz";
    let facts = facts as f64;
    let with = |row: Row, figure: &dyn Fn(&Beside) -> Figure| {
        beside.iter().fold(row, |row, peer| row.peer(peer.name, figure(peer)))
    };
    let row = |metric: &str, unit, value, better| Row::new(case, metric, unit, value, better);
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let each = |usage: &Usage, values: f64| usage.cpu_seconds_per_second / values * 1e6;
    vec![
        with(row("resident memory", "MB", megabytes(ours.rss_bytes), Better::Lower), &|peer| {
            peer.figure(|usage| megabytes(usage.rss_bytes))
        })
        .goal(Goal::AtMost(8.0)),
        with(
            row("its share of it (PSS)", "MB", megabytes(ours.pss_bytes), Better::Lower),
            &|peer| peer.figure(|usage| megabytes(usage.pss_bytes)),
        ),
        with(
            row("processor", "% of a core", ours.cpu_seconds_per_second * 100.0, Better::Lower),
            &|peer| peer.figure(|usage| usage.cpu_seconds_per_second * 100.0),
        )
        .goal(Goal::AtMost(0.05)),
        with(row("facts", "", facts, Better::Neither), &|peer| peer.values(|_, values| values)),
        with(row("processor, each fact", "µs", each(ours, facts), Better::Lower), &|peer| {
            peer.values(each)
        }),
    ]
}
