//! `skopos calibrate`: measures the speed of a device, and stores it for the sensor `device`.

use clap::Args;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use skopos_sense::Root;
use skopos_sense::calibration::{Calibration, Calibrations, Load, Measure, Measured};
use skopos_sense::disk::Disk;

use skopos_agent::calibrate::{self, Plan, Target, busy_ratio, check_space};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::format;
use skopos_term::state;
use skopos_term::{Out, Style, tell};

/// Time for which the device is watched before it is measured.
const WATCH: Duration = Duration::from_secs(1);

/// A device that is busier than this is not measured unless the user says so.
const MAX_BUSY: f64 = 0.2;

/// Runs that differ by more than this share of their median were disturbed.
const MAX_SPREAD: f64 = 0.25;

/// `docs/json/calibrate.schema.json`.
#[derive(Serialize)]
struct Report<'a> {
    disk: Option<&'a Disk>,
    file_system: Option<&'a str>,
    folder: Option<&'a Path>,
    #[serde(flatten)]
    measured: &'a Measured,
    stored: Option<&'a Path>,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Block device (nvme0n1, /dev/sda), mount point, or folder that you may write to
    #[arg(value_name = "DEVICE|FOLDER")]
    pub(crate) target: String,
    /// Size of the temporary file; it should exceed the cache of the device
    #[arg(long, default_value = "256MiB", value_parser = size)]
    pub(crate) size: u64,
    /// Time for each of four measurements: read, write, random reads, latency
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Repetitions of each measurement within that time
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Read from the device instead of the file (root only; blocks that were never written may be
    /// faster than the device)
    #[arg(long)]
    pub(crate) raw: bool,
    /// Do not ask, and measure even a busy device
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The smallest file of a calibration: eight requests in flight of 1 MiB each.
const MIN_SIZE: u64 = 8 << 20;
/// The largest file: larger than the cache of any device.
const MAX_SIZE: u64 = 1 << 40;

/// Parses `256MiB`, `1GiB` or `1000000000`; the result is a whole number of MiB.
fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let parsed = units.iter().find_map(|(unit, shift)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(1 << shift)
    });
    match parsed {
        Some(bytes) if (MIN_SIZE..=MAX_SIZE).contains(&bytes) => Ok(bytes >> 20 << 20),
        Some(_) => Err("a size is from 8MiB to 1TiB".to_owned()),
        None => Err(format!("`{text}` is not a size: try `256MiB` or `1GiB`")),
    }
}

/// Parses the seconds of a measurement.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds from 0.05 to 3600")),
    }
}

pub(crate) fn run(global: &Global, args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    let root = Root::default();
    let target = Target::find(&root, &args.target)?;
    let plan = Plan {
        bytes: args.size,
        time: Duration::from_secs_f64(args.seconds),
        runs: args.runs,
        raw: args.raw,
    };
    if let Some(folder) = &target.folder {
        check_space(folder, plan.bytes)?;
    }
    // Checked before the measurement, whose result could otherwise not be stored.
    let store = match &target.disk {
        Some(_) => Some(prepare_store()?),
        None => None,
    };
    let load = look_around(&root, &target, args)?;
    confirm(&target, &plan, args)?;
    let mut told = |what: &str| tell(format!("calibrate: {what}"));
    let measured = calibrate::measure(&root, &target, &plan, load, &mut told)?;
    if let (Some(disk), Some(path)) = (&target.disk, &store) {
        let calibration = Calibration { disk: disk.clone(), measured: measured.clone() };
        Calibrations::store(path, &calibration).map_err(|e| cannot_store(path, &e))?;
    }
    warn_of_spread(&measured);
    print(global, &target, &measured, store)?;
    Ok(ExitCode::SUCCESS)
}

/// The file for the result, in a folder that exists.
fn prepare_store() -> Result<PathBuf, Failure> {
    let path = state::calibration().ok_or_else(|| {
        Failure::new("there is no folder to store the result in")
            .hint("set SKOPOS_STATE to a folder of yours, or HOME")
    })?;
    Calibrations::prepare(&path).map_err(|e| cannot_store(&path, &e))?;
    Ok(path)
}

fn cannot_store(path: &Path, why: &io::Error) -> Failure {
    let path = path.display();
    let failure = Failure::new(format!("{path} cannot be stored")).because(why);
    match why.kind() {
        // Not replaced: a user can repair the file, which has the results of all devices.
        io::ErrorKind::InvalidData => failure.hint(format!(
            "it cannot be understood: move it away, `mv {path} {path}.damaged`, and measure each \
             device again"
        )),
        _ => failure.hint("set SKOPOS_STATE to a folder of yours"),
    }
}

/// Checks the load of the device and of the machine.
fn look_around(root: &Root, target: &Target, args: &CalibrateArgs) -> Result<Load, Failure> {
    let name = target.disk.as_ref().map(|disk| disk.name.as_str());
    let busy = name.and_then(|name| busy_ratio(root, name, WATCH));
    if let (Some(name), Some(busy)) = (name, busy.filter(|&busy| busy > MAX_BUSY)) {
        let what = format!("{name} is busy {:.0} % of the time", busy * 100.0);
        if !args.yes {
            return Err(Failure::no(format!("{what}: a measurement would not reach its maximum"))
                .hint("wait until it is idle, or measure anyway with `--yes`"));
        }
        tell(format!("warning: {what}; the result is less than its maximum"));
    }
    let load_1m = std::fs::read_to_string(root.proc.join("loadavg"))
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if let Some(load) = load_1m.filter(|&load| load > cores as f64) {
        tell(format!(
            "warning: {load} tasks want {cores} cores; a fast device is measured too slow"
        ));
    }
    Ok(Load { device_busy_ratio: busy, load_1m })
}

