//! `spans`: one row for each side of a call that a recorder of this machine wrote.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use skopos_model::Unit;
use skopos_model::job::JobId;
use skopos_query::arrow::array::{
    ArrayRef, Float64Builder, Int64Array, Int64Builder, RecordBatch, StringArray, StringBuilder,
    TimestampNanosecondBuilder,
};
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};
use skopos_rpc::analysis::loader::Loader;
use skopos_rpc::analysis::process::label;
use skopos_rpc::analysis::stream::{Reader, Side, Visit};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::{Interval, Kind};

use super::traces::{Stoppable, folder};

/// Rows of a batch: with all columns some megabytes.
const BATCH_ROWS: usize = 8192;

/// Batches that wait for the engine; then reading waits.
const WAITING: usize = 2;

/// The table `spans`.
#[derive(Debug)]
pub(super) struct Spans {
    traces: Option<PathBuf>,
    columns: Vec<Column>,
}

impl Spans {
    /// Returns the table of the traces in a folder, which may not exist.
    pub(super) fn new(traces: Option<PathBuf>) -> Self {
        Self { traces, columns: columns() }
    }
}

/// Returns the columns of a side of a call.
pub(super) fn columns() -> Vec<Column> {
    let seconds = Unit::new("seconds").unwrap_or(Unit::NONE);
    let mut columns = vec![
        Column::text("request", "Id of the request, 32 hexadecimal digits"),
        Column::text("span", "Id of the call, 16 hexadecimal digits; both of its sides have it"),
        Column::text("parent", "Id of the enclosing call; NULL at the root"),
        Column::text("side", "`origin` (the caller), `target` (the callee) or `local`"),
        Column::text("name", "Name of the RPC"),
        Column::text("callpath", "Names from the root to this call, joined by ` → `"),
        Column::text("node", "Node of the process"),
        Column::text("process", "Process: name, node and id"),
        Column::text("peer", "Name by which the process knows the other side"),
        Column::text("status", "`ok`, `error`, `cancelled` or `timed_out`"),
        Column::time("started_at", "Begin, on the common clock of the trace"),
        Column::number("duration_seconds", seconds, "Time from begin to end"),
        Column::integer("call_order", "Order counter within the request"),
        Column::integer("lamport", "Lamport clock at the end"),
    ];
    for interval in Interval::ALL {
        let help = format!("Interval `{}`; NULL if this side does not report it", interval.name());
        columns.push(Column::number(format!("{}_seconds", interval.name()), seconds, help));
    }
    columns
}

impl Table for Spans {
    fn name(&self) -> &str {
        "spans"
    }

    fn help(&self) -> &str {
        "Calls of RPC services that recorders of this machine wrote, a row for each side of a call"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let Some(folder) = folder(scan, self.traces.as_deref())? else { return Ok(Rows::each([])) };
        Ok(Rows::each(batches(folder, scan.clone(), None)?))
    }

