//! The measured limits of devices, as `skopos calibrate` stores them.
//!
//! One JSON file holds all devices of a machine, so that it can be read and copied:
//!
//! ```json
//! {"version": 1, "devices": {"nvme0n1": {"disk": {...}, "measured_at_seconds": 1.8e9,
//!   "kernel": "6.18.5", "method": {...}, "load": {...}, "read_bytes_per_second": {...}, ...}}}
//! ```
//!
//! The file is replaced as a whole: the new content is written to a temporary file beside it,
//! synced and renamed. A file that has another version, is too large or is not JSON is an error as
//! a whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk::Disk;

/// The version of the format that this code writes and reads.
pub const VERSION: u32 = 1;

/// The largest file. A thousand devices take less; a larger file was not written by Skopos.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// All calibrations of a machine, by the kernel's name of the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrations {
    /// [`VERSION`].
    pub version: u32,
    /// The latest calibration of each device.
    pub devices: BTreeMap<String, Calibration>,
}

/// The measured limits of one device, and the conditions of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The device. A device of another size or model is not the one that was measured.
    pub disk: Disk,
    /// The results, and how they were measured.
    #[serde(flatten)]
    pub measured: Measured,
}

/// The results of one measurement, and how they were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The time of the measurement, as UNIX time in seconds.
    pub measured_at_seconds: f64,
    /// The kernel's release.
    pub kernel: String,
    /// The method of the measurement.
    pub method: Method,
    /// The load of the machine at that time.
    pub load: Load,
    /// Highest bandwidth of sequential reads, in bytes a second.
    pub read_bytes_per_second: Measure,
    /// Highest bandwidth of sequential writes, in bytes a second. `None` if the device has no file
    /// system for a temporary file, since Skopos never writes to a raw device.
    pub write_bytes_per_second: Option<Measure>,
    /// Random reads of 4 KiB with many in flight, in requests a second.
    pub read_requests_per_second: Measure,
    /// One random read of 4 KiB with no other in flight, in seconds.
    pub idle_read_latency_seconds: Measure,
}

/// Several runs of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// The median of the runs.
    pub median: f64,
    /// The smallest result.
    pub min: f64,
    /// The greatest result.
    pub max: f64,
    /// All results, in the order in which they were measured.
    pub runs: Vec<f64>,
}

impl Measure {
    /// Summarises `runs`; `None` if there are no runs.
    pub fn of(runs: Vec<f64>) -> Option<Self> {
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Some(Self { median, min, max, runs })
    }

    /// Returns the distance from the smallest to the greatest result, as a share of the median.
    pub fn spread_ratio(&self) -> f64 {
        if self.median > 0.0 { (self.max - self.min) / self.median } else { 0.0 }
    }
}

/// The method by which a device was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// The source of the reads: the raw device, or a temporary file on it.
    pub reads_from: String,
    /// The destination of the writes: a temporary file, if anything was written.
    pub writes_to: Option<String>,
    /// True if reads and writes went around the page cache (`O_DIRECT`).
    pub direct: bool,
    /// The part of the device that was used, in bytes: the size of the file, or of the part that
    /// was read from the device.
    pub used_bytes: u64,
    /// Length of a sequential request, in bytes.
    pub block_bytes: u64,
    /// Sequential requests in flight at a time.
    pub in_flight: u64,
    /// Random reads in flight at a time.
    pub random_in_flight: u64,
    /// The number of times each measurement was repeated.
    pub runs: u64,
}

/// The load of a machine while it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Share of the time before the measurement in which the device was busy.
    pub device_busy_ratio: Option<f64>,
    /// The machine's load average over a minute.
    pub load_1m: Option<f64>,
}

