//! The overhead of recording: services at each stage, which take turns in short slices, so that each slice is compared
//! with one of the same second. They are started anew several times, because a service can be a third faster or slower
//! for its whole life, by the cores on which its threads happen to wake each other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use skopos_rpc::file::Counters;
use skopos_rpc::{Frame, Frames, Stage};

use crate::case::folder::Folder;
use crate::case::{report, servers};
use crate::children::{Launcher, Process};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::latencies::Latencies;
use crate::load::Size;
use crate::process::Work;
use crate::statistics::{Median, median};
use crate::view;

/// Slices that are thrown away at the beginning of each service: its caches, its threads and its trace are new.
const WARM_UP: u32 = 2;

/// Seed of the orders of rounds: any number but zero; a fixed one repeats a measurement.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The rest after a slice while another recorder is measured: twice the time after which either recorder writes or sends
/// what it has, so that it does so in its own slice.
const SETTLE: Duration = Duration::from_millis(200);

/// The variants. The second service without recording shows the noise: its overhead is known to be zero.
const VARIANTS: [(&str, Stage); 6] = [
    ("off", Stage::Off),
    ("off, again", Stage::Off),
    ("context only (stage 1)", Stage::Context),
    ("spans (stage 2)", Stage::Spans),
    (WITHOUT_VARIABLES, Stage::Full),
    ("full", Stage::Full),
];

/// The variant with intervals and without performance variables: stage 2 of the paper's Figure 13.
const WITHOUT_VARIABLES: &str = "full without variables";

/// The variants of the recorder that the program brings.
const OTHERS: [(&str, Stage); 2] =
    [("opentelemetry, spans", Stage::Spans), ("opentelemetry, full", Stage::Full)];

/// Spans of a call: that of its origin, and that of its target.
const SPANS_OF_CALL: u64 = 2;

/// The measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of times that all services are started.
    pub launches: u32,
    /// Rounds of each launch; each has a slice of each variant.
    pub rounds: u32,
    /// Time of a slice.
    pub slice: Duration,
    /// Calls that are under way at a time.
    pub writers: u32,
    /// Keys of a put; 1 is the smallest call.
    pub batch_size: u32,
    /// The collector of the recorder that the program brings, which is measured too then.
    pub collector: Option<String>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Number of launches.
    pub launches: u32,
    /// Number of rounds of each.
    pub rounds: u32,
    /// Milliseconds of a slice.
    pub slice_ms: u64,
    /// Calls that are under way at a time.
    pub writers: u32,
    /// Keys of a put.
    pub batch_size: u32,
    /// The variants, the one without recording first.
    pub variants: Vec<Variant>,
}

/// A variant.
#[derive(Clone, Debug, Serialize)]
pub struct Variant {
    /// Name.
    pub name: &'static str,
    /// Calls in all slices.
    pub calls: u64,
    /// Calls in each second, over all slices.
    pub calls_per_second: f64,
    /// Median latency over all slices.
    pub p50_us: f64,
    /// 99th percentile over all slices.
    pub p99_us: f64,
    /// Processor time of all processes for each call, over all slices.
    pub cpu_us_per_call: f64,
    /// Increase of the processor time for each call, in percent. Other programs on the machine disturb it least.
    pub cpu_overhead_percent: Median,
    /// Records in the traces: a side of a call has one, and its details one or two more. Of another recorder, the spans
    /// that all calls have, also those of slices that are thrown away.
    pub records: u64,
    /// Records that were left out, for want of a ring or because they were overwritten before they were drained; `None`
    /// of another recorder, whose collector counts what arrives.
    pub records_lost: Option<u64>,
    /// Throughput that is lost against the slice of the same round without recording, in percent.
    pub throughput_overhead_percent: Median,
    /// The median's increase, in percent.
    pub p50_overhead_percent: Median,
    /// The 99th percentile's increase, in percent.
    pub p99_overhead_percent: Median,
    /// Each slice, one launch after the other.
    pub slices: Vec<Vec<Slice>>,
}

/// A slice.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slice {
    /// Calls in each second.
    pub calls_per_second: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Processor time of all processes for each call; not a number if the system does not say it.
    pub cpu_us_per_call: f64,
}

/// All that is known of a variant so far.
#[derive(Default)]
struct Sum {
    all: Latencies,
    seconds: f64,
    cpu_us: f64,
    records: u64,
    records_lost: Option<u64>,
    slices: Vec<Vec<Slice>>,
}

/// A variant that is to be measured.
#[derive(Clone, Copy)]
struct Choice<'a> {
    name: &'static str,
    stage: Stage,
    /// The collector of another recorder, which records instead of Skopos.
    collector: Option<&'a str>,
}

