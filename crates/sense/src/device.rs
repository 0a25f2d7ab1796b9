//! `device`: properties of whole block devices, from `/sys/block`
//! (Documentation/ABI/stable/sysfs-block), and their measured limits, from the file of
//! [`crate::calibration`].
//!
//! `concurrency` is the number of requests that the hardware takes at a time: the sum of
//! `mq/N/nr_tags` over its hardware queues, or `device/queue_depth` where a SCSI device takes
//! fewer. (`queue/nr_requests` does not help: with an I/O scheduler it also counts requests that
//! the kernel holds back.) Devices without hardware queues, such as md and dm, do not have this
//! fact.
//!
//! `/sys/block` is walked only after a change of `/proc/partitions`, which shows devices that come,
//! go or grow. Otherwise a tick reads a file or two for each device.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use skopos_model::Structured;
use skopos_model::schema::device::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::calibration::{Calibration, Calibrations};
use crate::disk::{self, Disk};
use crate::file::{KernelFile, read_record};
use crate::instances::{Instance, Instances};
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most devices with facts, as in `block`.
const MAX_DEVICES: usize = 512;

/// These facts change by the hand of a person.
const INTERVAL: Duration = Duration::from_secs(30);

/// A whole device at the time when `/proc/partitions` last changed, with open files for the facts
/// that may change at other times.
struct Known {
    disk: Disk,
    kind: Option<Structured>,
    model: Option<Structured>,
    logical_block_bytes: Option<u64>,
    physical_block_bytes: Option<u64>,
    rotational: Option<u64>,
    /// The sum over all hardware queues.
    tags: Option<u64>,
    queue_depth: Option<File>,
    readonly: Option<File>,
    calibration: Option<Calibration>,
    /// The reason why the stored calibration is not used.
    refused: Option<String>,
}

/// Inode, length and time of a file. If one of them differs, the content differs.
type Stamp = (u64, u64, i64, i64);

pub(crate) struct Device {
    root: Root,
    partitions: KernelFile,
    /// The content of `/proc/partitions` at the latest walk of `/sys/block`.
    partitions_read: Vec<u8>,
    devices: Vec<Known>,
    /// The file of calibrations when it was last read.
    stamp: Option<Stamp>,
    /// The reason why no calibration can be read.
    unreadable: Option<String>,
    known: Instances<()>,
    buffer: Vec<u8>,
}

impl Device {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let class = root.sys.join("block");
        if let Err(e) = fs::metadata(&class) {
            return Err(Skip::new("device", format!("{}: {e}", class.display())));
        }
        Ok(Self {
            partitions: KernelFile::open_or_skip(&root.proc.join("partitions"), "device")?,
            root: root.clone(),
            partitions_read: Vec::new(),
            devices: Vec::new(),
            stamp: None,
            unreadable: None,
            known: Instances::new(&device::FAMILY, MAX_DEVICES),
            buffer: Vec::new(),
        })
    }

    /// Reads the properties of all devices anew if the set of devices changed. Returns true if it
    /// did.
    fn look(&mut self) -> io::Result<bool> {
        let text = self.partitions.read()?;
        if *text == *self.partitions_read && !self.partitions_read.is_empty() {
            return Ok(false);
        }
        self.partitions_read = text.to_vec();
        let names = parse::lines(&self.partitions_read).filter_map(|line| {
            // "  254        0  268435456 vda": major, minor, KiB, name.
            let mut words = parse::words(line);
            parse::u64(words.next()?)?;
            std::str::from_utf8(words.nth(2)?).ok()
        });
        let known = names.take(2 * MAX_DEVICES).filter_map(|name| Known::look(&self.root, name));
        self.devices = known.collect();
        Ok(true)
    }

    /// Reads the stored calibrations anew if the file or the set of devices changed.
    fn calibrate(&mut self, devices_changed: bool) {
        let there = |path| Some((path, stamp(&fs::metadata(path).ok()?)));
        let found = self.root.calibrations.iter().find_map(there);
        let stamp = found.map(|(_, stamp)| stamp);
        if stamp == self.stamp && !devices_changed {
            return;
        }
        self.stamp = stamp;
        self.unreadable = None;
        let mut all = match found.map(|(path, _)| (path, Calibrations::load(path))) {
            Some((_, Ok(Some(all)))) => all.devices,
            Some((path, Err(e))) => {
                let path = path.display();
                self.unreadable = Some(format!(
                    "{path}: {e}; move it away, and measure again with `skopos calibrate`"
                ));
                BTreeMap::new()
            }
            None | Some((_, Ok(None))) => BTreeMap::new(),
        };
        for device in &mut self.devices {
            let stored = all.remove(&device.disk.name);
            (device.calibration, device.refused) = match stored {
                None => (None, None),
                Some(stored) if stored.disk.is_same_device(&device.disk) => (Some(stored), None),
                Some(stored) => (None, Some(difference(&stored.disk, &device.disk))),
            };
        }
    }
}

