//! `skopos slurm prolog` and `skopos slurm epilog`: jobs of Slurm, for slurm.conf.
//!
//! Slurm requeues a job whose prolog fails, so the verbs fail only on wrong usage. They print to standard error, and take a
//! bounded time.

mod host_list;
mod job;

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use skopos_model::Timestamp;
use skopos_model::job::{JobRecord, Kind};
use skopos_sense::ShownJob;
use skopos_term::{Failure, Global, tell};

use self::job::{Ended, SlurmJob, state_of};
use super::delivery::{Batch, now, send_spooled};

/// Time that scontrol may take. A job waits for its prolog.
const SCONTROL_TIME: Duration = Duration::from_secs(3);

/// Time that the hub may take.
const HUB_PATIENCE: Duration = Duration::from_secs(3);

/// Time for sending what is spooled. The hub takes the rest itself.
const SPOOL_TIME: Duration = Duration::from_secs(1);

/// Time for which the final state of a job is awaited after its epilog. Slurm forgets a job after five minutes
/// (`MinJobAge`), and a job is completing for `KillWait`, half a minute, and the time of its epilogs.
const FOLLOW_TIME: Duration = Duration::from_secs(240);

/// Pause between two questions about the final state.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    /// Program that shows a job: its request, and its state after it has ended
    #[arg(long, value_name = "PATH", default_value = "scontrol", global = true)]
    scontrol: PathBuf,
    #[command(subcommand)]
    verb: SlurmVerb,
}

#[derive(Debug, Subcommand)]
enum SlurmVerb {
    /// Record that a job starts: for PrologSlurmctld
    #[command(before_help = "Example: skopos slurm prolog   (in the program of PrologSlurmctld)")]
    Prolog,
    /// Record that a job has ended: for EpilogSlurmctld
    #[command(before_help = "Example: skopos slurm epilog   (in the program of EpilogSlurmctld)")]
    Epilog {
        /// Wait until Slurm shows the final state, and record it: a process of its own that the epilog starts
        #[arg(long, hide = true)]
        follow: bool,
    },
}

pub(crate) fn run(global: &Global, args: &SlurmArgs) -> Result<ExitCode, Failure> {
    let id = env::var("SLURM_JOB_ID").ok().filter(|id| id.parse::<u32>().is_ok());
    let id = id.ok_or_else(|| {
        Failure::new("SLURM_JOB_ID is not set to the number of a job")
            .hint("slurm.conf runs this verb; docs/howto/connect-slurm.md has the lines")
    })?;
    let producer = Producer {
        dir: global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir),
        scontrol: &args.scontrol,
        number: id.parse().unwrap_or(0),
        id,
    };
    match args.verb {
        SlurmVerb::Prolog => producer.start(),
        SlurmVerb::Epilog { follow: false } => producer.end(),
        SlurmVerb::Epilog { follow: true } => producer.follow(),
    }
    Ok(ExitCode::SUCCESS)
}

/// The producer of the records of one job.
struct Producer<'a> {
    dir: PathBuf,
    scontrol: &'a Path,
    number: u32,
    id: String,
}

impl Producer<'_> {
    fn start(&self) {
        let shown = self.shown();
        let job = SlurmJob::new(&variable, shown.as_ref(), seconds());
        let document = serde_json::to_vec(&job.start()).unwrap_or_default();
        self.deliver(Kind::Start, job.restarts(), &document);
    }

    fn end(&self) {
        let shown = self.shown();
        let ended = SlurmJob::new(&variable, shown.as_ref(), seconds()).end();
        self.deliver_end(&ended);
        // Slurm tells an epilog neither that a job was cancelled nor, in time, its signal.
        if shown.is_some() {
            self.start_following();
        }
    }

    /// Starts a process that outlives this one, since Slurm waits for the epilog before it shows the final state.
    fn start_following(&self) {
        let program = env::current_exe().unwrap_or_else(|_| "skopos".into());
        let mut command = Command::new(program);
        command.arg("--dir").arg(&self.dir).args(["slurm", "epilog", "--follow", "--scontrol"]);
        command.arg(self.scontrol).process_group(0);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Err(e) = command.spawn() {
            tell(format!("skopos: the final state of the job is not recorded: {e}"));
        }
    }

    /// Waits until Slurm shows the final state, and records it.
    fn follow(&self) {
        let until = Instant::now() + FOLLOW_TIME;
        while Instant::now() < until {
            std::thread::sleep(FOLLOW_EVERY);
            let Ok(shown) = ShownJob::ask(self.scontrol, self.number, SCONTROL_TIME) else {
                continue;
            };
            let state = shown.text("JobState");
            if state.and_then(state_of).is_some() {
                let ended = SlurmJob::new(&exit_code_of(&shown), Some(&shown), seconds()).end();
                return self.deliver_end(&ended);
            }
            // A job that was requeued waits or runs again.
            if state != Some("COMPLETING") {
                return;
            }
        }
    }

    fn deliver_end(&self, ended: &Ended) {
        let document = serde_json::to_vec(&ended.end).unwrap_or_default();
        self.deliver(Kind::End, ended.generation, &document);
    }

    fn shown(&self) -> Option<ShownJob> {
        // On the nodes of a large job, a question of each to the controller would be too many.
        if variable("SLURM_SCRIPT_CONTEXT").is_some_and(|context| context.ends_with("slurmd")) {
            return None;
        }
        let shown = ShownJob::ask(self.scontrol, self.number, SCONTROL_TIME);
        shown.map_err(|e| tell(format!("skopos: job {}: {e}", self.id))).ok()
    }

    fn deliver(&self, kind: Kind, generation: u32, content: &[u8]) {
        let (epoch, node) = (now(), rustix::system::uname());
        let node = node.nodename().to_string_lossy();
        let time = Timestamp::from_nanos(epoch);
        // A producer of its own: a record that is spooled may arrive after a later one.
        let producer = format!("slurm/{node}/{}/{}/{epoch}", self.id, kind.name());
        let mut batch = Batch::new(producer, epoch);
        batch.add(&JobRecord { kind, job: &self.id, generation, node: "", time, content });
        if batch.deliver(&self.dir, HUB_PATIENCE) {
            send_spooled(&self.dir, HUB_PATIENCE, SPOOL_TIME);
        }
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Returns the environment with the exit code that Slurm shows.
fn exit_code_of(shown: &ShownJob) -> impl Fn(&str) -> Option<String> {
    let shown = shown.text("ExitCode").map(str::to_owned);
    move |name| match name {
        "SLURM_JOB_EXIT_CODE2" => shown.clone().or_else(|| variable(name)),
        _ => variable(name),
    }
}

fn seconds() -> f64 {
    now() as f64 / 1e9
}
