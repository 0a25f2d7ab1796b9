//! `energy`: the energy that packages, memory and batteries use, from RAPL in `/sys/class/powercap`
//! (Documentation/power/powercap/powercap.rst) and `/sys/class/power_supply`.
//!
//! A domain has the kernel's name, below that of its package: `package-0`, `package-0:dram`,
//! `package-0:core`, `psys`. `total` is the sum over packages and their memory, which do not
//! overlap: `core` and `uncore` are parts of their package, and `psys` is the whole board. RAPL by
//! MSR and by memory-mapped registers count the same; only the first is read.
//!
//! The kernel counts microjoules and starts again at zero beyond `max_energy_range_uj` (every few
//! minutes under load), so the sensor sums them up from the first poll on. It allows for one wrap
//! between two polls; it cannot see that a counter wrapped twice. `power_watts = d(energy) /
//! d(time)`; for a battery it is the battery's own number, without a sign.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skopos_model::escape_segment;
use skopos_model::schema::Family;
use skopos_model::schema::energy::{self, *};

use crate::facts::Facts;
use crate::file::read_record;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::{disk, parse};

/// The most domains with facts: eight sockets with four each, and a battery or two.
const MAX_DOMAINS: usize = 64;

/// One counter of RAPL.
struct Counter {
    file: File,
    /// The number of microjoules at which it starts again.
    range: u64,
    /// It is part of `total`.
    in_total: bool,
    last: Option<u64>,
    /// Microjoules since the first poll.
    sum: u64,
    facts: Facts,
}

/// One battery.
struct Battery {
    /// Microwatts, or microamperes and microvolts.
    power: Vec<File>,
    facts: Facts,
}

pub(crate) struct Energy {
    counters: Vec<Counter>,
    batteries: Vec<Battery>,
    total: Facts,
    last: Option<Duration>,
    skips: Vec<Skip>,
    buffer: Vec<u8>,
}

impl Energy {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let powercap = root.sys.join("class/powercap");
        let mut sensor = Self {
            counters: Vec::new(),
            batteries: batteries(&root.sys.join("class/power_supply")),
            total: Facts::of(&energy::FAMILY, "total"),
            last: None,
            skips: Vec::new(),
            buffer: Vec::new(),
        };
        for zone in disk::names_in(&powercap) {
            // "intel-rapl:0" and "intel-rapl:0:1" are domains, "intel-rapl" is their driver.
            if zone.starts_with("intel-rapl:") {
                sensor.add(&powercap, &zone);
            }
        }
        if !sensor.counters.is_empty() || !sensor.batteries.is_empty() {
            return Ok(sensor);
        }
        Err(match sensor.skips.pop() {
            Some(refused) => Skip::new("energy", refused.reason),
            None => Skip::new(
                "energy",
                format!(
                    "no RAPL domain in {} (virtual machines rarely have one; on hardware, load the \
                     module intel_rapl_msr) and no battery",
                    powercap.display()
                ),
            ),
        })
    }

    fn add(&mut self, powercap: &Path, zone: &str) {
        let Some((label, in_total)) = label(powercap, zone) else { return };
        let mut instance = String::new();
        escape_segment(label.as_bytes(), &mut instance);
        let taken = self.counters.iter().any(|c| c.facts.instance() == instance);
        if taken || self.counters.len() >= MAX_DOMAINS {
            let reason = format!("{zone}: {label} exists already, or there are too many domains");
            self.skips.push(Skip::new(format!("energy/{instance}"), reason));
            return;
        }
        let folder = powercap.join(zone);
        let path = folder.join("energy_uj");
        let range = disk::number_of(&folder.join("max_energy_range_uj")).unwrap_or(u64::MAX);
        match File::open(&path) {
            Ok(file) => {
                let facts = Facts::of(&energy::FAMILY, &instance);
                self.counters.push(Counter { file, range, in_total, last: None, sum: 0, facts });
            }
            Err(e) => {
                let mut reason = format!("{}: {e}", path.display());
                if e.kind() == io::ErrorKind::PermissionDenied {
                    reason += "; since Linux 5.10 only root may read it; run the agent as root, or `chmod` the file";
                }
                self.skips.push(Skip::new(format!("energy/{instance}"), reason));
            }
        }
    }
}

