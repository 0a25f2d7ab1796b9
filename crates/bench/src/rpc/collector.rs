//! The cost of calls whose spans go to a collector: OpenTelemetry sends them while the service works, and Skopos afterwards,
//! with `skopos trace export`.
//!
//! The collector is that of OpenTelemetry, which `scripts/setup bench` builds of `bench/otelcol`. It drops the spans, and
//! counts them.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::printed::{PATIENCE, number, printed};
use crate::agent::usage::threads_of;
use crate::child::{Process, finish, wait_for};
use crate::plan::Plan;
use crate::programs;
use crate::report::{Better, Figure, Report, Row};

/// Rounds of a full and of a short run.
const ROUNDS: [usize; 2] = [21, 3];

/// The longest time until the collector listens, and until it has counted what it took.
const READY: Duration = Duration::from_secs(30);

/// The name of its counter of spans.
const ACCEPTED: &str = "otelcol_receiver_accepted_spans";

/// The case of all rows.
const CASE: &str = "tonic echo, each span to a collector";

/// Adds the rows; without a collector one row says why they are unknown.
pub(super) fn add(report: &mut Report, plan: &Plan, folder: &Path) {
    match measured(ROUNDS[usize::from(plan.is_short)], folder) {
        Ok(rows) => report.add(rows),
        Err(reason) => {
            report.add([Row::of(CASE, "result", "", Figure::Unknown(reason), Better::Neither)]);
        }
    }
}

fn measured(rounds: usize, scratch: &Path) -> Result<Vec<Row>, String> {
    let mut collector = Collector::start(scratch)?;
    let program = programs::recorders().map_err(|failure| failure.in_one_line())?;
    let folder = scratch.join("exported");
    let words = [
        "export".to_owned(),
        rounds.to_string(),
        collector.address.clone(),
        folder.display().to_string(),
    ];
    let before = collector.cpu()?;
    let json = printed(&program, &words, scratch)?;
    // The first round warms up, and its spans are sent too.
    let calls = json["calls_per_round"].as_u64().unwrap_or(0) * (rounds as u64 + 1);
    let theirs = collector.took(calls, before)?;
    let before = collector.cpu()?;
    let skopos = programs::skopos().map_err(|failure| failure.in_one_line())?;
    let mut export = Command::new(skopos);
    export.arg("trace").arg("--trace").arg(&folder).arg("export");
    export.arg("--otlp-to").arg(&collector.address);
    let (begun, ticks) = (Instant::now(), ended_children());
    finish(&mut export, scratch, PATIENCE)?;
    let (wall, cpu) = (begun.elapsed().as_secs_f64(), ended_children() - ticks);
    let spans = spans_of(&scratch.join("stderr"))?;
    let ours = collector.took(spans, before)?;
    let _ = fs::remove_dir_all(&folder);
    Ok(rows(&json, &Sent { spans, wall, cpu, calls, ours, theirs }))
}

/// Spans that a collector took, and the processor time that it spent.
pub(super) struct Taken {
    pub(super) spans: u64,
    pub(super) seconds: f64,
}

impl Taken {
    /// Processor time for a span, us.
    pub(super) fn cost(&self) -> Figure {
        Figure::Known(self.seconds * 1e6 / self.spans.max(1) as f64)
    }

    /// The part of the spans that were sent, in percent.
    pub(super) fn arrived(&self, sent: u64) -> Figure {
        Figure::Known(100.0 * self.spans as f64 / sent.max(1) as f64)
    }
}

/// The outcome of both ways.
struct Sent {
    /// Spans of the export, its time and its processor time.
    spans: u64,
    wall: f64,
    cpu: f64,
    /// Calls of which OpenTelemetry made a span.
    calls: u64,
    ours: Taken,
    theirs: Taken,
}

fn rows(json: &Json, sent: &Sent) -> Vec<Row> {
    let of = |name: &str| {
        let mut rows = json["rows"].as_array().into_iter().flatten();
        rows.find(|row| row["name"] == name).unwrap_or(&Json::Null)
    };
    let median = |name: &str| of(name).pointer("/cpu_us/median").and_then(Json::as_f64);
    // Processor time of a call beyond that of a service that records nothing.
    let more = |name: &str| {
        let known = median(name).zip(median("off")).map(|(with, without)| with - without);
        known.map_or_else(|| Figure::Unknown(format!("no result of `{name}`")), Figure::Known)
    };
    let (ours, theirs) = ("skopos, server", "opentelemetry, server");
    let export = sent.cpu * 1e6 / sent.spans.max(1) as f64;
    let with_export = match more(ours) {
        Figure::Known(service) => Figure::Known(service + export),
        unknown => unknown,
    };
    let row = |metric: &str, unit, value, peer, better| {
        Row::of(CASE, metric, unit, value, better).beside("opentelemetry", peer)
    };
    let lost = "/throughput_less_percent/median";
    let rate = sent.spans as f64 / sent.wall;
    vec![
        row("processor time for a call, service", "us", more(ours), more(theirs), Better::Lower),
        row(
            "processor time for a call, service and export",
            "us",
            with_export,
            more(theirs),
            Better::Lower,
        ),
        row(
            "throughput lost",
            "%",
            number(of(ours), lost),
            number(of(theirs), lost),
            Better::Neither,
        ),
        row(
            "processor time for a span, collector",
            "us",
            sent.ours.cost(),
            sent.theirs.cost(),
            Better::Neither,
        ),
        row(
            "spans that the collector took",
            "%",
            sent.ours.arrived(sent.spans),
            sent.theirs.arrived(sent.calls),
            Better::Neither,
        ),
        Row::new(CASE, "rate of the export", "spans/s", rate, Better::Higher),
    ]
}

