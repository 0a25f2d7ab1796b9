//! `slurm`: jobs of Slurm that have processes on this node: what they were given, and what they read
//! and write here.
//!
//! Which jobs are here is asked of the steps on this node (`scontrol listpids`), which costs the
//! controller nothing however many nodes there are; only jobs that are here are asked of it, each
//! when it is first seen and then every [`POLLS_PER_QUESTION`] polls (`scontrol show job`). A job that
//! has an allocation and runs nothing here is not seen.
//!
//! Bytes are the sums over the job's processes on this node (`/proc/PID/io`), see [`account`].
//!
//! scontrol waits for a minute for a missing configuration and as long as it takes for a controller
//! that does not answer; so it has a deadline, and after a failure it is left alone for a while.

mod account;
mod listed;
mod shown;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use skopos_model::schema::Family;
use skopos_model::schema::slurm::{self, *};

use self::account::{Account, Process};
use self::listed::{Listed, MAX_JOBS};
use self::shown::{Odd, Shown};
use crate::instances::{Instance, Instances};
use crate::program::{Lingering, longest, run};
use crate::{Root, Sensor, Skip, Tick};

/// Jobs last for minutes to days, and asking costs a few milliseconds.
const INTERVAL: Duration = Duration::from_secs(10);

/// The longest that scontrol may take. A controller that is alive and busy answers within Slurm's own
/// timeout (`MessageTimeout`), which is 10 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the controller is asked about a job that is known: its state and limit change rarely.
const POLLS_PER_QUESTION: u64 = 3;

/// The most questions to the controller at one poll, so that a node full of small jobs is no burden.
const MAX_QUESTIONS: usize = 8;

/// What a poll may take besides its programs: reading what the processes did, on a machine that is
/// busy.
const MARGIN: Duration = Duration::from_secs(5);

/// How many polls are left out after scontrol failed to list anything: a minute.
const POLLS_AFTER_FAILURE: u32 = 5;

/// The most that scontrol may print. A job array is told with all its tasks, at 1.5 kB each.
const MAX_OUTPUT_BYTES: usize = 8 << 20;

pub(crate) struct Slurm {
    proc: PathBuf,
    scontrol: Scontrol,
    jobs: Instances<Account>,
    /// When the controller was last asked about a job, in polls.
    asked: BTreeMap<u32, u64>,
    polls: u64,
    /// What could not be learned about a job, and why.
    odd: BTreeMap<u32, String>,
    left_out: usize,
    /// How many polls to leave out, and because of what.
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
    /// What it prints, whatever its exit status: that is 1 for "no steps on this node" too.
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

    fn list(&mut self) -> Result<Listed, String> {
        let output = self.output(&["listpids"])?;
        listed::parse(&output).ok_or_else(|| {
            let path = self.path.display();
            format!(
                "`{path} listpids` lists nothing: most often there is no slurm.conf, or slurmd, which \
                 fetches it, starts after the agent"
            )
        })
    }

    /// `Err` if there was no answer at all.
    fn show(&mut self, job: u32) -> Result<Result<Shown, Odd>, String> {
        let output = self.output(&["-o", "-d", "show", "job", &job.to_string()])?;
        Ok(shown::parse(&String::from_utf8_lossy(&output), job))
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
            odd: BTreeMap::new(),
            left_out: 0,
            pause: 0,
            failure: String::new(),
        })
    }

    /// The jobs to ask about: those never asked about first, then those whose answer is oldest.
    fn due(&self, listed: &Listed) -> Vec<u32> {
        let since = |job: &u32| self.asked.get(job).map(|&asked| self.polls - asked);
        let is_due = |job: &&u32| since(job).is_none_or(|polls| polls >= POLLS_PER_QUESTION);
        let mut due: Vec<u32> = listed.jobs.keys().filter(is_due).copied().collect();
        due.sort_by_key(|job| self.asked.get(job).copied());
        due.truncate(MAX_QUESTIONS);
        due
    }

    /// Asks about those that are due. The first that gets no answer is the last: the controller is
    /// down, and so it is for the others.
    fn ask(&mut self, listed: &Listed) -> BTreeMap<u32, Shown> {
        self.asked.retain(|job, _| listed.jobs.contains_key(job));
        self.odd.retain(|job, _| listed.jobs.contains_key(job));
        let mut shown = BTreeMap::new();
        for job in self.due(listed) {
            self.asked.insert(job, self.polls);
            match self.scontrol.show(job) {
                Ok(Ok(answer)) => {
                    self.odd.remove(&job);
                    shown.insert(job, answer);
                }
                Ok(Err(odd)) => drop(self.odd.insert(job, odd.to_string())),
                Err(failure) => {
                    self.odd.insert(job, failure);
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
                set_shown(instance, tick, shown);
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

    /// The list and each question may use up their time.
    fn patience(&self) -> Duration {
        longest(self.scontrol.patience) * (1 + MAX_QUESTIONS as u32) + MARGIN
    }

    fn skips(&self) -> Vec<Skip> {
        let mut skips = self.jobs.skips();
        skips.extend(self.odd.iter().map(|(job, why)| Skip::new(format!("slurm/{job}"), why)));
        if self.left_out > 0 {
            let reason = format!("{} jobs and processes beyond the bounds", self.left_out);
            skips.push(Skip::new("slurm/*", reason));
        }
        if !rustix::process::geteuid().is_root() {
            skips.push(Skip::new("slurm/*", "jobs of other users are told to root only"));
        }
        skips
    }
}

fn set_shown(instance: &mut Instance<Account>, tick: &mut Tick<'_>, shown: &Shown) {
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
