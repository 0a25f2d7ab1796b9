//! `block`: block devices and partitions, from `/proc/diskstats`
//! (Documentation/admin-guide/iostats.rst).
//!
//! With d(x) as the growth of x since the last poll, these are computed like in iostat:
//! `read_latency = d(read seconds) / d(reads)`, `write_latency` likewise, `queue_depth_mean =
//! d(queue seconds) / d(time)`, `busy_ratio = d(busy seconds) / d(time)`. Where a counter went
//! backwards (the device was added anew, or the kernel's 32-bit milliseconds wrapped), the facts
//! that are computed from it are not set.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_model::schema::block::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::file::KernelFile;
use crate::instances::{Instance, Instances};
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most devices and partitions with facts. A storage server with 100 disks, each reached by two
/// paths and with a few partitions, has fewer.
const MAX_DEVICES: usize = 512;

/// The quantity that a column counts.
#[derive(Clone, Copy)]
enum Column {
    Count(&'static Metric),
    Sectors(&'static Metric),
    Millis(&'static Metric),
    /// Merged requests, on which a reader could not act.
    Unused,
}
use Column::{Count, Millis, Sectors, Unused};

/// diskstats counts in sectors of 512 bytes, whatever the device's own sector size.
const SECTOR_BYTES: u64 = 512;

/// The columns after the name: 11 of them, 15 since 4.18 (discards), 17 since 5.5 (flushes).
static COLUMNS: [Column; 17] = [
    Count(&READ_REQUESTS_TOTAL),
    Unused,
    Sectors(&READ_BYTES_TOTAL),
    Millis(&READ_SECONDS_TOTAL),
    Count(&WRITTEN_REQUESTS_TOTAL),
    Unused,
    Sectors(&WRITTEN_BYTES_TOTAL),
    Millis(&WRITTEN_SECONDS_TOTAL),
    Count(&IN_FLIGHT),
    Millis(&BUSY_SECONDS_TOTAL),
    Millis(&QUEUE_SECONDS_TOTAL),
    Count(&DISCARDED_REQUESTS_TOTAL),
    Unused,
    Sectors(&DISCARDED_BYTES_TOTAL),
    Millis(&DISCARDED_SECONDS_TOTAL),
    Count(&FLUSH_REQUESTS_TOTAL),
    Millis(&FLUSH_SECONDS_TOTAL),
];
const READS: usize = 0;
const READ_MILLIS: usize = 3;
const WRITES: usize = 4;
const WRITE_MILLIS: usize = 7;
const BUSY_MILLIS: usize = 9;
const QUEUE_MILLIS: usize = 10;

/// The numbers of one line, and the time when they were read.
#[derive(Clone, Copy)]
struct Reading {
    at: Duration,
    columns: [u64; COLUMNS.len()],
    known: usize,
}

/// The state of a device between two polls.
struct Device {
    last: Option<Reading>,
    /// The device had no medium at the last check: a loop device without its file, or an empty card
    /// reader. The kernel still lists it with its old counters.
    is_empty: bool,
}

pub(crate) struct Block {
    file: KernelFile,
    /// The folder of the devices' sizes.
    class: PathBuf,
    devices: Instances<Device>,
}

impl Block {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        Ok(Self {
            file: KernelFile::open_or_skip(&root.proc.join("diskstats"), "block")?,
            class: root.sys.join("class/block"),
            devices: Instances::new(&block::FAMILY, MAX_DEVICES),
        })
    }
}

/// Returns true if sysfs gives a size of 0 for the device, or for the device that it is a partition
/// of. This is checked when the device is first seen; while it is empty, also whenever it counts
/// something.
fn is_empty(class: &Path, name: &[u8]) -> bool {
    let folder = class.join(OsStr::from_bytes(name));
    // The folder of a partition lies in that of its device. A partition stays, and keeps its size,
    // when a loop device loses its file.
    let mut sizes = ["size", "../size"].into_iter().map(|size| folder.join(size));
    sizes.any(|path| std::fs::read(path).is_ok_and(|size| parse::trim(&size) == b"0"))
}

impl Sensor for Block {
    fn family(&self) -> &'static Family {
        &block::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let text = self.file.read()?;
        self.devices.begin();
        for line in parse::lines(text) {
            // "254 0 vda 50534 8496 3457738 ...": major, minor, name, the columns.
            let mut words = parse::words(line);
            let Some(name) = words.nth(2) else { continue };
            let mut now = Reading { at: tick.monotonic, columns: [0; COLUMNS.len()], known: 0 };
            for (column, number) in now.columns.iter_mut().zip(words.map_while(parse::u64)) {
                *column = number;
                now.known += 1;
            }
            // The kernel makes idle loop and RAM devices by the dozen.
            if now.columns.iter().all(|&n| n == 0) {
                continue;
            }
            let class = &self.class;
            let new = || Device { last: None, is_empty: is_empty(class, name) };
            let Some(device) = self.devices.see(tick.sink, name, new) else { continue };
            let last = device.state.last.replace(now);
            if device.state.is_empty {
                if last.is_none_or(|last| last.columns == now.columns) {
                    continue;
                }
                device.state.is_empty = is_empty(class, name);
            }
            set_columns(device, tick, &now);
            if let Some(last) = last {
                set_derived(device, tick, &last, &now);
            }
        }
        self.devices.end(tick.sink);
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.devices.skips()
    }
}

fn set_columns(device: &mut Instance<Device>, tick: &mut Tick<'_>, now: &Reading) {
    for (column, number) in COLUMNS.iter().zip(now.columns).take(now.known) {
        match *column {
            Count(metric) => device.set(tick, metric, number),
            Sectors(metric) => {
                if let Some(bytes) = number.checked_mul(SECTOR_BYTES) {
                    device.set(tick, metric, bytes);
                }
            }
            Millis(metric) => device.set(tick, metric, number as f64 / 1e3),
            Unused => {}
        }
    }
}

fn set_derived(device: &mut Instance<Device>, tick: &mut Tick<'_>, last: &Reading, now: &Reading) {
    let known = last.known.min(now.known);
    let growth = |column: usize| {
        let grown = now.columns[column].checked_sub(last.columns[column])?;
        (column < known).then_some(grown as f64)
    };
    let latency = |requests, millis| {
        let requests = growth(requests).filter(|&n| n > 0.0)?;
        Some(growth(millis)? / 1e3 / requests)
    };
    let passed = now.at.saturating_sub(last.at).as_secs_f64() * 1e3;
    let per_time = |millis| growth(millis).filter(|_| passed > 0.0).map(|grown| grown / passed);
    if let Some(seconds) = latency(READS, READ_MILLIS) {
        device.set(tick, &READ_LATENCY_SECONDS, seconds);
    }
    if let Some(seconds) = latency(WRITES, WRITE_MILLIS) {
        device.set(tick, &WRITE_LATENCY_SECONDS, seconds);
    }
    if let Some(depth) = per_time(QUEUE_MILLIS) {
        device.set(tick, &QUEUE_DEPTH_MEAN, depth);
    }
    if let Some(ratio) = per_time(BUSY_MILLIS) {
        // The kernel counts whole jiffies, so the ratio can be slightly above 1.
        device.set(tick, &BUSY_RATIO, ratio.min(1.0));
    }
}
