//! Hands a task to the hub of this machine, if there is one: the task is then a job, found with `skopos jobs`.
//!
//! A rank of a parallel job adds its report to that job; the batch system says when the job starts and ends.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use skopos_hub::client::{reach, store_jobs};
use skopos_hub::messages::{JobDocument, StoreRequest};
use skopos_model::job::{JobEnd, JobStart, JobState, Kind, Metrics};
use skopos_model::task::{ExitType, Limits, Rank, Summary};
use skopos_task::{COLUMNS, Row};
use skopos_term::{Failure, tell};

/// Time that the hub may take, which is longer than its own timeout for a disk. The task itself does not wait for it.
const PATIENCE: Duration = Duration::from_secs(15);

/// The most rows of the series that are delivered, evenly thinned: as many as a plot has points. The report in a folder
/// has all.
const MAX_ROWS: usize = 1_000;

/// A task that is delivered as a job.
pub(super) struct Delivery {
    dir: PathBuf,
    /// Id and generation of the job.
    job: (String, u32),
    node: String,
    /// The time at which the monitor began, which is the epoch of its records.
    began: SystemTime,
    is_rank: bool,
}

impl Delivery {
    /// Tells the hub in `dir` that a task begins; `None` if there is no hub, or it does not answer.
    pub(super) fn begin(
        dir: PathBuf,
        (class, command): (Option<&str>, &[OsString]),
        limits: &Limits,
        rank: Option<&Rank>,
    ) -> Option<Self> {
        // A hub that is dead or busy does not keep a task from running.
        reach(&dir, PATIENCE).ok().flatten()?;
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let began = SystemTime::now();
        let job = match rank {
            Some(rank) if !rank.job.is_empty() => (rank.job.clone(), restarts()),
            _ => (format!("{node}/{}/{}", nanos(began), std::process::id()), 0),
        };
        let is_rank = rank.is_some_and(|rank| !rank.job.is_empty());
        let delivery = Self { dir, job, node, began, is_rank };
        if !is_rank {
            let start = delivery.start(class, command, limits);
            delivery.send(0, vec![delivery.record(Kind::Start, began, json!(start))]);
        }
        Some(delivery)
    }

    fn start(&self, class: Option<&str>, command: &[OsString], limits: &Limits) -> JobStart {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let program = command.first().map(|path| {
            let path = text(path);
            path.rsplit('/').next().unwrap_or(&path).to_owned()
        });
        let application = class.map(str::to_owned).or(program).unwrap_or_default();
        let folder = env::current_dir().unwrap_or_default().display().to_string();
        let requested = limits.iter().map(|limit| (limit.resource.name.to_owned(), limit.most));
        JobStart {
            user: user(),
            name: application.clone(),
            application,
            launcher: "skopos".to_owned(),
            command: command.iter().map(text).collect(),
            folder,
            nodes: [self.node.clone()].into(),
            requested: requested.collect(),
            start_seconds: Some(seconds(self.began)),
            ..JobStart::default()
        }
    }

    /// Delivers the series and the report of the task, and that the job has ended.
    pub(super) fn end(self, summary: &Summary, series: &[Row]) {
        let now = SystemTime::now();
        let mut records = self.series(summary, series);
        records.push(self.record(Kind::Report, now, json!(summary)));
        if !self.is_rank {
            let ended = &summary.ended;
            let state = match (ended.exit_type, ended.status) {
                (ExitType::Running | ExitType::Unknown, _) => JobState::Unknown,
                (ExitType::Limit, _) => state_of_limit(&ended.limits),
                (ExitType::Normal, Some(0)) => JobState::Completed,
                _ => JobState::Failed,
            };
            let (exit_type, status, signal) = (Some(ended.exit_type), ended.status, ended.signal);
            let end_seconds = Some(summary.end_seconds);
            let end = JobEnd { state, exit_type, status, signal, end_seconds, ..JobEnd::default() };
            records.push(self.record(Kind::End, now, json!(end)));
        }
        // The start had the number 0 of epoch `began`; this is another run of the producer.
        self.send(1, records);
    }

    /// Returns the series of the task as measurements. A rank has a schema of its own: ranks of one node are told apart.
    fn series(&self, summary: &Summary, series: &[Row]) -> Vec<JobDocument> {
        let of_rank = |rank: &Rank| format!("task-{}", rank.rank);
        let schema = summary.task.rank.as_ref().map_or("task".to_owned(), of_rank);
        let units = COLUMNS.iter().skip(1).map(|name| match *name {
            name if name.ends_with("_bytes") => "bytes",
            name if name.ends_with("_seconds") => "seconds",
            _ => "",
        });
        let names = Metrics {
            schema: schema.clone(),
            names: COLUMNS.iter().skip(1).map(|name| (*name).to_owned()).collect(),
            units: units.map(str::to_owned).collect(),
        };
        if series.is_empty() {
            return Vec::new();
        }
        let stride = series.len().div_ceil(MAX_ROWS);
        let rows = series.iter().step_by(stride).filter_map(|row| {
            let (elapsed, values) = row.values().split_first()?;
            let at = Duration::try_from_secs_f64((*elapsed)?).ok()?;
            let document = json!({"schema": schema, "values": values});
            Some(self.record(Kind::Sample, self.began + at, document))
        });
        let names = self.record(Kind::Metrics, self.began, json!(names));
        [names].into_iter().chain(rows).collect()
    }

    fn record(&self, kind: Kind, time: SystemTime, document: Json) -> JobDocument {
        let (job, generation) = self.job.clone();
        let kind = kind.name().to_owned();
        JobDocument {
            job,
            generation,
            node: self.node.clone(),
            time_ns: nanos(time),
            kind,
            document,
        }
    }

    /// Sends records. Each message is an epoch of its own, because its sequences begin at zero.
    fn send(&self, number: i64, records: Vec<JobDocument>) {
        // Two containers may have one node and process id.
        let producer = format!("run/{}/{}/{}", self.node, std::process::id(), nanos(self.began));
        let epoch = nanos(self.began).saturating_add(number);
        let request = StoreRequest { store_jobs: records, producer, epoch };
        let sent = reach(&self.dir, PATIENCE).and_then(|stream| match stream {
            Some(stream) => store_jobs(&stream, &request),
            None => Err(Failure::new("the hub has ended")),
        });
        if let Err(failure) = sent {
            tell(format!("skopos: the hub did not take the report: {}", failure.in_one_line()));
        }
    }
}

/// Returns the state of a job that a limit ended. A limit is written as `memory: 5.1 GiB > 4 GiB`.
fn state_of_limit(limits: &[String]) -> JobState {
    let is_of = |name: &str| limits.iter().any(|limit| limit.starts_with(name));
    match () {
        () if is_of("memory") || is_of("resident_bytes_max") => JobState::OutOfMemory,
        () if is_of("wall") => JobState::Timeout,
        () => JobState::Failed,
    }
}

/// Number of times that the batch system has started the job again.
fn restarts() -> u32 {
    env::var("SLURM_RESTART_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Returns the name of the user, or its number.
fn user() -> String {
    let named = ["LOGNAME", "USER"].into_iter().find_map(|name| env::var(name).ok());
    let named = named.filter(|name| !name.is_empty());
    named.unwrap_or_else(|| rustix::process::geteuid().as_raw().to_string())
}

fn nanos(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