/// A running collector. Ends when dropped.
pub(super) struct Collector {
    process: Process,
    pub(super) address: String,
    metrics: String,
    accepted: u64,
}

impl Collector {
    pub(super) fn start(scratch: &Path) -> Result<Self, String> {
        let program =
            program().ok_or("`scripts/setup bench` builds a collector of OpenTelemetry")?;
        let [port, metrics] = [free_port()?, free_port()?];
        let config = scratch.join("otel.yaml");
        let text = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}\n\
             processors: {{batch: {{}}}}\nexporters: {{nop: {{}}}}\nservice:\n  \
             telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {metrics}}}}}}}}}]}}}}\n  \
             pipelines: {{traces: {{receivers: [otlp], processors: [batch], exporters: [nop]}}}}\n"
        );
        let failed = |e: std::io::Error| format!("the collector: {e}");
        fs::write(&config, text).map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&config).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(scratch.join("otel.log")).map_err(failed)?);
        let process = Process::start(&mut command).map_err(failed)?;
        let address = format!("http://127.0.0.1:{port}");
        let metrics = format!("http://127.0.0.1:{metrics}/metrics");
        let mut collector = Self { process, address, metrics, accepted: 0 };
        let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
        wait_for(&mut collector.process, READY, listens)?;
        Ok(collector)
    }

    /// Seconds that it has spent on a processor.
    pub(super) fn cpu(&self) -> Result<f64, String> {
        Ok(threads_of(self.process.pid())?.values().sum::<u64>() as f64 / 1e9)
    }

    /// Waits until it has counted `expected` more spans, or counts no more. Returns them, and its time since `before`.
    pub(super) fn took(&mut self, expected: u64, before: f64) -> Result<Taken, String> {
        let (begun, goal) = (Instant::now(), self.accepted + expected);
        let mut now = self.counted()?;
        while now < goal && begun.elapsed() < READY {
            std::thread::sleep(Duration::from_millis(100));
            now = self.counted()?;
        }
        let spans = now - self.accepted;
        self.accepted = now;
        Ok(Taken { spans, seconds: self.cpu()? - before })
    }

    /// Returns the number of spans that it has taken.
    fn counted(&self) -> Result<u64, String> {
        let answer = ureq::get(&self.metrics).call();
        let mut answer = answer.map_err(|e| format!("{}: {e}", self.metrics))?;
        let text = answer.body_mut().read_to_string().map_err(|e| e.to_string())?;
        let lines = text.lines().filter(|line| line.starts_with(ACCEPTED));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum::<f64>() as u64)
    }
}

/// Returns the collector that `scripts/setup bench` builds.
fn program() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    let file = cache.join("skopos/otelcol/otelcol");
    file.exists().then_some(file)
}

fn free_port() -> Result<u16, String> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|e| format!("no port is free: {e}"))
}

/// Returns the number in `ADDRESS: 1234 spans, 567 bytes`.
fn spans_of(file: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let before = text.split(" spans,").next().and_then(|begin| begin.rsplit(' ').next());
    let spans = before.and_then(|word| word.parse().ok());
    spans.ok_or_else(|| format!("the export said {}", text.trim()))
}

/// Seconds of processor time of the children that have ended, in ticks of 10 ms.
fn ended_children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command may have spaces. Behind it, the state is field 3; `cutime` and `cstime` are 16 and 17.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let ticks =
        after.split_whitespace().skip(13).take(2).filter_map(|word| word.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_exported_spans_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("stderr");
        fs::write(&file, "http://127.0.0.1:1/v1/traces: 176000 spans, 9 bytes\n").expect("written");
        assert_eq!(spans_of(&file), Ok(176_000));
        fs::write(&file, "error: it is away\n").expect("written");
        assert!(spans_of(&file).expect_err("no number").contains("it is away"));
    }
}
