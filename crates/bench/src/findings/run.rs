//! Runs the jobs of a set beside a hub, and asks it for the findings.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use skopos_hub::client::{reach, store_jobs};
use skopos_hub::messages::{JobDocument, StoreRequest, socket_path};

use super::case::{Case, Composed, Job, Run, Set};
use super::work::Work;
use crate::child::{Process, wait_for};
use crate::plan::Plan;
use crate::programs;
use crate::scratch::Scratch;
use crate::worker::{Role, Task};
use skopos_term::Failure;

/// The longest time until the hub is ready, and until it has a record or a verdict.
const PATIENCE: Duration = Duration::from_secs(30);

/// The folder of the kernel's control groups of version 1 with processor time, and of version 2.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

/// The period of a limit on processor time, in microseconds: that of the kernel's default.
const PERIOD: f64 = 100_000.0;

/// The fault that the kernel must confirm, the share of the time for which it must have throttled the group, and the most
/// attempts.
const THROTTLED: &str = "cpu_throttled";
const THROTTLED_SHARE: f64 = 0.1;
const ATTEMPTS: usize = 4;

/// The files of a control group's share of the processors, with the greatest share.
const SHARES: [(&str, &str); 2] = [("cpu.shares", "262144"), ("cpu.weight", "10000")];

/// The verdicts about a job by rule, or the reason why it could not run here.
pub(super) type Judged = Result<BTreeMap<String, Said>, String>;

/// The statement of a rule about a job.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) verdict: String,
    /// The finding or the reason.
    pub(super) text: String,
}

/// A hub with its folder.
struct Site {
    skopos: PathBuf,
    own: PathBuf,
    scratch: Scratch,
    dir: PathBuf,
    _hub: Process,
}

fn broken(what: &str) -> impl Fn(std::io::Error) -> Failure {
    move |e| Failure::new(format!("{what} failed")).because(&e)
}

/// Runs all jobs, one after another, so that they do not disturb each other.
pub(super) fn run(plan: &Plan, set: Set, cases: &[Case]) -> Result<Vec<Judged>, Failure> {
    let site = Site::start(set)?;
    let mut judged = Vec::new();
    for case in cases {
        plan.say(&case.name);
        judged.push(match site.make(case) {
            Ok(()) => Ok(site.verdicts(&case.name)?),
            Err(why) => Err(why),
        });
    }
    Ok(judged)
}

impl Site {
    fn start(set: Set) -> Result<Self, Failure> {
        let skopos = programs::skopos()?;
        let own = std::env::current_exe().map_err(broken("finding this program"))?;
        let scratch = Scratch::on_disk()?;
        let dir = scratch.dir(set.name())?;
        let file = |name: &str| File::create(scratch.path().join(name)).map_err(broken("a log"));
        let mut command = Command::new(&skopos);
        command.arg("--dir").arg(&dir).args(["hub", "--http", "none", "--flight", "none"]);
        command.env("SKOPOS_STATE", dir.join("state")).stdin(Stdio::null());
        command.stdout(file("hub.log")?).stderr(file("hub.err")?);
        let mut hub = Process::start(&mut command).map_err(broken("starting the hub"))?;
        wait_for(&mut hub, PATIENCE, || UnixStream::connect(socket_path(&dir)).ok())
            .map_err(|why| Failure::new(format!("the hub does not answer: {why}")))?;
        Ok(Self { skopos, own, scratch, dir, _hub: hub })
    }

    /// Makes a job, or returns the reason why this machine cannot.
    fn make(&self, case: &Case) -> Result<(), String> {
        match &case.job {
            Job::Run(run) if case.faults.contains(&THROTTLED) => self.throttled(&case.name, run),
            Job::Run(run) => self.run(&case.name, run).map(drop),
            Job::Ranks(ranks) => self.ranks(&case.name, ranks),
            Job::Class { before, times, run } => {
                let earlier = Run { doing: before.clone(), ..Run::default() };
                (0..*times).try_for_each(|_| self.run(&case.name, &earlier).map(drop))?;
                self.wait_for_jobs(&case.name, *times)?;
                self.run(&case.name, run)?;
                self.wait_for_jobs(&case.name, times + 1)
            }
            Job::Composed(records) => self.compose(&case.name, records),
        }
    }

