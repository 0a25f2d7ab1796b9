//! `slurm`: jobs of Slurm that have processes on this node: the resources that each was given, and
//! the bytes that it reads and writes here.
//!
//! The steps on this node know which jobs are here (`scontrol listpids`); asking them costs the
//! controller nothing, however many nodes there are. The controller is asked only about jobs that
//! are here (`scontrol show job`): when a job is first seen, and then every [`POLLS_PER_QUESTION`]
//! polls. A job that has an allocation and no process here is not seen.
//!
//! Bytes are the sums over the job's processes on this node (`/proc/PID/io`), see [`account`].
//!
//! scontrol waits for a minute for a missing configuration, and without a limit for a controller
//! that does not answer. So it has a timeout, and after a failure it does not run for a while.

mod account;
mod listpids;
mod show_job;
mod shown;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use skopos_model::schema::Family;
use skopos_model::schema::slurm::{self, *};

use self::account::{Account, Process};
use self::listpids::{LocalJobs, MAX_JOBS};
use self::show_job::{Job, Unusable};
pub use self::shown::ShownJob;
use crate::instances::{Instance, Instances};
use crate::program::{Lingering, longest, run};
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// Jobs last for minutes to days, and asking takes a few milliseconds.
const INTERVAL: Duration = Duration::from_secs(10);

/// The timeout of scontrol. A controller that is alive and busy answers within Slurm's own timeout
/// (`MessageTimeout`), which is 10 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of polls between two questions about a known job, whose state and limit change
/// rarely.
const POLLS_PER_QUESTION: u64 = 3;

/// The most questions to the controller at one poll, so that a node full of small jobs does not
/// burden it.
const MAX_QUESTIONS: usize = 8;

/// The time of a poll besides its programs: reading the counts of processes, on a busy machine.
const MARGIN: Duration = Duration::from_secs(5);

/// The number of polls without scontrol after it failed to list jobs: a minute.
const POLLS_AFTER_FAILURE: u32 = 5;

/// The longest output of scontrol. A job array is shown with all its tasks, at 1.5 kB each.
const MAX_OUTPUT_BYTES: usize = 8 << 20;

pub(crate) struct Slurm {
    proc: PathBuf,
    scontrol: Scontrol,
    jobs: Instances<Account>,
    /// The poll at which the controller was last asked about each job.
    asked: BTreeMap<u32, u64>,
    polls: u64,
    /// Jobs whose properties could not be read, with the reason.
    unusable: BTreeMap<u32, String>,
    left_out: usize,
    /// The number of polls to leave out, and the reason.
    pause: u32,
    failure: String,
}

/// The program.
struct Scontrol {
    path: PathBuf,
    patience: Duration,
    lingering: Lingering,
}

impl Scontrol {
    /// Returns what it prints, whatever its exit status, which is also 1 for "no steps on this
    /// node".
    fn output(&mut self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        self.lingering.reap();
        let mut command = Command::new(&self.path);
        // It prints local times without their zone, in a format that users may change.
        command.args(arguments).env("TZ", "UTC0").env("LC_ALL", "C");
        command.env("SLURM_TIME_FORMAT", "standard");
        run(&mut command, self.patience, MAX_OUTPUT_BYTES, &mut self.lingering)
            .map(|ran| ran.output)
            .map_err(|e| format!("{} {}: {e}", self.path.display(), arguments.join(" ")))
    }

    fn list(&mut self) -> Result<LocalJobs, String> {
        let output = self.output(&["listpids"])?;
        listpids::parse(&output).ok_or_else(|| {
            let path = self.path.display();
            format!(
                "`{path} listpids` lists nothing; most often there is no slurm.conf, or slurmd, which \
                 fetches it, starts after the agent"
            )
        })
    }

    /// Returns `Err` if there was no answer at all.
    fn show(&mut self, job: u32) -> Result<Result<Job, Unusable>, String> {
        let output = self.output(&["-o", "-d", "show", "job", &job.to_string()])?;
        Ok(show_job::parse(&String::from_utf8_lossy(&output), job))
    }
}

