//! `block_latency`: the time that requests to block devices take, by a BPF program (`bpf/block_latency.bpf.c`).
//!
//! Programs on the tracepoints `block_rq_issue`, `block_rq_requeue` and `block_rq_complete` note when a request goes to
//! the driver and when it is complete. The wait before, in the plug of a task and in the scheduler of the device, begins
//! at the kernel's own time of creation. Both go into histograms of each device; each interval tells their percentiles.
//!
//! Devices that only pass requests on (md, device-mapper, zram) have none; those below them do. Without BPF, the family
//! `block` has means of both times together.
//!
//! Beyond [`MAX_MEASURED`] requests a second, one in 2, 4, 8, … is measured and counts as that many. Depths and numbers of
//! requests have all of them.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use aya::maps::{Array, MapData};
use skopos_bpf::{At, Loaded, Program, with_causes};
use skopos_model::schema::block_latency::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::file::KernelFile;
use crate::histogram::{BUCKETS, Histogram, Percentiles};
use crate::in_kernel;
use crate::instances::Instances;
use crate::parse;
use crate::root::Root;
use crate::sampling::mask_for;
use crate::sensor::{Sensor, Skip, Tick};
use crate::slots::{SLOTS, Slots};

/// Compiled from `bpf/block_latency.bpf.c` by `scripts/bpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/block_latency.bpf.o"));

const PROGRAMS: [Program<'static>; 3] = [
    Program { name: "issued", at: At::Typed("block_rq_issue") },
    Program { name: "requeued", at: At::Typed("block_rq_requeue") },
    Program { name: "completed", at: At::Typed("block_rq_complete") },
];

/// The most requests a second that are measured. Measuring a request costs about 0.5 µs, hence 0.2 % of a core; a second
/// of 4,000 times still has 40 above its 99th percentile.
const MAX_MEASURED: f64 = 4_000.0;

/// The first word of a slot with numbers of requests. The programs count the requests in the driver before it, which is not
/// published: a request that ends unseen would stay in the count.
const COMPLETED: usize = 2;

/// The histograms of a device, in the order of the programs.
const HISTOGRAMS: usize = 5;
static PERCENTILES: [Percentiles; HISTOGRAMS] = [
    Percentiles {
        p50: &READ_LATENCY_SECONDS_P50,
        p99: &READ_LATENCY_SECONDS_P99,
        max: &READ_LATENCY_SECONDS_MAX,
    },
    Percentiles {
        p50: &WRITE_LATENCY_SECONDS_P50,
        p99: &WRITE_LATENCY_SECONDS_P99,
        max: &WRITE_LATENCY_SECONDS_MAX,
    },
    Percentiles {
        p50: &FLUSH_LATENCY_SECONDS_P50,
        p99: &FLUSH_LATENCY_SECONDS_P99,
        max: &FLUSH_LATENCY_SECONDS_MAX,
    },
    Percentiles {
        p50: &READ_WAIT_SECONDS_P50,
        p99: &READ_WAIT_SECONDS_P99,
        max: &READ_WAIT_SECONDS_MAX,
    },
    Percentiles {
        p50: &WRITE_WAIT_SECONDS_P50,
        p99: &WRITE_WAIT_SECONDS_P99,
        max: &WRITE_WAIT_SECONDS_MAX,
    },
];

/// Numbers of completed requests, in the order of the programs.
static REQUESTS: [&Metric; 3] =
    [&READ_REQUESTS_TOTAL, &WRITE_REQUESTS_TOTAL, &FLUSH_REQUESTS_TOTAL];

/// The device in a slot.
struct Device {
    number: u32,
    name: Box<[u8]>,
    /// `/sys/dev/block/MAJOR:MINOR/size`: 0 for a loop device without its file, an error for a device that is gone.
    size: KernelFile,
    histograms: [Histogram; HISTOGRAMS],
    /// The words of the programs at the last poll, and the numbers that they stand for.
    words: [u32; REQUESTS.len()],
    requests: [u64; REQUESTS.len()],
}

