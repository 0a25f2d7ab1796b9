//! Measures the limits of a block device at a user's request.
//!
//! # Invariants
//! - A raw device is never written. Writes go to a temporary file, which loses its name before the first byte is
//!   in it, so that it disappears with this process in any case.
//! - The maxima are measured with several requests in flight, and around the page cache (`O_DIRECT`) if the file
//!   system supports that. Otherwise, written data is synced and read data is dropped from the cache, and the
//!   result says so.
//! - The measurements are repeated in turns, so that other load affects all of them. The result is the median
//!   with its spread.
//!
//! `target` finds device and folder, `scratch` makes the file, `measure` does the work, `busy` measures other
//! load on the device.

mod busy;
mod measure;
mod scratch;
mod target;

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use skopos_sense::Root;
use skopos_sense::calibration::{Load, Measure, Measured, Method};

use measure::{Area, BLOCK_BYTES, IN_FLIGHT};
use skopos_term::Failure;

pub use busy::busy_ratio;
use scratch::Scratch;
pub use scratch::check_space;
pub use target::Target;

/// Largest number of random reads in flight: the queue of an old device. More threads would wait for a core.
const RANDOM_IN_FLIGHT: u64 = 32;

/// The parameters of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Size of the file.
    pub bytes: u64,
    /// Time for each of the four measurements, all runs together.
    pub time: Duration,
    /// Number of runs of each measurement.
    pub runs: u32,
    /// True to read from the raw device.
    pub raw: bool,
}

/// The results of all runs.
#[derive(Default)]
struct Runs {
    read: Vec<f64>,
    write: Vec<f64>,
    random: Vec<f64>,
    latency: Vec<f64>,
}

/// Measures `target`, and reports each step to `progress`.
///
/// # Errors
/// There is neither a folder for the file nor the permission to read the device; there is too little space;
/// input or output fails.
pub fn measure(
    root: &Root,
    target: &Target,
    plan: &Plan,
    load: Load,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, Failure> {
    let device = match (&target.folder, plan.raw) {
        (Some(_), false) => None,
        _ => Some(open_device(root, target)?),
    };
    let scratch = match &target.folder {
        Some(folder) => {
            progress(&format!(
                "writing {} to a temporary file",
                skopos_term::format::bytes(plan.bytes as f64)
            ));
            Some(Scratch::make(folder, plan.bytes)?)
        }
        None => None,
    };
    let used_bytes = match &scratch {
        Some(_) => plan.bytes,
        None => plan.bytes.min(target.disk.as_ref().map_or(0, |disk| disk.size_bytes)),
    };
    let direct = scratch.as_ref().is_none_or(|scratch| scratch.direct);
    let area =
        |file, is_cached| Area { file, bytes: used_bytes, block_bytes: BLOCK_BYTES, is_cached };
    let written = scratch.as_ref().map(|s| area(&s.file, !s.direct));
    let read = match (&device, &written) {
        (Some(device), _) => area(device, false),
        (None, Some(written)) => *written,
        (None, None) => {
            return Err(Failure::new("there is neither a device nor a folder to measure"));
        }
    };
    let random_in_flight =
        target.concurrency.map_or(RANDOM_IN_FLIGHT, |n| n.clamp(1, RANDOM_IN_FLIGHT));
    let runs = run_all(plan, &read, written.as_ref(), random_in_flight, progress)
        .map_err(|e| Failure::new("the measurement failed").because(&e))?;
    let all = |runs| Measure::of(runs).ok_or_else(|| Failure::new("the measurement has no runs"));
    Ok(Measured {
        measured_at_seconds: skopos_shm::now().as_nanos() as f64 / 1e9,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        method: Method {
            reads_from: match &device {
                Some(_) => "the raw device".to_owned(),
                None => target.file_in_words(),
            },
            writes_to: scratch.as_ref().map(|_| target.file_in_words()),
            direct,
            used_bytes,
            block_bytes: BLOCK_BYTES,
            in_flight: IN_FLIGHT,
            random_in_flight,
            runs: plan.runs.into(),
        },
        load,
        read_bytes_per_second: all(runs.read)?,
        write_bytes_per_second: Measure::of(runs.write),
        read_requests_per_second: all(runs.random)?,
        idle_read_latency_seconds: all(runs.latency)?,
    })
}

fn run_all(
    plan: &Plan,
    read: &Area<'_>,
    written: Option<&Area<'_>>,
    random_in_flight: u64,
    progress: &mut dyn FnMut(&str),
) -> io::Result<Runs> {
    let time = plan.time / plan.runs.max(1);
    let mut runs = Runs::default();
    for run in 1..=plan.runs {
        progress(&format!("run {run} of {}", plan.runs));
        if let Some(written) = written {
            runs.write.push(measure::write_bandwidth(written, IN_FLIGHT, time)?);
        }
        runs.read.push(measure::read_bandwidth(read, IN_FLIGHT, time)?);
        runs.random.push(measure::random_reads(read, random_in_flight, time)?);
        runs.latency.push(measure::idle_latency(read, time)?);
    }
    Ok(runs)
}

fn open_device(root: &Root, target: &Target) -> Result<File, Failure> {
    let Some(disk) = &target.disk else {
        return Err(Failure::new(
            "this file system is not on a block device, so there is no device to read",
        ));
    };
    let path = root.dev.join(&disk.name);
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::empty()).map(File::from).map_err(|e| {
        Failure::new(format!("{} cannot be read", path.display())).because(&e).hint(
            "reading a raw device needs root, and not every machine allows it; name a folder on the \
             device that you may write to: `skopos calibrate FOLDER`",
        )
    })
}
