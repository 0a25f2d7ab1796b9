//! `hwmon`: temperatures, fans, voltages, currents and power, from `/sys/class/hwmon`
//! (Documentation/hwmon/sysfs-interface.rst).
//!
//! An instance is a chip with its channel, `coretemp.0:temp1`. The chip's name is that of its
//! driver and of the device that carries it, since `hwmonN` changes from boot to boot. Some chips
//! take milliseconds to answer, so this family deserves a longer interval than others.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use skopos_model::escape_segment;
use skopos_model::schema::hwmon::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::facts::Facts;
use crate::file::read_record;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most channels with facts. The management controller of a big server shows about 200.
const MAX_CHANNELS: usize = 512;

/// The name of a channel's file, before and after its number; the metric; and the metric's units in
/// one unit of the kernel. `power1_average` is for chips without an instantaneous reading.
static KINDS: [(&str, &str, &Metric, f64); 6] = [
    ("temp", "_input", &TEMPERATURE_CELSIUS, 1e-3),
    ("fan", "_input", &FAN_RPM, 1.0),
    ("in", "_input", &VOLTAGE_VOLTS, 1e-3),
    ("curr", "_input", &CURRENT_AMPERES, 1e-3),
    ("power", "_input", &POWER_WATTS, 1e-6),
    ("power", "_average", &POWER_WATTS, 1e-6),
];

pub(crate) struct Hwmon {
    channels: Vec<Channel>,
    left_out: usize,
    /// Shared by all channels.
    buffer: Vec<u8>,
}

struct Channel {
    file: File,
    metric: &'static Metric,
    scale: f64,
    facts: Facts,
    gone: bool,
}

impl Hwmon {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let folder = root.sys.join("class/hwmon");
        let entries = fs::read_dir(&folder).map_err(|e| {
            Skip::new("hwmon", format!("no sensor chips: {}: {e}", folder.display()))
        })?;
        let mut chips: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        chips.sort();
        let mut channels = Vec::new();
        for chip in chips {
            add_channels(&chip, &mut channels);
        }
        if channels.is_empty() {
            return Err(Skip::new("hwmon", format!("no sensor chips in {}", folder.display())));
        }
        let left_out = channels.len().saturating_sub(MAX_CHANNELS);
        channels.truncate(MAX_CHANNELS);
        Ok(Self { channels, left_out, buffer: Vec::new() })
    }
}

fn add_channels(chip: &Path, channels: &mut Vec<Channel>) {
    let Some(name) = chip_name(chip) else { return };
    let Ok(entries) = fs::read_dir(chip) else { return };
    let mut files: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    files.sort();
    for file_name in files {
        let Some((channel, metric, scale)) = channel_of(&file_name) else { continue };
        let mut instance = String::new();
        escape_segment(format!("{name}/{channel}").as_bytes(), &mut instance);
        // A device may carry two chips with the same name, and a chip may have both kinds of power
        // file.
        let same = |c: &Channel| c.facts.instance() == instance && std::ptr::eq(c.metric, metric);
        if channels.iter().any(same) {
            continue;
        }
        if let Ok(file) = File::open(chip.join(&file_name)) {
            let facts = Facts::of(&hwmon::FAMILY, &instance);
            channels.push(Channel { file, metric, scale, facts, gone: false });
        }
    }
}

/// Splits `temp1_input` into `temp1`, the metric and its scale.
fn channel_of(file_name: &str) -> Option<(&str, &'static Metric, f64)> {
    KINDS.iter().find_map(|(before, after, metric, scale)| {
        let channel = file_name.strip_suffix(after)?;
        parse::u64(channel.strip_prefix(before)?.as_bytes())?;
        Some((channel, *metric, *scale))
    })
}

/// Returns the driver's name for the chip, and the device's if that says more (`coretemp.0`).
fn chip_name(chip: &Path) -> Option<String> {
    let name = fs::read_to_string(chip.join("name")).ok()?.trim().to_owned();
    let device = fs::read_link(chip.join("device")).ok();
    match device.as_deref().and_then(Path::file_name).and_then(|d| d.to_str()) {
        Some(device) if device.starts_with(&name) => Some(device.to_owned()),
        Some(device) => Some(format!("{name}-{device}")),
        None => Some(name),
    }
}

impl Sensor for Hwmon {
    fn family(&self) -> &'static Family {
        &hwmon::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { channels, buffer, .. } = self;
        for channel in channels.iter_mut().filter(|c| !c.gone) {
            match read_record(&channel.file, buffer) {
                Ok(text) => {
                    if let Some(number) = parse::i64(parse::trim(text)) {
                        let value = number as f64 * channel.scale;
                        channel.facts.set(tick, channel.metric, value);
                    }
                }
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                    channel.facts.unregister(tick.sink);
                    channel.gone = true;
                }
                // A fan that stands still, or a chip that sleeps. The other channels are still
                // read.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        match self.left_out {
            0 => Vec::new(),
            n => {
                vec![Skip::new("hwmon/*", format!("{n} channels beyond the first {MAX_CHANNELS}"))]
            }
        }
    }
}
