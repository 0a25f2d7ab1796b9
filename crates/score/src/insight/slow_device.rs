//! Slow device: the block devices that are busy and take long for an access, with the reason.
//!
//! The insight is a record of the node:
//!
//! - `time_ns`: the time at which the accesses were counted.
//! - `devices`: a record for each slow device, the slowest first; `truncated` counts those that were left out.
//! - `text`: the slowest of them for people, and the names of the others.
//!
//! A record of `devices` has the means of the last interval:
//!
//! - `device`, `kind`, `mount_points`: the device, and the file systems on it.
//! - `busy_ratio`: the share of the time with at least one access in flight.
//! - `accesses_per_second`: completed reads and writes.
//! - `access_seconds`, `access_bytes`: time and size of an access; absent if no access completed.
//! - `in_flight`: the number of accesses at once while the device was busy (Little's law).
//! - `peers_seconds`: the median of `access_seconds` of the other devices of this kind; absent without such a device.
//! - `reason`: `device` if few accesses were in flight, so the device itself takes the time; `load` if there were many;
//!   `none_completes` if the device was busy and no access completed.
//!
//! Arrays and device mapper pass accesses on to devices that are listed themselves, zram and RAM disks do no I/O: none
//! of these is slow by this insight. A loop device can be: its file may be on another machine or served by a program, which
//! no other device shows. The insight is unknown while no device is slow.

use serde_json::{Value as Json, json};
use skopos_model::schema::{block, device, fsinfo, insight};

use super::congestion_point::amount;
use super::definition::{cells, instance, of_instance, text};
use super::record::Record;
use super::*;

/// The share of time from which on a device is busy: below it, most programs find the device idle.
const BUSY_RATIO: f64 = 0.5;

/// The time of an access from which on a device is slow: ten times that of a solid-state disk, and less than a seek.
const ACCESS_SECONDS: f64 = 0.001;

/// The number of accesses at once up to which the device itself takes the time: with two, an access waits for at most one
/// other.
const FEW: f64 = 2.0;

/// The least factor to the peers that the text tells: a smaller one is the difference between two healthy devices.
const TOLD_TIMES: f64 = 2.0;

/// The most devices in the list, and mount points of a device: with more, the whole node is slow.
const MAX_LISTED: usize = 4;

/// The longest mount point that is shown whole, so that a device with four of them fits the list.
const MAX_PATH_CHARS: usize = 100;

/// Kinds of devices that pass accesses on to other devices, or that are memory.
const NOT_JUDGED: &[&str] = &["md", "dm", "zram", "ram"];

/// Places of the inputs.
const BUSY_SECONDS: usize = 0;
const READS: usize = 1;
const WRITES: usize = 2;
const READ_SECONDS: usize = 3;
const WRITTEN_SECONDS: usize = 4;
const READ_BYTES: usize = 5;
const WRITTEN_BYTES: usize = 6;
const KIND: usize = 7;
const FS_DEVICE: usize = 8;
const FS_MOUNT_POINT: usize = 9;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::SLOW_DEVICE,
    row: 19,
    name: "slow device",
    formula: "the devices with rate(busy_seconds) >= 0.5 and rate(read_seconds) + rate(written_seconds) >= \
              0.001 * (rate(reads) + rate(writes)) whose kind is none of md, dm, zram, ram; with rate(read_bytes) + \
              rate(written_bytes), and the fs_mount_point of the file systems whose fs_device it is",
    source: "MicroMon, sections 1 and 4: storage micrometrics; the record and the bounds are our own",
    instances: Instances::Node,
    inputs: &[
        InputSpec::needed("busy_seconds", FactSelector::Every(&block::BUSY_SECONDS_TOTAL)),
        InputSpec::needed("reads", FactSelector::Every(&block::READ_REQUESTS_TOTAL)),
        InputSpec::needed("writes", FactSelector::Every(&block::WRITTEN_REQUESTS_TOTAL)),
        InputSpec::needed("read_seconds", FactSelector::Every(&block::READ_SECONDS_TOTAL)),
        InputSpec::needed("written_seconds", FactSelector::Every(&block::WRITTEN_SECONDS_TOTAL)),
        InputSpec::needed("read_bytes", FactSelector::Every(&block::READ_BYTES_TOTAL)),
        InputSpec::needed("written_bytes", FactSelector::Every(&block::WRITTEN_BYTES_TOTAL)),
        InputSpec::optional("kind", FactSelector::Every(&device::KIND)),
        InputSpec::optional("fs_device", FactSelector::Every(&fsinfo::DEVICE)),
        InputSpec::optional("fs_mount_point", FactSelector::Every(&fsinfo::MOUNT_POINT)),
    ],
    compute,
};

