//! Hands a task to the hub of this machine, if there is one: the task is then a job, found with `skopos jobs`.
//!
//! A rank of a parallel job adds its report to that job; the batch system says when the job starts and ends. Records that
//! the hub does not take wait in the spool.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use skopos_hub::client::reach;
use skopos_model::Timestamp;
use skopos_model::job::{JobRecord, JobStart, Kind, MAX_DOCUMENT_BYTES, Metrics};
use skopos_model::task::{Files, Limits, Rank, Summary, TaskFiles};
use skopos_rpc::parts::parts;
use skopos_task::{COLUMNS, Outcome, Row};
use skopos_term::tell;

use crate::verbs::delivery::{Batch, keeps_jobs, nanos, send_spooled};
use crate::verbs::task_job::{end_of, loss_of_files};

/// Time that the hub may take for the start. The task waits for it.
const START_PATIENCE: Duration = Duration::from_secs(3);

/// Time that the hub may take for the end, which is longer than its own timeout for a disk.
const END_PATIENCE: Duration = Duration::from_secs(15);

/// Time for sending what other producers spooled. The hub takes the rest itself.
const SPOOL_TIME: Duration = Duration::from_secs(5);

/// The most rows of the series that are delivered, evenly thinned: as many as a plot has points. The report in a folder
/// has all.
const MAX_ROWS: usize = 1_000;

/// The most bytes of traces that are kept with a job: half a million records. A hub that is away spools them.
const MAX_TRACE_BYTES: u64 = 32 << 20;

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
    /// Tells the hub in `dir` that a task begins; `None` if there is no hub, and there never was one.
    pub(super) fn begin(
        dir: PathBuf,
        (class, command): (Option<&str>, &[OsString]),
        limits: &Limits,
        rank: Option<&Rank>,
    ) -> Option<Self> {
        // A hub that is dead or busy does not keep a task from running.
        if !matches!(reach(&dir, START_PATIENCE), Ok(Some(_))) && !keeps_jobs(&dir) {
            return None;
        }
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
            let mut batch = delivery.batch("start");
            delivery.add(&mut batch, Kind::Start, began, &start);
            batch.deliver(&delivery.dir, START_PATIENCE);
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

    /// Delivers the series, the report, the files and the traces of the task, and that the job has ended.
    pub(super) fn end(self, outcome: &Outcome, traces: Option<&Path>) {
        let now = SystemTime::now();
        let (summary, mut batch) = (&outcome.summary, self.batch("end"));
        self.add_series(&mut batch, summary, &outcome.series);
        self.add(&mut batch, Kind::Report, now, summary);
        if let Some(files) = &outcome.files {
            self.add_files(&mut batch, summary, files);
        }
        if let Some(folder) = traces {
            self.add_traces(&mut batch, folder);
        }
        if !self.is_rank {
            self.add(&mut batch, Kind::End, now, &end_of(summary));
        }
        if batch.deliver(&self.dir, END_PATIENCE) {
            send_spooled(&self.dir, END_PATIENCE, SPOOL_TIME);
        }
    }

    /// Adds the series of the task as measurements. A rank has a schema of its own: ranks of one node are told apart.
    fn add_series(&self, batch: &mut Batch, summary: &Summary, series: &[Row]) {
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
            return;
        }
        self.add(batch, Kind::Metrics, self.began, &names);
        let stride = series.len().div_ceil(MAX_ROWS);
        for row in series.iter().step_by(stride) {
            let values = row.values();
            let Some((Some(elapsed), values)) = values.split_first() else { continue };
            let Ok(at) = Duration::try_from_secs_f64(*elapsed) else { continue };
            let values: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
            let content = JobRecord::sample_content(&schema, &values);
            self.add_content(batch, Kind::Sample, self.began + at, &content);
        }
    }

    /// Adds the files of the task with the most bytes. The number of the others is a loss of the job.
    fn add_files(&self, batch: &mut Batch, summary: &Summary, files: &Files) {
        let mut most = TaskFiles::most(summary.task.rank.as_ref());
        let (kept, content) = loop {
            let kept = TaskFiles::new(summary, files, most);
            let content = serde_json::to_vec(&kept).unwrap_or_default();
            if content.len() <= MAX_DOCUMENT_BYTES || most == 0 {
                break (kept, content);
            }
            // Paths are so long that the record would be refused.
            most /= 2;
        };
        self.add_content(batch, Kind::Files, SystemTime::now(), &content);
        if let Some(loss) = loss_of_files(summary, &kept) {
            self.add(batch, Kind::Loss, SystemTime::now(), &loss);
        }
    }

    /// Adds the traces in a folder, part by part.
    fn add_traces(&self, batch: &mut Batch, folder: &Path) {
        let (parts, left_out) = match parts(folder, MAX_TRACE_BYTES) {
            Ok(found) => found,
            Err(e) => return tell(format!("skopos: the traces cannot be kept with the job: {e}")),
        };
        if left_out > 0 {
            tell(format!(
                "skopos: {left_out} bytes of traces are not kept with the job, which has room for {MAX_TRACE_BYTES}; \
                 {} has all",
                folder.display()
            ));
        }
        parts.iter().for_each(|part| self.add(batch, Kind::Spans, SystemTime::now(), part));
    }

    /// Returns a batch of a producer of its own: the start may be spooled and arrive after the end.
    fn batch(&self, part: &str) -> Batch {
        let began = nanos(self.began);
        // Two containers may have one node and process id.
        Batch::new(format!("run/{}/{}/{began}/{part}", self.node, std::process::id()), began)
    }

    fn add(&self, batch: &mut Batch, kind: Kind, time: SystemTime, document: &impl Serialize) {
        let content = serde_json::to_vec(document).unwrap_or_default();
        self.add_content(batch, kind, time, &content);
    }

    fn add_content(&self, batch: &mut Batch, kind: Kind, time: SystemTime, content: &[u8]) {
        let (job, generation) = (self.job.0.as_str(), self.job.1);
        let time = Timestamp::from_nanos(nanos(time));
        let node = self.node.as_str();
        batch.add(&JobRecord { kind, job, generation, node, time, content });
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

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