/// Returns the name of a domain below its package, and whether it is part of `total`.
fn label(powercap: &Path, zone: &str) -> Option<(String, bool)> {
    let name = disk::text_of(&powercap.join(zone).join("name"))?;
    let (package, _) = zone.rsplit_once(':')?;
    match disk::text_of(&powercap.join(package).join("name")) {
        // "intel-rapl:0:2" lies below "intel-rapl:0".
        Some(above) if package.contains(':') => {
            let in_total = above.starts_with("package") && name == "dram";
            // A slash becomes the colon of a segment.
            Some((format!("{above}/{name}"), in_total))
        }
        _ => {
            let in_total = name.starts_with("package");
            Some((name, in_total))
        }
    }
}

fn batteries(folder: &Path) -> Vec<Battery> {
    let names = disk::names_in(folder).into_iter();
    let batteries = names.filter_map(|name| {
        let supply = folder.join(&name);
        // The battery of a mouse does not describe the machine.
        let of_device = disk::text_of(&supply.join("scope")).as_deref() == Some("Device");
        let is_battery = disk::text_of(&supply.join("type")).as_deref() == Some("Battery");
        if !is_battery || of_device {
            return None;
        }
        let open = |file: &str| File::open::<PathBuf>(supply.join(file)).ok();
        let power = match open("power_now") {
            Some(power) => vec![power],
            None => vec![open("current_now")?, open("voltage_now")?],
        };
        let mut instance = String::new();
        escape_segment(format!("battery/{}", name.to_lowercase()).as_bytes(), &mut instance);
        Some(Battery { power, facts: Facts::of(&energy::FAMILY, &instance) })
    });
    batteries.take(MAX_DOMAINS).collect()
}

impl Counter {
    /// Returns the microjoules since the last poll; `None` at the first poll.
    fn grow(&mut self, buffer: &mut Vec<u8>) -> Option<u64> {
        let text = read_record(&self.file, buffer).ok()?;
        let now = parse::u64(parse::trim(text))?;
        let last = self.last.replace(now)?;
        let grown = match now.checked_sub(last) {
            Some(grown) => grown,
            // The last value before the new start is `range`.
            None => self.range.checked_sub(last)?.checked_add(now)?,
        };
        self.sum = self.sum.saturating_add(grown);
        Some(grown)
    }
}

impl Sensor for Energy {
    fn family(&self) -> &'static Family {
        &energy::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { counters, batteries, total, last, buffer, .. } = self;
        let passed = last.replace(tick.monotonic).map(|last| tick.monotonic.saturating_sub(last));
        let seconds = passed.map(|d| d.as_secs_f64()).filter(|&s| s > 0.0);
        let (mut sum, mut grown_sum, mut all_grew) = (0u64, 0u64, true);
        for counter in counters.iter_mut() {
            let grown = counter.grow(buffer);
            let joules = counter.sum as f64 / 1e6;
            if counter.last.is_some() {
                counter.facts.set(tick, &ENERGY_JOULES_TOTAL, joules);
            }
            if let Some((grown, seconds)) = grown.zip(seconds) {
                counter.facts.set(tick, &POWER_WATTS, grown as f64 / 1e6 / seconds);
            }
            if counter.in_total {
                sum = sum.saturating_add(counter.sum);
                grown_sum = grown_sum.saturating_add(grown.unwrap_or(0));
                all_grew &= grown.is_some();
            }
        }
        if counters.iter().any(|c| c.in_total && c.last.is_some()) {
            total.set(tick, &ENERGY_JOULES_TOTAL, sum as f64 / 1e6);
            if let Some(seconds) = seconds.filter(|_| all_grew) {
                total.set(tick, &POWER_WATTS, grown_sum as f64 / 1e6 / seconds);
            }
        }
        for Battery { power, facts } in batteries {
            if let Some(watts) = watts(power, buffer) {
                facts.set(tick, &POWER_WATTS, watts);
            }
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.skips.clone()
    }
}

/// Computes watts from microwatts, or from microamperes and microvolts. Drivers differ in the sign
/// of a discharge.
fn watts(files: &[File], buffer: &mut Vec<u8>) -> Option<f64> {
    files.iter().try_fold(1.0, |product, file| {
        let text = read_record(file, buffer).ok()?;
        Some(product * parse::i64(parse::trim(text))?.unsigned_abs() as f64 / 1e6)
    })
}