/// Asks the user, because a measurement slows down all other users of the device.
fn confirm(target: &Target, plan: &Plan, args: &CalibrateArgs) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let seconds = plan.time.as_secs_f64() * 4.0;
    let device = target.disk.as_ref().map_or("this file system", |disk| disk.name.as_str());
    let what = match &target.folder {
        Some(folder) => format!(
            "This loads {device} for about {seconds:.0} s, with a temporary file of {} in {}.",
            format::bytes(plan.bytes as f64),
            folder.display()
        ),
        None => format!("This loads {device} for about {seconds:.0} s with reads."),
    };
    if !io::stdin().is_terminal() {
        return Err(Failure::new(what).hint("without a terminal, agree with `--yes`"));
    }
    let mut stderr = io::stderr();
    write!(stderr, "{what}\nGo on? [y/N] ").and_then(|()| stderr.flush())?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::no("nothing was measured")),
    }
}

fn warn_of_spread(measured: &Measured) {
    let all = [
        ("reads", Some(&measured.read_bytes_per_second)),
        ("writes", measured.write_bytes_per_second.as_ref()),
        ("random reads", Some(&measured.read_requests_per_second)),
    ];
    for (what, measure) in all {
        if let Some(spread) = measure.map(Measure::spread_ratio).filter(|&s| s > MAX_SPREAD) {
            tell(format!(
                "warning: runs of {what} differ by {:.0} %: something else was at work; repeat it \
                 when the machine is quiet, or with more --seconds",
                spread * 100.0
            ));
        }
    }
}

fn print(
    global: &Global,
    target: &Target,
    measured: &Measured,
    stored: Option<PathBuf>,
) -> Result<(), Failure> {
    let mut out = Out::new(global.style());
    if out.style == Style::Json {
        out.json(&Report {
            disk: target.disk.as_ref(),
            file_system: target.file_system.as_deref(),
            folder: target.folder.as_deref(),
            measured,
            stored: stored.as_deref(),
        })?;
        return Ok(out.flush()?);
    }
    let rows = rows(measured, out.style);
    if out.style == Style::Plain {
        for row in rows {
            out.line(row.join("\t"))?;
        }
        return Ok(out.flush()?);
    }
    let title = out.bold(&title(target));
    out.line(title)?;
    out.table(&rows, &[1])?;
    for line in conditions(measured) {
        let line = out.dim(&line);
        out.line(line)?;
    }
    out.line(match stored {
        Some(path) => format!("stored in {}; a running agent takes it soon", path.display()),
        None => "not stored: no block device holds this file system".to_owned(),
    })?;
    Ok(out.flush()?)
}

fn title(target: &Target) -> String {
    match &target.disk {
        Some(disk) => {
            let model = disk.model.as_deref().map(|model| format!(", {model}")).unwrap_or_default();
            let size = format::bytes(disk.size_bytes as f64);
            format!("{}: {}{model}, {size}", disk.name, disk.kind)
        }
        None => target.file_system.clone().unwrap_or_default(),
    }
}

/// Prints the measurements: the median, and the range.
fn rows(measured: &Measured, style: Style) -> Vec<Vec<String>> {
    let bandwidth = |value: f64| format!("{}/s", format::bytes(value));
    let requests = |value: f64| format!("{value:.0} requests/s");
    let latency = |value: f64| format!("{:.1} µs", value * 1e6);
    type Shown<'a> = (&'static str, Option<&'a Measure>, &'a dyn Fn(f64) -> String);
    let all: [Shown<'_>; 4] = [
        ("read", Some(&measured.read_bytes_per_second), &bandwidth),
        ("write", measured.write_bytes_per_second.as_ref(), &bandwidth),
        ("random 4 KiB reads", Some(&measured.read_requests_per_second), &requests),
        ("one 4 KiB read", Some(&measured.idle_read_latency_seconds), &latency),
    ];
    let row = |(what, measure, shown): Shown<'_>| {
        let Measure { median, min, max, runs } = measure?;
        Some(match style {
            Style::Plain => {
                vec![what.to_owned(), median.to_string(), min.to_string(), max.to_string()]
            }
            _ => {
                let range = format!("{} to {} in {} runs", shown(*min), shown(*max), runs.len());
                vec![format!("  {what}"), shown(*median), range]
            }
        })
    };
    all.into_iter().filter_map(row).collect()
}

fn conditions(measured: &Measured) -> Vec<String> {
    let method = &measured.method;
    let cache = match method.direct {
        true => "around the page cache (O_DIRECT)",
        false => {
            "by way of the page cache, which was synced and dropped: O_DIRECT is not possible here"
        }
    };
    let mut lines = vec![
        format!("  read from {}, {cache}", method.reads_from),
        format!(
            "  {} requests of {} in flight, {} random ones; {} used",
            method.in_flight,
            format::bytes(method.block_bytes as f64),
            method.random_in_flight,
            format::bytes(method.used_bytes as f64)
        ),
    ];
    match &method.writes_to {
        Some(file) => lines.push(format!("  wrote to {file}, synced at the end")),
        None => lines.push("  no writes: no file system of the device is mounted".to_owned()),
    }
    let busy = measured.load.device_busy_ratio.map(|busy| format!("{:.0} % busy", busy * 100.0));
    let load = measured.load.load_1m.map(|load| format!("load {load}"));
    let around: Vec<_> = busy.into_iter().chain(load).collect();
    if !around.is_empty() {
        lines.push(format!("  before: {}", around.join(", ")));
    }
    lines
}