impl Calibrations {
    /// Reads the file; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, is too large, does not have this format or has another version.
    pub fn load(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let meta = file.metadata()?;
        // Reading a pipe could wait for ever, and a device file may not have an end.
        if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
            return Err(invalid(format!("not a file of at most {MAX_FILE_BYTES} bytes")));
        }
        let read: Self = serde_json::from_reader(io::Read::take(file, MAX_FILE_BYTES))
            .map_err(|e| invalid(e.to_string()))?;
        if read.version != VERSION {
            return Err(invalid(format!(
                "its version is {}; this program reads version {VERSION}",
                read.version
            )));
        }
        Ok(Some(read))
    }

    /// Makes the folder of the file and reads an existing file, so that an error shows before the
    /// measurement and not after it.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load); or the folder cannot be made or written to.
    pub fn prepare(path: &Path) -> io::Result<()> {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        fs::create_dir_all(folder)?;
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)?;
        Self::load(path).map(drop)
    }

    /// Stores the calibration of one device in the file and leaves the others as they are. Makes
    /// the file and its folder if they do not exist.
    ///
    /// # Errors
    /// An existing file cannot be read (then it is not replaced), or writing fails.
    pub fn store(path: &Path, calibration: &Calibration) -> io::Result<()> {
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        fs::create_dir_all(folder)?;
        let mut all =
            Self::load(path)?.unwrap_or(Self { version: VERSION, devices: BTreeMap::new() });
        all.devices.insert(calibration.disk.name.clone(), calibration.clone());
        // The process id is in the name, so that two processes that store at the same time do not
        // write into one file.
        let beside = path.with_extension(format!("json.{}", std::process::id()));
        let stored = write_synced(&beside, &all).and_then(|()| fs::rename(&beside, path));
        if stored.is_err() {
            let _ = fs::remove_file(&beside);
        }
        stored?;
        File::open(folder)?.sync_all()
    }
}

fn write_synced(path: &Path, all: &Calibrations) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(all)?;
    text.push(b'\n');
    let mut file = File::create(path)?;
    file.write_all(&text)?;
    file.sync_all()
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration(name: &str) -> Calibration {
        let measure = || Measure::of(vec![3.0, 1.0, 2.0]).expect("runs");
        let disk = Disk {
            name: name.to_owned(),
            kind: "nvme".to_owned(),
            model: Some("M".to_owned()),
            serial: None,
            size_bytes: 1 << 40,
        };
        Calibration {
            disk,
            measured: Measured {
                measured_at_seconds: 1.8e9,
                kernel: "6.18".to_owned(),
                method: Method {
                    reads_from: "/dev/nvme0n1".to_owned(),
                    writes_to: None,
                    direct: true,
                    used_bytes: 1 << 28,
                    block_bytes: 1 << 20,
                    in_flight: 8,
                    random_in_flight: 32,
                    runs: 3,
                },
                load: Load { device_busy_ratio: Some(0.0), load_1m: None },
                read_bytes_per_second: measure(),
                write_bytes_per_second: Some(measure()),
                read_requests_per_second: measure(),
                idle_read_latency_seconds: measure(),
            },
        }
    }

    #[test]
    fn medians() {
        let median = |runs: &[f64]| Measure::of(runs.to_vec()).map(|m| m.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_stored_calibration_is_loaded_and_others_stay() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("deep/calibration.json");
        assert_eq!(Calibrations::load(&path).expect("nothing there"), None);
        for name in ["nvme0n1", "sda", "sda"] {
            Calibrations::store(&path, &calibration(name)).expect("writable");
        }
        let all = Calibrations::load(&path).expect("readable").expect("there");
        assert_eq!(all.devices.keys().collect::<Vec<_>>(), ["nvme0n1", "sda"]);
        assert_eq!(all.devices["sda"], calibration("sda"));
        let beside = fs::read_dir(path.parent().expect("a folder")).expect("readable").count();
        assert_eq!(beside, 1, "nothing is left beside it");
    }

    #[test]
    fn a_foreign_file_is_refused_and_not_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("calibration.json");
        for text in ["", "{", "[1]", r#"{"version": 2, "devices": {}}"#] {
            fs::write(&path, text).expect("writable");
            assert!(Calibrations::load(&path).is_err(), "{text}");
            assert!(Calibrations::prepare(&path).is_err(), "{text}");
            assert!(Calibrations::store(&path, &calibration("sda")).is_err(), "{text}");
            assert_eq!(fs::read_to_string(&path).expect("readable"), text);
        }
    }
}
