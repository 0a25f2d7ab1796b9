//! `block_access`: the number of accesses to each part of a block device.
//!
//! A BPF program on the tracepoint `block:block_rq_issue` counts requests where they begin, by
//! device and region of 1 MiB (`bpf/block_access.bpf.c`). It has two tables of 1,024 rows. A poll
//! reads and clears one table while the other counts, so regions that were hot once do not take the
//! room of those that are hot now. The rows go into a table of 4,096 regions with decaying rates,
//! of which the 16 hottest of each device are published. No list of all accesses is ever made, and
//! nothing can overflow.
//!
//! There are other ways. The kernel's own histograms of tracepoints (`hist` triggers) do not need
//! BPF, but many kernels lack them (`CONFIG_HIST_TRIGGERS`). A map that is read row by row costs
//! two system calls for each row, where one call reads a whole table here.
//!
//! A read that the page cache answers does not access the device and is not seen. Devices that only
//! pass requests on (md, device-mapper, zram) issue none; the devices below them do.
//!
//! Counting costs some 60 ns a request. Beyond [`MAX_SAMPLED`] requests a second the program
//! samples one in 2, 4, 8, ... at random, and counts it as that many.

mod counter;
mod regions;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use skopos_model::schema::Family;
use skopos_model::schema::block_access::{self, *};

use self::counter::{Counter, Devices, Entry};
use self::regions::Regions;
use crate::instances::Instances;
use crate::parse;
use crate::root::Root;
use crate::sampling::mask_for;
use crate::sensor::{Sensor, Skip, Tick};

/// The most devices, as in the program.
const MAX_DEVICES: usize = 64;

/// The most requests a second that are sampled.
const MAX_SAMPLED: f64 = 20_000.0;

/// Rates are over half a minute, and a poll costs about 0.1 ms while devices are busy.
const INTERVAL: Duration = Duration::from_secs(5);

/// The state of a device between two polls.
#[derive(Clone, Copy)]
struct Device {
    number: u64,
    unplaced: u64,
}

pub(crate) struct BlockAccess {
    counter: Counter,
    regions: Regions,
    devices: Instances<Device>,
    /// Sampled accesses of each device at the last poll, by its number.
    sampled: BTreeMap<u64, u64>,
    /// `/sys/dev/block`: names of devices by their number.
    names: PathBuf,
    last: Option<Duration>,
    accesses: u64,
    beyond: u64,
}

impl BlockAccess {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let counter = Counter::open(&root.sys).map_err(|e| Skip::new("block_access", e))?;
        Ok(Self {
            counter,
            regions: Regions::default(),
            devices: Instances::new(&block_access::FAMILY, MAX_DEVICES),
            sampled: BTreeMap::new(),
            names: root.sys.join("dev/block"),
            last: None,
            accesses: 0,
            beyond: 0,
        })
    }

    /// Returns the device's folder in sysfs; `None` if it is gone, or no longer has a medium.
    fn place(&self, number: u64) -> Option<PathBuf> {
        // The kernel's own dev_t.
        let (major, minor) = (number >> 20, number & 0xf_ffff);
        let place = self.names.join(format!("{major}:{minor}"));
        let size = std::fs::read(place.join("size")).ok()?;
        if parse::trim(&size) == b"0" { None } else { std::fs::read_link(place).ok() }
    }

    /// Returns the mask for sampling requests, from the number that came in the time `passed`.
    fn next_mask(&mut self, devices: &Devices, passed: Duration) -> u64 {
        let accesses = devices.entries().map(|e| e.accesses).sum::<u64>() + devices.beyond();
        let came = accesses.saturating_sub(std::mem::replace(&mut self.accesses, accesses));
        mask_for(came, passed, MAX_SAMPLED).into()
    }
}

impl Sensor for BlockAccess {
    fn family(&self) -> &'static Family {
        &block_access::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let passed = tick.monotonic.saturating_sub(self.last.unwrap_or(tick.monotonic));
        self.last = Some(tick.monotonic);
        let weight = self.counter.mask() + 1;
        let devices = self.counter.devices().map_err(io::Error::other)?;
        let mask = self.next_mask(&devices, passed);
        let table = self.counter.swap_tables(mask).map_err(io::Error::other)?;
        let forgotten = self.regions.add(table.rows(), passed);
        self.beyond = devices.beyond();
        self.devices.begin();
        for entry in devices.entries() {
            let Entry { number, accesses, sampled } = entry;
            let before = self.sampled.insert(number, sampled).unwrap_or(0);
            let counted = sampled.saturating_sub(before) * weight;
            let Some(place) = self.place(number) else {
                self.regions.remove(number);
                continue;
            };
            let name = place.file_name().map_or(&b""[..], OsStr::as_encoded_bytes);
            let new = Device { number, unplaced: 0 };
            let Some(device) = self.devices.see(tick.sink, name, || new) else { continue };
            if device.state.number != number {
                // Another device with the same name.
                device.state = new;
            }
            let in_rows = |&(key, _): &(u64, u64)| key >> 32 == number;
            let placed: u64 = table.rows().filter(in_rows).map(|(_, count)| count).sum();
            let lost = counted.saturating_sub(placed) + forgotten.get(&number).unwrap_or(&0);
            device.state.unplaced += lost;
            let unplaced = device.state.unplaced;
            device.set(tick, &ACCESSES_TOTAL, accesses);
            device.set(tick, &SAMPLED_TOTAL, sampled);
            device.set(tick, &UNPLACED_TOTAL, unplaced);
            if let Some(hottest) = self.regions.hottest(number) {
                device.set_structured(tick, &HOT_BLOCKS, &hottest);
            }
        }
        self.devices.end(tick.sink);
        Ok(())
    }

    fn interval_hint(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn skips(&self) -> Vec<Skip> {
        let mut skips = self.devices.skips();
        if self.beyond > 0 {
            let reason = format!("{} requests to devices beyond {MAX_DEVICES}", self.beyond);
            skips.push(Skip::new("block_access/*", reason));
        }
        skips
    }
}