pub(crate) struct BlockLatency {
    /// Keeps the programs attached.
    _programs: Loaded,
    slots: Slots,
    times: Array<MapData, [u32; HISTOGRAMS * BUCKETS]>,
    devices: [Option<Device>; SLOTS],
    facts: Instances<()>,
    /// `/sys/dev/block`: devices by their number.
    folder: PathBuf,
    last: Option<Duration>,
}

impl BlockLatency {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let open = || {
            let mut programs = in_kernel::open(root, OBJECT, &PROGRAMS, &[])?;
            Ok(Self {
                slots: Slots::new(programs.memory("SHARE").map_err(|e| e.to_string())?)?,
                times: in_kernel::array(&mut programs, "TIMES")?,
                _programs: programs,
                devices: [const { None }; SLOTS],
                facts: Instances::new(&block_latency::FAMILY, SLOTS),
                folder: root.sys.join("dev/block"),
                last: None,
            })
        };
        open().map_err(|reason: String| {
            Skip::new("block_latency", format!("{reason}; `block` has mean latencies"))
        })
    }

    /// Updates the device of a slot. Returns true if it is there and has a medium.
    fn update(&mut self, slot: usize) -> bool {
        let Some(number) = self.slots.number(slot) else {
            self.devices[slot] = None;
            return false;
        };
        let known = &mut self.devices[slot];
        if known.as_ref().is_none_or(|device| device.number != number) {
            *known = Device::open(&self.folder, number);
        }
        match known.as_mut().map(|device| device.size.read().map(parse::trim)) {
            Some(Ok(size)) => size != b"0",
            Some(Err(_)) | None => {
                *known = None;
                self.free(slot);
                false
            }
        }
    }

    fn free(&mut self, slot: usize) {
        let cleared = self.times.set(slot as u32, [0; HISTOGRAMS * BUCKETS], 0);
        // A slot that cannot be cleared stays taken.
        if cleared.is_ok() {
            self.slots.free(slot);
        }
    }
}

impl Device {
    fn open(folder: &std::path::Path, number: u32) -> Option<Self> {
        // The kernel's own dev_t.
        let place = folder.join(format!("{}:{}", number >> 20, number & 0xf_ffff));
        let link = std::fs::read_link(&place).ok()?;
        Some(Self {
            number,
            name: link.file_name().map(OsStr::as_encoded_bytes)?.into(),
            size: KernelFile::open(&place.join("size")).ok()?,
            histograms: Default::default(),
            words: [0; REQUESTS.len()],
            requests: [0; REQUESTS.len()],
        })
    }
}

impl Sensor for BlockLatency {
    fn family(&self) -> &'static Family {
        &block_latency::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let passed = tick.monotonic.saturating_sub(self.last.unwrap_or(tick.monotonic));
        self.last = Some(tick.monotonic);
        let mut came = 0;
        self.facts.begin();
        for slot in 0..SLOTS {
            if !self.update(slot) {
                continue;
            }
            let Self { slots, times, devices, facts, .. } = &mut *self;
            let Some(device) = &mut devices[slot] else { continue };
            let Some(facts) = facts.see(tick.sink, &device.name, || ()) else { continue };
            let counts = times.get(&(slot as u32), 0).map_err(with_causes)?;
            for (at, metric) in REQUESTS.iter().enumerate() {
                let word = slots.word(slot, COMPLETED + at);
                let grown = word.wrapping_sub(std::mem::replace(&mut device.words[at], word));
                device.requests[at] += u64::from(grown);
                came += u64::from(grown);
                facts.set(tick, metric, device.requests[at]);
            }
            let each = counts.chunks_exact(BUCKETS).zip(&mut device.histograms).zip(&PERCENTILES);
            for ((counts, histogram), percentiles) in each {
                histogram.advance(counts.iter().copied());
                histogram.tell(percentiles, |metric, value| facts.set(tick, metric, value));
            }
        }
        self.facts.end(tick.sink);
        self.slots.set_mask(mask_for(came, passed, MAX_MEASURED));
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.slots.skips("block_latency", "devices").into_iter().chain(self.facts.skips()).collect()
    }
}