fn stamp(meta: &Metadata) -> Stamp {
    (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec())
}

fn difference(measured: &Disk, found: &Disk) -> String {
    let words = |disk: &Disk| {
        let model = disk.model.as_deref().unwrap_or("no model");
        let serial = disk.serial.as_deref().unwrap_or("no serial number");
        format!("{model}, {serial}, {} bytes", disk.size_bytes)
    };
    format!(
        "the stored calibration is of another device ({}; this one is {}); measure this one with \
         `skopos calibrate {}`",
        words(measured),
        words(found),
        found.name
    )
}

impl Known {
    /// Returns `None` if it is not a whole device.
    fn look(root: &Root, name: &str) -> Option<Self> {
        let disk = Disk::look(root, name).ok()?;
        let folder = disk::folder(root, name);
        let number = |file: &str| disk::number_of(&folder.join(file));
        let file = |path: PathBuf| File::open(path).ok();
        Some(Self {
            kind: text(&disk.kind),
            model: disk.model.as_deref().and_then(text),
            logical_block_bytes: number("queue/logical_block_size"),
            physical_block_bytes: number("queue/physical_block_size"),
            rotational: number("queue/rotational"),
            tags: disk::hardware_tags(root, name),
            queue_depth: file(folder.join("device/queue_depth")),
            readonly: file(folder.join("ro")),
            calibration: None,
            refused: None,
            disk,
        })
    }
}

fn text(words: &str) -> Option<Structured> {
    Structured::new(words.into()).ok()
}

impl Sensor for Device {
    fn family(&self) -> &'static Family {
        &device::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let changed = self.look()?;
        self.calibrate(changed);
        let Self { devices, known, buffer, .. } = self;
        known.begin();
        for device in devices.iter() {
            let name = device.disk.name.as_bytes();
            if let Some(instance) = known.see(tick.sink, name, || ()) {
                set_facts(instance, tick, device, buffer);
                set_calibration(instance, tick, device.calibration.as_ref());
            }
        }
        known.end(tick.sink);
        Ok(())
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn skips(&self) -> Vec<Skip> {
        let refused = self.devices.iter().filter_map(|device| {
            let reason = device.refused.as_ref()?;
            Some(Skip::new(format!("device/{}/max_*", device.disk.name), reason))
        });
        let unreadable = self.unreadable.as_ref().map(|why| Skip::new("device/*/max_*", why));
        refused.chain(unreadable).chain(self.known.skips()).collect()
    }
}

fn set_facts(
    instance: &mut Instance<()>,
    tick: &mut Tick<'_>,
    device: &Known,
    buffer: &mut Vec<u8>,
) {
    if let Some(kind) = &device.kind {
        instance.set_structured(tick, &KIND, kind);
    }
    if let Some(model) = &device.model {
        instance.set_structured(tick, &MODEL, model);
    }
    let mut number = |file: &Option<File>| {
        let text = read_record(file.as_ref()?, buffer).ok()?;
        parse::u64(parse::trim(text))
    };
    let readonly = number(&device.readonly);
    let depth = number(&device.queue_depth);
    let concurrency = [device.tags, depth].into_iter().flatten().min();
    for (metric, value) in [
        (&SIZE_BYTES, Some(device.disk.size_bytes)),
        (&LOGICAL_BLOCK_BYTES, device.logical_block_bytes),
        (&PHYSICAL_BLOCK_BYTES, device.physical_block_bytes),
        (&ROTATIONAL, device.rotational),
        (&READONLY, readonly.map(|flag| flag.min(1))),
        (&CONCURRENCY, concurrency.filter(|&n| n > 0)),
    ] {
        if let Some(value) = value {
            instance.set(tick, metric, value);
        }
    }
}

/// Sets the facts of the calibration, or removes them when it is gone.
fn set_calibration(
    instance: &mut Instance<()>,
    tick: &mut Tick<'_>,
    calibration: Option<&Calibration>,
) {
    let values =
        calibration.map_or([None; METRICS.len()], |Calibration { measured: m, .. }| {
            let read = m.read_bytes_per_second.median;
            let write = m.write_bytes_per_second.as_ref().map(|write| write.median);
            let greater = write.map_or(read, |write| write.max(read));
            let requests = m.read_requests_per_second.median;
            let latency = m.idle_read_latency_seconds.median;
            let at = m.measured_at_seconds;
            [Some(read), write, Some(greater), Some(requests), Some(latency), Some(at)]
        });
    const METRICS: [&Metric; 6] = [
        &MAX_READ_BYTES_PER_SECOND,
        &MAX_WRITE_BYTES_PER_SECOND,
        &MAX_BANDWIDTH_BYTES_PER_SECOND,
        &MAX_READ_REQUESTS_PER_SECOND,
        &IDLE_READ_LATENCY_SECONDS,
        &CALIBRATED_AT_SECONDS,
    ];
    for (metric, value) in METRICS.into_iter().zip(values) {
        // Numbers in JSON are finite.
        instance.set_or_unset(tick, metric, value);
    }
}
