//! `qdisc_sojourn`: the time that packets spend in the queues in front of interfaces, by a BPF program
//! (`bpf/qdisc_sojourn.bpf.c`).
//!
//! Programs on the tracepoints `qdisc_enqueue` and `qdisc_dequeue` note when a packet goes into the queue of an interface
//! and when it leaves. Packets that find an empty queue pass many queues without entering; they have no time and are not
//! counted. Packets that a queue cuts into segments or drops are not counted either. Interfaces are those of the network
//! namespace of the thread that opens the sensor. Without BPF, the family `qdisc` has backlog and drops.
//!
//! Beyond [`MAX_MEASURED`] packets a second, one in 2, 4, 8, … is measured and counts as that many.

use std::io;
use std::time::Duration;

use aya::maps::{Array, MapData};
use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use skopos_bpf::{At, Loaded, Program, with_causes};
use skopos_model::schema::Family;
use skopos_model::schema::qdisc_sojourn::{self, *};

use crate::histogram::{BUCKETS, Histogram, Percentiles};
use crate::in_kernel;
use crate::instances::Instances;
use crate::root::Root;
use crate::sampling::mask_for;
use crate::sensor::{Sensor, Skip, Tick};
use crate::slots::{SLOTS, Slots};

/// Compiled from `bpf/qdisc_sojourn.bpf.c` by `scripts/bpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/qdisc_sojourn.bpf.o"));

const PROGRAMS: [Program<'static>; 2] = [
    Program { name: "entered", at: At::Typed("qdisc_enqueue") },
    Program { name: "left", at: At::Raw("qdisc_dequeue") },
];

/// The most packets a second that are measured. Measuring a packet costs about 0.5 µs, hence 0.2 % of a core; a second of
/// 4,000 times still has 40 above its 99th percentile.
const MAX_MEASURED: f64 = 4_000.0;

static PERCENTILES: Percentiles =
    Percentiles { p50: &SOJOURN_SECONDS_P50, p99: &SOJOURN_SECONDS_P99, max: &SOJOURN_SECONDS_MAX };

/// The interface in a slot.
struct Interface {
    index: u32,
    histogram: Histogram,
    packets: u64,
}

pub(crate) struct QdiscSojourn {
    /// Keeps the programs attached.
    _programs: Loaded,
    slots: Slots,
    times: Array<MapData, [u32; BUCKETS]>,
    interfaces: [Option<Interface>; SLOTS],
    facts: Instances<()>,
    /// Any socket: the kernel answers by it which interface has an index.
    names: std::os::fd::OwnedFd,
    last: Option<Duration>,
}

impl QdiscSojourn {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let open = || {
            // The number of the namespace is that of its file.
            let namespace = rustix::fs::stat(root.proc.join("thread-self/ns/net"));
            let namespace = namespace.map_err(|e| format!("/proc/thread-self/ns/net: {e}"))?;
            let settings = [("netns", namespace.st_ino)];
            let mut programs = in_kernel::open(root, OBJECT, &PROGRAMS, &settings)?;
            let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
            Ok(Self {
                slots: Slots::new(programs.memory("SHARE").map_err(|e| e.to_string())?)?,
                times: in_kernel::array(&mut programs, "TIMES")?,
                _programs: programs,
                interfaces: [const { None }; SLOTS],
                facts: Instances::new(&qdisc_sojourn::FAMILY, SLOTS),
                names: socket_with(family, kind, SocketFlags::CLOEXEC, None)
                    .map_err(|e| format!("no socket: {e}"))?,
                last: None,
            })
        };
        open().map_err(|reason: String| {
            Skip::new("qdisc_sojourn", format!("{reason}; `qdisc` has backlog and drops"))
        })
    }
}

impl Sensor for QdiscSojourn {
    fn family(&self) -> &'static Family {
        &qdisc_sojourn::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let passed = tick.monotonic.saturating_sub(self.last.unwrap_or(tick.monotonic));
        self.last = Some(tick.monotonic);
        let Self { slots, times, interfaces, facts, names, .. } = self;
        let mut came = 0;
        facts.begin();
        for (slot, known) in interfaces.iter_mut().enumerate() {
            let Some(index) = slots.number(slot) else {
                *known = None;
                continue;
            };
            let Ok(name) = index_to_name_inlined(&*names, index) else {
                *known = None;
                // A slot that cannot be cleared stays taken.
                if times.set(slot as u32, [0; BUCKETS], 0).is_ok() {
                    slots.free(slot);
                }
                continue;
            };
            if known.as_ref().is_none_or(|interface| interface.index != index) {
                *known = Some(Interface { index, histogram: Histogram::default(), packets: 0 });
            }
            let Some(interface) = known else { continue };
            let name = name.as_str().as_bytes();
            let Some(facts) = facts.see(tick.sink, name, || ()) else { continue };
            let counts = times.get(&(slot as u32), 0).map_err(with_causes)?;
            interface.histogram.advance(counts);
            let grown = interface.histogram.total();
            interface.packets += grown;
            came += grown;
            facts.set(tick, &QUEUED_PACKETS_TOTAL, interface.packets);
            let set = |metric, value: f64| facts.set(tick, metric, value);
            interface.histogram.tell(&PERCENTILES, set);
        }
        facts.end(tick.sink);
        slots.set_mask(mask_for(came, passed, MAX_MEASURED));
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        let skips = self.slots.skips("qdisc_sojourn", "interfaces").into_iter();
        skips.chain(self.facts.skips()).collect()
    }
}