/// The accesses of a device in the last interval.
struct Load<'a> {
    device: &'a str,
    kind: &'a str,
    busy_ratio: f64,
    /// Per second.
    accesses: f64,
    /// Sum of the times of all accesses, per second.
    waited: f64,
    /// Seconds and bytes of an access; `None` if no access completed.
    mean: Option<(f64, f64)>,
}

fn compute(_: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let checked_at = inputs.first(BUSY_SECONDS)?.checked_at();
    inputs.first(KIND)?;
    if cells(inputs, BUSY_SECONDS).all(|cell| cell.rate().is_err()) {
        inputs.rate(BUSY_SECONDS)?;
    }
    // Without a busy device, which is the usual case, the other inputs are not read.
    let is_busy = |cell: &Cell| cell.rate().is_ok_and(|ratio| ratio >= BUSY_RATIO);
    let mut loads: Vec<Load<'_>> = Vec::new();
    if cells(inputs, BUSY_SECONDS).any(is_busy) {
        loads.extend(cells(inputs, KIND).filter_map(|kind| load(inputs, kind)));
    }
    let mut slow: Vec<&Load<'_>> = loads.iter().filter(|load| load.is_slow()).collect();
    slow.sort_by(|a, b| b.seconds().total_cmp(&a.seconds()));
    let Some(&slowest) = slow.first() else {
        return Err(Unknown::new("no device is busy and takes 1 ms or more for an access"));
    };
    let about = |load: &Load<'_>| (mount_points(inputs, load.device), peers_seconds(&loads, load));
    let (points, peers) = about(slowest);
    let mut text = told(slowest, &points, peers);
    let others: Vec<&str> = slow.iter().skip(1).map(|load| load.device).collect();
    if !others.is_empty() {
        text += &format!("; also slow: {}", others[..others.len().min(MAX_LISTED)].join(", "));
    }
    let records = slow.iter().copied().take(MAX_LISTED).map(|load| {
        let (points, peers) = about(load);
        listed(load, &points, peers)
    });
    let mut record = Record::default();
    record.put_time(checked_at);
    record.put_list("devices", slow.len().saturating_sub(MAX_LISTED), records.collect());
    record.put("text", text);
    record.finish()
}

/// Returns the accesses of the device with this fact; `None` if it is not judged, or a counter has no rate.
fn load<'a>(inputs: &Inputs<'a>, kind: &'a Cell) -> Option<Load<'a>> {
    // Partitions have no kind; the disk counts their accesses.
    let (device, kind) = (instance(kind), text(kind)?);
    if NOT_JUDGED.contains(&kind) {
        return None;
    }
    let place = cells(inputs, BUSY_SECONDS).position(|cell| instance(cell) == device)?;
    // The counters of a device appear together, so each input has them at the same place.
    let rate = |slot: usize| {
        let cell = inputs.all(slot).get(place).filter(|cell| instance(cell) == device);
        cell.or_else(|| of_instance(inputs, slot, device))?.rate().ok()
    };
    let busy_ratio = rate(BUSY_SECONDS)?.min(1.0);
    let accesses = rate(READS)? + rate(WRITES)?;
    let waited = rate(READ_SECONDS)? + rate(WRITTEN_SECONDS)?;
    let bytes = rate(READ_BYTES)? + rate(WRITTEN_BYTES)?;
    let mean = (accesses > 0.0).then(|| (waited / accesses, bytes / accesses));
    Some(Load { device, kind, busy_ratio, accesses, waited, mean })
}