/// A service with its client, at one stage.
struct Service {
    client: Process,
    servers: Vec<Process>,
    _sockets: Folder,
    traces: Folder,
    /// Whether another recorder records.
    is_other: bool,
    /// Calls of all slices.
    calls: u64,
}

/// Measures all variants.
///
/// # Errors
/// A process cannot be started, or fails.
pub fn measure(launcher: &Launcher, options: &Options) -> Result<Outcome> {
    let mut random = SEED;
    let choices = choices(options);
    let mut order: Vec<usize> = (0..choices.len()).collect();
    let mut sums: Vec<Sum> = choices.iter().map(|_| Sum::default()).collect();
    for _ in 0..options.launches {
        launch(launcher, options, &choices, &mut sums, (&mut order, &mut random))?;
    }
    let base = sums.first().map(|sum| sum.slices.clone()).unwrap_or_default();
    let variants = choices.iter().zip(sums).map(|(choice, sum)| sum.variant(choice.name, &base));
    Ok(Outcome {
        launches: options.launches,
        rounds: options.rounds,
        slice_ms: u64::try_from(options.slice.as_millis()).unwrap_or(u64::MAX),
        writers: options.writers,
        batch_size: options.batch_size,
        variants: variants.collect(),
    })
}

/// The variants to measure, the one without recording first.
fn choices(options: &Options) -> Vec<Choice<'_>> {
    let ours = VARIANTS.map(|(name, stage)| Choice { name, stage, collector: None });
    let collector = options.collector.as_deref();
    let others = OTHERS.map(|(name, stage)| Choice { name, stage, collector });
    ours.into_iter().chain(others.into_iter().filter(|_| collector.is_some())).collect()
}