    fn exact(&self) -> &[&str] {
        &["request", "side", "callpath", "started_at"]
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

/// Returns the sides of calls in `files`, read by a thread. The rows of a job begin with its id, and with the number of parts
/// that its traces lack.
///
/// # Errors
/// No thread can be started.
pub(super) fn batches(
    files: impl Loader + Send + 'static,
    scan: Scan,
    job: Option<(JobId, i64)>,
) -> Result<Batches, BoxError> {
    let (files, is_stopped) = Stoppable::new(files);
    let (sender, batches) = sync_channel(WAITING);
    let stop = is_stopped.clone();
    let read = move || {
        if let Err(e) = send((&files, job.as_ref()), &scan, &sender, &stop) {
            // A receiver that is gone needs no error.
            let _ = sender.send(Err(e));
        }
    };
    std::thread::Builder::new().name("skopos-spans".to_owned()).spawn(read)?;
    Ok(Batches { batches, is_stopped })
}

type Batch = Result<RecordBatch, BoxError>;

/// The batches of the thread that reads the files.
pub(super) struct Batches {
    batches: Receiver<Batch>,
    is_stopped: Arc<AtomicBool>,
}

impl Iterator for Batches {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        self.batches.recv().ok()
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// Reads the files and sends their rows.
fn send(
    (files, job): (&Stoppable, Option<&(JobId, i64)>),
    scan: &Scan,
    sender: &SyncSender<Batch>,
    stop: &AtomicBool,
) -> Result<(), BoxError> {
    let trace = match Trace::open(files) {
        Ok(trace) => trace,
        // The statement ended, or no file is whole yet.
        Err(skopos_rpc::Error::Input { .. }) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let texts = |column: &str| {
        let texts = scan.texts(column)?;
        Some(texts.into_iter().map(str::to_owned).collect::<Vec<String>>())
    };
    let mut sending = Sending {
        trace: &trace,
        labels: trace.reader.processes.iter().map(label).collect(),
        paths: (0..trace.reader.callpaths.len() as u32)
            .map(|path| trace.reader.callpaths.text(path))
            .collect(),
        requests: texts("request"),
        sides: texts("side"),
        callpaths: texts("callpath"),
        left: scan.limit().unwrap_or(usize::MAX),
        rows: Columns::default(),
        job,
        scan,
        sender,
        stop,
        failure: None,
    };
    trace.stream(&mut sending)?;
    sending.flush();
    sending.failure.map_or(Ok(()), Err)
}

struct Sending<'s> {
    trace: &'s Trace<'s>,
    labels: Vec<String>,
    paths: Vec<String>,
    /// Conditions of the statement.
    requests: Option<Vec<String>>,
    sides: Option<Vec<String>>,
    callpaths: Option<Vec<String>>,
    /// Rows that the statement still wants.
    left: usize,
    rows: Columns,
    job: Option<&'s (JobId, i64)>,
    scan: &'s Scan,
    sender: &'s SyncSender<Batch>,
    stop: &'s AtomicBool,
    failure: Option<BoxError>,
}

impl Sending<'_> {
    fn flush(&mut self) {
        if self.rows.len == 0 || self.failure.is_some() {
            return;
        }
        let rows = std::mem::take(&mut self.rows);
        let mut all = self.job.map_or(Vec::new(), |job| of_job(job, rows.len));
        all.extend(rows.finish());
        match self.scan.select(&all) {
            Ok(batch) => {
                if self.sender.send(Ok(batch)).is_err() {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
            Err(e) => {
                self.failure = Some(e);
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn is_wanted(&self, side: &Side, request: &str, start: i64) -> bool {
        let has = |all: &Option<Vec<String>>, text: &str| {
            all.as_ref().is_none_or(|all| all.iter().any(|wanted| wanted == text))
        };
        let in_time = self.scan.times("started_at").is_none_or(|times| {
            (times.start().as_nanos()..=times.end().as_nanos()).contains(&start)
        });
        in_time
            && has(&self.requests, request)
            && has(&self.sides, side_name(side.kind))
            && has(&self.callpaths, &self.paths[side.path as usize])
    }
}

fn side_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Origin => "origin",
        Kind::Target => "target",
        _ => "local",
    }
}

impl Visit for Sending<'_> {
    fn side(&mut self, side: &Side, reader: &Reader) {
        if self.left == 0 {
            self.stop.store(true, Ordering::Relaxed);
            return;
        }
        let start = self.trace.clocks.correct(side.process, side.start);
        let request = format!("{:016x}{:016x}", side.request_high, side.request);
        if !self.is_wanted(side, &request, start) {
            return;
        }
        self.left -= 1;
        let process = reader.processes.get(side.process as usize);
        let node = process.map_or("", |process| &process.node);
        let label = self.labels.get(side.process as usize).map_or("", String::as_str);
        let path = &self.paths[side.path as usize];
        let peer = side.peer.and_then(|peer| reader.peers.get(peer as usize));
        self.rows.push(side, start, [&request, path, node, label], peer.map(String::as_str));
        if self.rows.len == BATCH_ROWS {
            self.flush();
        }
    }
}

/// Returns the columns of a job: its id, its run and the parts that its traces lack, in each row.
fn of_job((job, missing): &(JobId, i64), rows: usize) -> Vec<ArrayRef> {
    let ids = StringArray::from_iter_values(std::iter::repeat_n(job.job(), rows));
    let runs = Int64Array::from_value(job.generation().into(), rows);
    vec![Arc::new(ids), Arc::new(runs), Arc::new(Int64Array::from_value(*missing, rows))]
}

/// Builders of the columns.
#[derive(Default)]
struct Columns {
    len: usize,
    texts: [StringBuilder; 10],
    starts: TimestampNanosecondBuilder,
    durations: Float64Builder,
    numbers: [Int64Builder; 2],
    intervals: [Float64Builder; Interval::ALL.len()],
}

impl Columns {
    fn push(&mut self, side: &Side, start: i64, texts: [&str; 4], peer: Option<&str>) {
        let [request, path, node, label] = texts;
        let text = |text: &str| Some(text.to_owned());
        let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let id = |id: u64| Some(format!("{id:016x}"));
        let name = path.rsplit(" → ").next().unwrap_or(path);
        let cells = [
            text(request),
            id(side.span),
            id(side.parent).filter(|_| side.parent != 0),
            text(side_name(side.kind)),
            text(name),
            text(path),
            filled(node),
            text(label),
            peer.and_then(filled),
            text(side.status.name()),
        ];
        self.texts.iter_mut().zip(cells).for_each(|(column, cell)| column.append_option(cell));
        self.starts.append_value(start);
        self.durations.append_value(side.duration as f64 / 1e9);
        self.numbers[0].append_value(side.order.into());
        self.numbers[1].append_value(side.lamport.into());
        for (column, interval) in self.intervals.iter_mut().zip(Interval::ALL) {
            column.append_option(side.interval(interval).map(|ns| ns as f64 / 1e9));
        }
        self.len += 1;
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        let mut all: Vec<ArrayRef> = Vec::new();
        all.extend(self.texts.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        all.push(Arc::new(self.starts.finish().with_timezone("UTC")));
        all.push(Arc::new(self.durations.finish()));
        all.extend(self.numbers.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        all.extend(self.intervals.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        all
    }
}
