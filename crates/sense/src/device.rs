//! `device`: what whole block devices are, from `/sys/block`
//! (Documentation/ABI/stable/sysfs-block), and what they were measured to be able to do, from the
//! file of [`crate::calibration`].
//!
//! `concurrency` is how many requests the hardware takes at a time: the sum over its hardware queues
//! of `mq/N/nr_tags`, or `device/queue_depth` where a SCSI device takes fewer. (`queue/nr_requests`
//! is no help: with an I/O scheduler it counts what the kernel holds back, too.) Devices without
//! hardware queues, such as md and dm, have none.
//!
//! `/sys/block` is walked only when `/proc/partitions` changed, which shows devices that come, go or
//! grow; a tick else reads a file or two a device.

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
use crate::{Root, Sensor, Skip, Tick, parse};

/// The most devices with facts: as many as `block` has.
const MAX_DEVICES: usize = 512;

/// What changes here changes by the hand of a person.
const INTERVAL: Duration = Duration::from_secs(30);

/// A whole device as it was when `/proc/partitions` last changed, and what may change without.
struct Known {
    disk: Disk,
    kind: Option<Structured>,
    model: Option<Structured>,
    logical_block_bytes: Option<u64>,
    physical_block_bytes: Option<u64>,
    rotational: Option<u64>,
    /// Of all hardware queues.
    tags: Option<u64>,
    queue_depth: Option<File>,
    readonly: Option<File>,
    calibration: Option<Calibration>,
    /// Why the stored calibration is not used.
    refused: Option<String>,
}

/// Inode, length and time of a file: another one is another content.
type Stamp = (u64, u64, i64, i64);

pub(crate) struct Device {
    root: Root,
    partitions: KernelFile,
    /// What `/proc/partitions` said at the latest look at `/sys/block`.
    seen: Vec<u8>,
    devices: Vec<Known>,
    /// The file of calibrations at the latest look.
    stamp: Option<Stamp>,
    /// Why there is no calibration at all.
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
            seen: Vec::new(),
            devices: Vec::new(),
            stamp: None,
            unreadable: None,
            known: Instances::new(&device::FAMILY, MAX_DEVICES),
            buffer: Vec::new(),
        })
    }

    /// Looks at all devices anew if there is another set of them.
    fn look(&mut self) -> io::Result<bool> {
        let text = self.partitions.read()?;
        if *text == *self.seen && !self.seen.is_empty() {
            return Ok(false);
        }
        self.seen = text.to_vec();
        let names = parse::lines(&self.seen).filter_map(|line| {
            // "  254        0  268435456 vda": major, minor, KiB, name.
            let mut words = parse::words(line);
            parse::u64(words.next()?)?;
            std::str::from_utf8(words.nth(2)?).ok()
        });
        let known = names.take(2 * MAX_DEVICES).filter_map(|name| Known::look(&self.root, name));
        self.devices = known.collect();
        Ok(true)
    }

    /// Takes the stored calibrations anew if there are other ones, or other devices.
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
                    "{path}: {e}: move it away, and measure again with `skopos calibrate`"
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
        "the stored calibration is of another device ({}; this one is {}): measure it with \
         `skopos calibrate {}`",
        words(measured),
        words(found),
        found.name
    )
}

impl Known {
    /// `None` if it is no whole device.
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

/// Takes the facts away when the calibration is gone.
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