/// Starts all services, and lets them take turns.
fn launch(
    launcher: &Launcher,
    options: &Options,
    choices: &[Choice<'_>],
    sums: &mut [Sum],
    (order, random): (&mut [usize], &mut u64),
) -> Result<()> {
    shuffle(order, random);
    let mut services: Vec<Option<Service>> = choices.iter().map(|_| None).collect();
    for variant in &*order {
        let mut service = Service::start(launcher, options, choices[*variant])?;
        for _ in 0..WARM_UP {
            service.slice(&mut Sum::default(), options)?;
        }
        services[*variant] = Some(service);
    }
    sums.iter_mut().for_each(|sum| sum.slices.push(Vec::new()));
    for _ in 0..options.rounds {
        // In another order each round, so that no variant always follows the same one.
        shuffle(order, random);
        for variant in &*order {
            if let Some(service) = &mut services[*variant] {
                service.slice(&mut sums[*variant], options)?;
            }
        }
    }
    for (service, sum) in services.into_iter().flatten().zip(sums) {
        let (records, lost) = service.end()?;
        sum.records += records;
        sum.records_lost = lost.map(|lost| lost + sum.records_lost.unwrap_or(0));
    }
    Ok(())
}

impl Service {
    fn start(launcher: &Launcher, options: &Options, choice: Choice<'_>) -> Result<Self> {
        let Choice { stage, collector, .. } = choice;
        let traces = Folder::new()?;
        let has_trace = stage != Stage::Off && collector.is_none();
        let trace: Option<PathBuf> = has_trace.then(|| traces.path().to_owned());
        let config = Config { batch_size: options.batch_size, ..Config::default() };
        let collector = collector.map(str::to_owned);
        let is_other = collector.is_some();
        let without_variables = choice.name == WITHOUT_VARIABLES;
        let launcher =
            Launcher { stage, trace, without_variables, collector, config, ..launcher.clone() };
        let sockets = Folder::new()?;
        let (servers, paths) = servers(&launcher, &sockets)?;
        let size = Size { writers: options.writers, ..Size::default() };
        let client = launcher.client(0, Work::Steady, &size, &paths)?;
        Ok(Self { client, servers, _sockets: sockets, traces, is_other, calls: 0 })
    }

    fn slice(&mut self, sum: &mut Sum, options: &Options) -> Result<()> {
        let before = self.cpu_us();
        self.client.tell(&options.slice.as_millis().to_string())?;
        let report = report(&self.client)?;
        if options.collector.is_some() {
            std::thread::sleep(SETTLE);
        }
        let cpu_us = self.cpu_us() - before;
        let mut latencies = Latencies::default();
        latencies.merge(&report.latencies);
        self.calls += latencies.count();
        sum.all.merge(&report.latencies);
        sum.seconds += report.seconds;
        sum.cpu_us += cpu_us;
        let slice = Slice {
            calls_per_second: latencies.count() as f64 / report.seconds,
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            cpu_us_per_call: cpu_us / latencies.count() as f64,
        };
        if let Some(slices) = sum.slices.last_mut() {
            slices.push(slice);
        }
        Ok(())
    }

    /// Processor time of all processes so far, in microseconds.
    fn cpu_us(&self) -> f64 {
        let processes = self.servers.iter().chain([&self.client]);
        processes.map(|process| cpu_us(process.id()).unwrap_or(f64::NAN)).sum()
    }

    /// Ends the processes. Returns the number of records, and of those that were lost; of another recorder, the number of
    /// spans that the calls have.
    fn end(mut self) -> Result<(u64, Option<u64>)> {
        self.client.wait()?;
        for server in &mut self.servers {
            server.wait()?;
        }
        if self.is_other {
            return Ok((self.calls * SPANS_OF_CALL, None));
        }
        let (records, lost) = count(self.traces.path())?;
        Ok((records, Some(lost)))
    }
}

impl Sum {
    fn variant(self, name: &'static str, base: &[Vec<Slice>]) -> Variant {
        let compare = |change: fn(&Slice, &Slice) -> f64| over_launches(base, &self.slices, change);
        Variant {
            name,
            calls: self.all.count(),
            calls_per_second: self.all.count() as f64 / self.seconds,
            p50_us: self.all.quantile_us(0.5),
            p99_us: self.all.quantile_us(0.99),
            cpu_us_per_call: self.cpu_us / self.all.count() as f64,
            records: self.records,
            records_lost: self.records_lost,
            cpu_overhead_percent: compare(|base, own| {
                (own.cpu_us_per_call / base.cpu_us_per_call - 1.0) * 100.0
            }),
            throughput_overhead_percent: compare(|base, own| {
                (1.0 - own.calls_per_second / base.calls_per_second) * 100.0
            }),
            p50_overhead_percent: compare(|base, own| (own.p50_us / base.p50_us - 1.0) * 100.0),
            p99_overhead_percent: compare(|base, own| (own.p99_us / base.p99_us - 1.0) * 100.0),
            slices: self.slices,
        }
    }
}

/// The median over launches of each launch's median over its rounds: rounds of one launch are not independent.
fn over_launches(
    base: &[Vec<Slice>],
    own: &[Vec<Slice>],
    change: fn(&Slice, &Slice) -> f64,
) -> Median {
    let launches = base.iter().zip(own).map(|(base, own)| {
        let rounds: Vec<f64> = base.iter().zip(own).map(|(b, o)| change(b, o)).collect();
        median(&rounds).median
    });
    median(&launches.collect::<Vec<_>>())
}

/// Shuffles by Fisher and Yates, with numbers of xorshift.
fn shuffle(order: &mut [usize], random: &mut u64) {
    for last in (1..order.len()).rev() {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        // The remainder is at most `last`, a number of variants.
        order.swap(last, usize::try_from(*random % (last as u64 + 1)).unwrap_or(last));
    }
}

/// Processor time of the threads of a process, which the scheduler counts in nanoseconds.
fn cpu_us(process: u32) -> Option<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let path = thread.ok()?.path().join("schedstat");
        let text = std::fs::read_to_string(path).ok()?;
        sum += text.split_whitespace().next()?.parse::<f64>().ok()? / 1e3;
    }
    Some(sum)
}

/// Counts the records of all traces in a folder, and those that are missing.
fn count(folder: &Path) -> Result<(u64, u64)> {
    let (mut records, mut lost) = (0, 0);
    for path in view::traces(folder)? {
        let mut frames = Frames::open(&path).map_err(Error::Recorder)?;
        let mut counters = Counters::default();
        while let Some(frame) = frames.next_frame().map_err(Error::Recorder)? {
            match frame {
                Frame::Records(found) => records += found.len() as u64,
                // Each frame of counters has all since the beginning.
                Frame::Counters(latest) => counters = latest,
                _ => {}
            }
        }
        lost += counters.without_ring + counters.overwritten + counters.deleted;
    }
    Ok((records, lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_recorder_is_measured_beside_ours_only_with_its_collector() {
        let options = |collector: Option<&str>| Options {
            launches: 1,
            rounds: 1,
            slice: Duration::from_millis(10),
            writers: 1,
            batch_size: 1,
            collector: collector.map(str::to_owned),
        };
        let alone = options(None);
        assert!(choices(&alone).iter().all(|choice| choice.collector.is_none()));
        let beside = options(Some("http://127.0.0.1:4318"));
        let names: Vec<_> = choices(&beside)
            .into_iter()
            .filter(|choice| choice.collector.is_some())
            .map(|choice| choice.name)
            .collect();
        assert_eq!(names, ["opentelemetry, spans", "opentelemetry, full"]);
        assert_eq!(choices(&beside).len(), choices(&alone).len() + names.len());
    }
}