    fn command(&self, name: &str, run: &Run) -> Result<(Command, PathBuf), String> {
        let nanos = nanos(SystemTime::now());
        let folder = self.scratch.path().join(format!("work-{nanos}"));
        fs::create_dir(&folder).map_err(|e| e.to_string())?;
        let parameters = serde_json::to_value(run.work(&folder)).map_err(|e| e.to_string())?;
        let task = Task { role: Work::NAME.to_owned(), parameters };
        let task = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let mut words: Vec<String> = ["--dir", &self.dir.display().to_string(), "run", "--quiet"]
            .into_iter()
            .map(str::to_owned)
            .collect();
        let fixed = ["--level", "3", "--series", "50ms", "--name", name];
        words.extend(fixed.into_iter().map(str::to_owned));
        if !run.limits.is_empty() {
            words.extend(["--limit".to_owned(), run.limits.to_owned()]);
        }
        words.extend(["--".to_owned(), self.own.display().to_string()]);
        words.extend(["worker", "--task"].map(str::to_owned));
        words.push(task);
        let mut command = match run.cpu_max {
            None => Command::new(&self.skopos),
            Some(most) => {
                let procs = group(most)?.join("cgroup.procs");
                let mut command = Command::new("sh");
                command
                    .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
                    .arg(procs)
                    .arg(&self.skopos);
                command
            }
        };
        command.args(words).current_dir(&folder).env("SKOPOS_STATE", self.dir.join("state"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok((command, folder))
    }

    /// Runs a program. Returns the share of its time for which the kernel throttled its control group, if it had one.
    fn run(&self, name: &str, run: &Run) -> Result<Option<f64>, String> {
        let (mut command, folder) = self.command(name, run)?;
        let begun = Instant::now();
        let ended = command.status().map_err(|e| e.to_string());
        let wall = begun.elapsed();
        let _ = fs::remove_dir_all(folder);
        let throttled = run.cpu_max.is_some().then(throttled);
        if run.cpu_max.is_some() {
            remove_group();
        }
        ended.map(|_| throttled.map(|time| time / wall.as_secs_f64()))
    }

    /// Runs a program whose control group is to be throttled, until it was. On a busy machine a group may get too little
    /// processor time to reach its limit: that job does not have the fault.
    fn throttled(&self, name: &str, run: &Run) -> Result<(), String> {
        for times in 1..=ATTEMPTS {
            let share = self.run(name, run)?.unwrap_or_default();
            if share >= THROTTLED_SHARE {
                return self.wait_for_jobs(name, times);
            }
        }
        Err(format!(
            "other programs took the processors: the kernel did not throttle the group in {ATTEMPTS} attempts"
        ))
    }

    /// Runs ranks at one time. The batch system of this job is the benchmark, which tells of its start and end.
    fn ranks(&self, name: &str, ranks: &[Vec<(super::work::Doing, f64)>]) -> Result<(), String> {
        let start = json!({"user": "bench", "application": name});
        self.store(name, &[(0.0, "start", "", start)])?;
        let mut running = Vec::new();
        for (rank, doing) in ranks.iter().enumerate() {
            let run = Run { doing: doing.clone(), ..Run::default() };
            let (mut command, folder) = self.command(name, &run)?;
            command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", ranks.len().to_string());
            command.env("PMI_JOBID", name);
            running.push((Process::start(&mut command).map_err(|e| e.to_string())?, folder));
        }
        for (mut process, folder) in running {
            process.inner().wait().map_err(|e| e.to_string())?;
            let _ = fs::remove_dir_all(folder);
        }
        self.store(name, &[(0.0, "end", "", json!({"state": "completed"}))])
    }

    /// Stores composed records, as if the job had just ended.
    fn compose(&self, name: &str, records: &[Composed]) -> Result<(), String> {
        let mut start = json!({});
        let mut all = Vec::new();
        for record in records {
            match record.kind {
                "start" => start = record.document.clone(),
                kind => all.push((record.seconds, kind, &*record.node, record.document.clone())),
            }
        }
        start["user"] = "bench".into();
        start["application"] = name.into();
        let end = json!({"state": "completed"});
        let first = [(0.0, "start", "", start)];
        let all: Vec<_> = first.into_iter().chain(all).chain([(600.0, "end", "", end)]).collect();
        self.store(name, &all)
    }

    /// Stores records of a job: seconds since a beginning, kind, node and document.
    fn store(&self, job: &str, records: &[(f64, &str, &str, Json)]) -> Result<(), String> {
        let now = nanos(SystemTime::now());
        // The last record is as old as this call.
        let length = records.iter().map(|record| record.0).fold(0.0, f64::max);
        let document = |(seconds, kind, node, document): &(f64, &str, &str, Json)| JobDocument {
            job: job.to_owned(),
            generation: 0,
            node: (*node).to_owned(),
            time_ns: now - ((length - seconds) * 1e9) as i64,
            kind: (*kind).to_owned(),
            document: document.clone(),
        };
        let store_jobs_of = records.iter().map(document).collect();
        let producer = format!("bench/{now}");
        let request = StoreRequest {
            store_jobs: store_jobs_of,
            producer,
            epoch: now,
            ..StoreRequest::default()
        };
        let stream = reach(&self.dir, PATIENCE).map_err(|e| e.in_one_line())?;
        let stream = stream.ok_or("the hub has ended")?;
        store_jobs(&stream, &request).map_err(|e| e.in_one_line())
    }

    fn wait_for_jobs(&self, name: &str, count: usize) -> Result<(), String> {
        let sql = format!(
            "SELECT count(*) AS n FROM jobs WHERE application = {} AND state = 'completed' \
             AND wall_seconds IS NOT NULL",
            quoted(name)
        );
        let until = Instant::now() + PATIENCE;
        loop {
            let rows = self.rows(&sql).map_err(|e| e.in_one_line())?;
            if rows.first().and_then(|row| row["n"].as_u64()) == Some(count as u64) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("the hub does not list {count} jobs of the class"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Asks for the verdicts about the latest job of an application, until the job is listed.
    fn verdicts(&self, name: &str) -> Result<BTreeMap<String, Said>, Failure> {
        let sql = format!(
            "SELECT finding, verdict, what, reason FROM job_findings WHERE application = {} \
             ORDER BY started_at",
            quoted(name)
        );
        let until = Instant::now() + PATIENCE;
        loop {
            let rows = self.rows(&sql)?;
            let text = |row: &Json, name: &str| row[name].as_str().unwrap_or_default().to_owned();
            let said = rows.iter().map(|row| {
                let text_of = format!("{}{}", text(row, "what"), text(row, "reason"));
                (text(row, "finding"), Said { verdict: text(row, "verdict"), text: text_of })
            });
            // Of several jobs the latest one remains.
            let said: BTreeMap<String, Said> = said.collect();
            if !said.is_empty() {
                return Ok(said);
            }
            if Instant::now() > until {
                return Err(Failure::new(format!("the hub does not list the job `{name}`")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Asks as a user does.
    fn rows(&self, sql: &str) -> Result<Vec<Json>, Failure> {
        let mut command = Command::new(&self.skopos);
        command.arg("--dir").arg(&self.dir).args(["sql", "--json", sql]).stdin(Stdio::null());
        let output = command.output().map_err(broken("asking the hub"))?;
        let answer: Json = serde_json::from_slice(&output.stdout).map_err(|_| {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            Failure::new(format!("the hub does not answer: {why}"))
        })?;
        Ok(answer["rows"].as_array().cloned().unwrap_or_default())
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn nanos(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns the paths of this process's control group.
fn groups() -> impl Iterator<Item = PathBuf> {
    let name = format!("skopos-bench-{}", std::process::id());
    GROUPS.into_iter().map(move |folder| Path::new(folder).join(&name))
}

/// Makes a control group that may use so many cores.
fn group(most: f64) -> Result<PathBuf, String> {
    let mut why = "no control group can be made".to_owned();
    for group in groups() {
        let made = fs::create_dir(&group).and_then(|()| {
            // On a busy machine a group with the usual share gets too little processor time to reach its limit.
            for (file, share) in SHARES {
                // A version of control groups has one of them.
                if group.join(file).exists() {
                    let _ = fs::write(group.join(file), share);
                }
            }
            let quota = (most * PERIOD) as u64;
            match group.join("cpu.cfs_quota_us") {
                file if file.exists() => fs::write(file, quota.to_string()),
                _ => fs::write(group.join("cpu.max"), format!("{quota} {PERIOD}")),
            }
        });
        match made {
            Ok(()) => return Ok(group),
            Err(e) => why = format!("{}: {e}", group.display()),
        }
        let _ = fs::remove_dir(&group);
    }
    Err(why)
}

/// Returns the time for which the kernel throttled the group, in seconds.
fn throttled() -> f64 {
    let text = groups().find_map(|group| fs::read_to_string(group.join("cpu.stat")).ok());
    let text = text.unwrap_or_default();
    let value =
        |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<f64>().ok());
    let nanos = value("throttled_time ").map(|nanos| nanos / 1e9);
    nanos.or_else(|| value("throttled_usec ").map(|micros| micros / 1e6)).unwrap_or_default()
}

fn remove_group() {
    groups().for_each(|group| drop(fs::remove_dir(group)));
}
