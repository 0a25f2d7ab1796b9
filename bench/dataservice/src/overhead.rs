//! The overhead of recording: services at each stage, which take turns in short slices, so that each slice is compared
//! with one of the same second.

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

/// The variants. The second service without recording shows the noise: its overhead is known to be zero.
const VARIANTS: [(&str, Stage); 5] = [
    ("off", Stage::Off),
    ("off, again", Stage::Off),
    ("context only (stage 1)", Stage::Context),
    ("spans (stage 2)", Stage::Spans),
    ("full", Stage::Full),
];

/// The measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds; each has a slice of each variant.
    pub rounds: u32,
    /// Time of a slice.
    pub slice: Duration,
    /// Calls that are under way at a time.
    pub writers: u32,
    /// Keys of a put; 1 is the smallest call.
    pub batch_size: u32,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Number of rounds.
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
    /// Records in the traces: a side of a call has one, and its details one or two more.
    pub records: u64,
    /// Records that were left out, for want of a ring or because they were overwritten before they were drained.
    pub records_lost: u64,
    /// Throughput that is lost against the slice of the same round without recording, in percent.
    pub throughput_overhead_percent: Median,
    /// The median's increase, in percent.
    pub p50_overhead_percent: Median,
    /// The 99th percentile's increase, in percent.
    pub p99_overhead_percent: Median,
    /// Each slice.
    pub slices: Vec<Slice>,
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

/// A service with its client, at one stage.
struct Service {
    name: &'static str,
    client: Process,
    servers: Vec<Process>,
    _sockets: Folder,
    traces: Folder,
    all: Latencies,
    seconds: f64,
    cpu_us: f64,
    slices: Vec<Slice>,
}

/// Measures all variants.
///
/// # Errors
/// A process cannot be started, or fails.
pub fn measure(launcher: &Launcher, options: &Options) -> Result<Outcome> {
    let services: Result<Vec<Service>> = VARIANTS
        .iter()
        .map(|(name, stage)| Service::start(launcher, options, name, *stage))
        .collect();
    let mut services = services?;
    for service in &mut services {
        for _ in 0..WARM_UP {
            service.slice(options.slice)?;
        }
        service.forget();
    }
    let mut random = SEED;
    let mut order: Vec<usize> = (0..services.len()).collect();
    for _ in 0..options.rounds {
        // In another order each round, so that no variant always follows the same one.
        shuffle(&mut order, &mut random);
        for turn in &order {
            services[*turn].slice(options.slice)?;
        }
    }
    let base: Vec<Slice> = services.first().map(|s| s.slices.clone()).unwrap_or_default();
    let variants: Result<Vec<Variant>> =
        services.into_iter().map(|service| service.end(&base)).collect();
    Ok(Outcome {
        rounds: options.rounds,
        slice_ms: u64::try_from(options.slice.as_millis()).unwrap_or(u64::MAX),
        writers: options.writers,
        batch_size: options.batch_size,
        variants: variants?,
    })
}

impl Service {
    fn start(
        launcher: &Launcher,
        options: &Options,
        name: &'static str,
        stage: Stage,
    ) -> Result<Self> {
        let traces = Folder::new()?;
        let trace: Option<PathBuf> = (stage != Stage::Off).then(|| traces.path().to_owned());
        let config = Config { batch_size: options.batch_size, ..Config::default() };
        let launcher = Launcher { stage, trace, config, ..launcher.clone() };
        let sockets = Folder::new()?;
        let (servers, paths) = servers(&launcher, &sockets)?;
        let size = Size { writers: options.writers, ..Size::default() };
        let client = launcher.client(0, Work::Steady, &size, &paths)?;
        Ok(Self {
            name,
            client,
            servers,
            _sockets: sockets,
            traces,
            all: Latencies::default(),
            seconds: 0.0,
            cpu_us: 0.0,
            slices: Vec::new(),
        })
    }

    fn slice(&mut self, time: Duration) -> Result<()> {
        let before = self.cpu_us();
        self.client.tell(&time.as_millis().to_string())?;
        let report = report(&self.client)?;
        let cpu_us = self.cpu_us() - before;
        let mut latencies = Latencies::default();
        latencies.merge(&report.latencies);
        self.all.merge(&report.latencies);
        self.seconds += report.seconds;
        self.cpu_us += cpu_us;
        self.slices.push(Slice {
            calls_per_second: latencies.count() as f64 / report.seconds,
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            cpu_us_per_call: cpu_us / latencies.count() as f64,
        });
        Ok(())
    }

    /// Processor time of all processes so far, in microseconds.
    fn cpu_us(&self) -> f64 {
        let processes = self.servers.iter().chain([&self.client]);
        processes.map(|process| cpu_us(process.id()).unwrap_or(f64::NAN)).sum()
    }

    fn forget(&mut self) {
        self.all = Latencies::default();
        self.seconds = 0.0;
        self.cpu_us = 0.0;
        self.slices.clear();
    }

    fn end(mut self, base: &[Slice]) -> Result<Variant> {
        self.client.wait()?;
        for server in &mut self.servers {
            server.wait()?;
        }
        let (records, records_lost) = count(self.traces.path())?;
        let compare = |change: fn(&Slice, &Slice) -> f64| {
            let pairs = base.iter().zip(&self.slices);
            median(&pairs.map(|(base, own)| change(base, own)).collect::<Vec<_>>())
        };
        Ok(Variant {
            name: self.name,
            calls: self.all.count(),
            calls_per_second: self.all.count() as f64 / self.seconds,
            p50_us: self.all.quantile_us(0.5),
            p99_us: self.all.quantile_us(0.99),
            cpu_us_per_call: self.cpu_us / self.all.count() as f64,
            cpu_overhead_percent: compare(|base, own| {
                (own.cpu_us_per_call / base.cpu_us_per_call - 1.0) * 100.0
            }),
            records,
            records_lost,
            throughput_overhead_percent: compare(|base, own| {
                (1.0 - own.calls_per_second / base.calls_per_second) * 100.0
            }),
            p50_overhead_percent: compare(|base, own| (own.p50_us / base.p50_us - 1.0) * 100.0),
            p99_overhead_percent: compare(|base, own| (own.p99_us / base.p99_us - 1.0) * 100.0),
            slices: self.slices,
        })
    }
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