impl Slurm {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let patience = root.patience.min(PATIENCE);
        let lingering = Lingering::default();
        let mut scontrol = Scontrol { path: root.scontrol.clone(), patience, lingering };
        scontrol.list().map_err(|e| Skip::new("slurm", e))?;
        Ok(Self {
            proc: root.proc.clone(),
            scontrol,
            jobs: Instances::new(&slurm::FAMILY, MAX_JOBS),
            asked: BTreeMap::new(),
            polls: 0,
            unusable: BTreeMap::new(),
            left_out: 0,
            pause: 0,
            failure: String::new(),
        })
    }

    /// Returns the jobs to ask about: first those that were never asked about, then those with the
    /// oldest answer.
    fn due(&self, listed: &LocalJobs) -> Vec<u32> {
        let since = |job: &u32| self.asked.get(job).map(|&asked| self.polls - asked);
        let is_due = |job: &&u32| since(job).is_none_or(|polls| polls >= POLLS_PER_QUESTION);
        let mut due: Vec<u32> = listed.jobs.keys().filter(is_due).copied().collect();
        due.sort_by_key(|job| self.asked.get(job).copied());
        due.truncate(MAX_QUESTIONS);
        due
    }

    /// Asks about the jobs that are due. Stops at the first question without an answer: the
    /// controller is down, and would not answer the others either.
    fn ask(&mut self, listed: &LocalJobs) -> BTreeMap<u32, Job> {
        self.asked.retain(|job, _| listed.jobs.contains_key(job));
        self.unusable.retain(|job, _| listed.jobs.contains_key(job));
        let mut shown = BTreeMap::new();
        for job in self.due(listed) {
            self.asked.insert(job, self.polls);
            match self.scontrol.show(job) {
                Ok(Ok(answer)) => {
                    self.unusable.remove(&job);
                    shown.insert(job, answer);
                }
                Ok(Err(unusable)) => drop(self.unusable.insert(job, unusable.to_string())),
                Err(failure) => {
                    self.unusable.insert(job, failure);
                    break;
                }
            }
        }
        shown
    }
}

impl Sensor for Slurm {
    fn family(&self) -> &'static Family {
        &slurm::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        self.polls += 1;
        if self.pause > 0 {
            self.pause -= 1;
            return Err(io::Error::other(self.failure.clone()));
        }
        let listed = self.scontrol.list().map_err(|failure| {
            self.pause = POLLS_AFTER_FAILURE;
            self.failure.clone_from(&failure);
            io::Error::other(failure)
        })?;
        let shown = self.ask(&listed);
        self.left_out = listed.left_out;
        self.jobs.begin();
        for (job, local) in &listed.jobs {
            let name = job.to_string();
            let Some(instance) = self.jobs.see(tick.sink, name.as_bytes(), Account::default) else {
                continue;
            };
            if let Some(shown) = shown.get(job) {
                set_job(instance, tick, shown);
            }
            let read = |&pid: &u32| Some((pid, Process::read(&self.proc, pid)?));
            let processes: BTreeMap<_, _> = local.pids.iter().filter_map(read).collect();
            instance.set(tick, &NODE_TASKS, local.tasks);
            instance.set(tick, &NODE_PROCESSES, processes.len() as u64);
            let [read, written, storage_read, storage_written] = instance.state.update(processes);
            instance.set(tick, &NODE_READ_BYTES_TOTAL, read);
            instance.set(tick, &NODE_WRITTEN_BYTES_TOTAL, written);
            instance.set(tick, &NODE_STORAGE_READ_BYTES_TOTAL, storage_read);
            instance.set(tick, &NODE_STORAGE_WRITTEN_BYTES_TOTAL, storage_written);
        }
        self.jobs.end(tick.sink);
        Ok(())
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn may_block(&self) -> bool {
        true
    }

    /// The list and each question may use up their timeout.
    fn patience(&self) -> Duration {
        longest(self.scontrol.patience) * (1 + MAX_QUESTIONS as u32) + MARGIN
    }

    fn skips(&self) -> Vec<Skip> {
        let mut skips = self.jobs.skips();
        skips.extend(self.unusable.iter().map(|(job, why)| Skip::new(format!("slurm/{job}"), why)));
        if self.left_out > 0 {
            let reason = format!("{} jobs and processes beyond the limits", self.left_out);
            skips.push(Skip::new("slurm/*", reason));
        }
        if !rustix::process::geteuid().is_root() {
            skips.push(Skip::new("slurm/*", "jobs of other users are shown to root only"));
        }
        skips
    }
}

fn set_job(instance: &mut Instance<Account>, tick: &mut Tick<'_>, shown: &Job) {
    instance.set_structured(tick, &STATE, &shown.state);
    instance.set_structured(tick, &USER, &shown.user);
    instance.set_structured(tick, &NAME, &shown.name);
    instance.set_structured(tick, &ALLOCATION, &shown.allocation);
    instance.set(tick, &NODES, shown.nodes);
    instance.set(tick, &CPUS, shown.cpus);
    if let Some(tasks) = shown.tasks {
        instance.set(tick, &TASKS, tasks);
    }
    if let Some(bytes) = shown.memory_bytes {
        instance.set(tick, &MEMORY_BYTES, bytes);
    }
    for (metric, seconds) in [
        (&START_SECONDS, shown.start_seconds),
        (&END_SECONDS, shown.end_seconds),
        (&TIME_LIMIT_SECONDS, shown.limit_seconds),
    ] {
        instance.set_or_unset(tick, metric, seconds);
    }
}