impl Load<'_> {
    /// Returns the seconds of an access; infinite if no access completed.
    fn seconds(&self) -> f64 {
        self.mean.map_or(f64::INFINITY, |(seconds, _)| seconds)
    }

    fn is_slow(&self) -> bool {
        self.busy_ratio >= BUSY_RATIO && self.seconds() >= ACCESS_SECONDS
    }

    /// Returns the number of accesses at once while the device was busy.
    fn in_flight(&self) -> f64 {
        self.waited / self.busy_ratio
    }

    fn reason(&self) -> &'static str {
        match self.mean {
            None => "none_completes",
            Some(_) if self.in_flight() <= FEW => "device",
            Some(_) => "load",
        }
    }
}

/// Returns the median of the seconds of an access of the other devices of the same kind. For an even number of them, the
/// lower of the two in the middle: the time of a device.
fn peers_seconds(loads: &[Load<'_>], of: &Load<'_>) -> Option<f64> {
    let peers = loads.iter().filter(|load| load.kind == of.kind && load.device != of.device);
    let mut seconds: Vec<f64> = peers.filter_map(|peer| Some(peer.mean?.0)).collect();
    seconds.sort_by(f64::total_cmp);
    seconds.len().checked_sub(1).map(|last| seconds[last / 2])
}

/// Returns the mount points of the file systems on a device, as many as are listed.
fn mount_points(inputs: &Inputs<'_>, device: &str) -> Vec<String> {
    let holds = |cell: &&Cell| text(cell).is_some_and(|of| tiers::instance_of(of) == device);
    let file_systems = cells(inputs, FS_DEVICE).filter(holds);
    let point = |fs: &Cell| text(of_instance(inputs, FS_MOUNT_POINT, instance(fs))?).map(shortened);
    file_systems.filter_map(point).take(MAX_LISTED).collect()
}

fn shortened(path: &str) -> String {
    match path.char_indices().nth(MAX_PATH_CHARS) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    }
}

/// Returns the record of a device.
fn listed(load: &Load<'_>, mount_points: &[String], peers_seconds: Option<f64>) -> Json {
    let mut record = json!({
        "device": load.device,
        "kind": load.kind,
        "mount_points": mount_points,
        "busy_ratio": load.busy_ratio,
        "accesses_per_second": load.accesses,
        "in_flight": load.in_flight(),
        "reason": load.reason(),
    });
    if let Some((seconds, bytes)) = load.mean {
        record["access_seconds"] = seconds.into();
        record["access_bytes"] = bytes.into();
    }
    if let Some(seconds) = peers_seconds {
        record["peers_seconds"] = seconds.into();
    }
    record
}

/// Returns the sentence about a device, with its most important part first.
fn told(load: &Load<'_>, mount_points: &[String], peers_seconds: Option<f64>) -> String {
    let Load { device, .. } = load;
    let at = mount_points.first().map(|point| format!("at {point}"));
    let Some((seconds, bytes)) = load.mean else {
        let at = at.map_or_else(String::new, |at| format!(" ({at})"));
        return format!("{device} is busy and completes no access{at}");
    };
    let times = peers_seconds.filter(|peers| *peers > 0.0).map(|peers| seconds / peers);
    let times = times.filter(|times| *times >= TOLD_TIMES);
    let beside = times.map_or_else(String::new, |times| format!(", {times:.0} times its peers"));
    let in_flight = load.in_flight();
    let (why, at_once) = match load.reason() {
        "device" => ("the device itself is slow", format!("{in_flight:.1} at once")),
        _ => ("it serves many", format!("{in_flight:.0} at once")),
    };
    let at = at.map_or_else(String::new, |at| format!(", {at}"));
    let (takes, each) = (time(seconds), amount(bytes as u64));
    format!("{device} takes {takes} an access{beside}; {why} ({at_once}, {each} each{at})")
}

/// Returns seconds with two digits and a unit: `8.2 ms`.
fn time(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.1} s")
    } else if seconds >= 0.01 {
        format!("{:.0} ms", seconds * 1e3)
    } else {
        format!("{:.1} ms", seconds * 1e3)
    }
}
