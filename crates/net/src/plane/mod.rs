//! The data plane of a Linux node: BPF programs at its interfaces that insert, extend and take away INT, and the
//! reports that they cause.
//!
//! # Invariants
//! - The programs run as long as their [`Plane`] lives.
//! - A packet that INT does not concern passes unchanged, and so does a packet that INT would make too long.
//! - A packet leaves its sink as it came to its source, byte for byte.
//! - Each packet that is left alone, and each report that is lost, is counted.
//!
//! The latency of a hop has the time from arrival to the queue of the egress port, which is measured, and the
//! time in that queue, which is not over yet when the packet is written: it is the time per byte that the last
//! packet with INT waited, times the bytes in the queue.
//!
//! Read in this order: `settings`, `tables` (the layout that the programs share), this file, `reporter`.

mod settings;
mod tables;
mod reporter;

use std::fs;
use std::io;
use std::path::Path;

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, RingBuf};
use rustix::time::{ClockId, clock_gettime};
use skopos_bpf::{At, Loaded, Program, load, with_causes};

use crate::Error;
use crate::netns::Namespace;

pub use skopos_bpf::Direction;

pub use reporter::{Reporter, ReporterCounts};
pub use settings::{HOPS, INT_PORT, MAX_PORTS, MAX_WATCHES, Mode, PlaneSettings, Port, Watch};
pub use tables::{Event, EventKind, PortState};

/// Compiled from `bpf/int.bpf.c` by `scripts/bpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/int.bpf.o"));

/// The values that the programs need from the kernel's types.
const FIELDS: &str = include_str!("../../bpf/fields.h");

/// The most events of one call of [`Plane::events`]: twice those for which the buffer has room, so that a flood of packets does not
/// keep the caller for ever.
pub const MAX_EVENTS: usize = 4096;

/// The number of counters: `COUNTS` of `bpf/tables.h`.
const COUNTS: u32 = 10;

/// The running programs of a node.
pub struct Plane {
    _programs: Loaded,
    settings: PlaneSettings,
    namespace: u32,
    settings_map: Array<MapData, [u8; tables::SETTINGS_BYTES]>,
    ports: HashMap<MapData, u32, [u8; tables::PORT_BYTES]>,
    numbers: PerCpuArray<MapData, u64>,
    events: RingBuf<MapData>,
}

/// Numbers of packets since the plane was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneCounts {
    /// Packets that got INT.
    pub sourced: u64,
    /// Packets to which this node added its data, or about which it reported it.
    pub transited: u64,
    /// Packets from which INT was taken.
    pub sunk: u64,
    /// Packets without INT, or without the data of this node, because they would not have fitted the link.
    pub mtu_exceeded: u64,
    /// Packets without the data of this node because no hop remained.
    pub hops_exceeded: u64,
    /// Packets without INT because a network card was to cut them into segments.
    pub segments: u64,
    /// Packets to the port of INT that are not INT of this version.
    pub malformed: u64,
    /// Reports for which there was no room.
    pub events_lost: u64,
    /// Copies that a sink discarded, as their header says.
    pub discarded: u64,
    /// Packets in which the kernel gave no room.
    pub refused: u64,
}

impl Plane {
    /// Loads the programs, and attaches them to the interfaces in `namespace`.
    ///
    /// # Errors
    /// An interface does not exist, the settings have too many flows or ports, or the kernel refuses a program:
    /// it needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and Linux 6.6.
    pub fn open(namespace: &Namespace, settings: PlaneSettings) -> Result<Self, Error> {
        check(&settings)?;
        let number = namespace.number()?;
        namespace.run(|| Self::open_here(number, settings))
    }

    fn open_here(namespace: u32, settings: PlaneSettings) -> Result<Self, Error> {
        let indexes: Result<Vec<u32>, Error> =
            settings.ports.iter().map(|port| interface_index(&port.interface)).collect();
        let indexes = indexes?;
        let mut programs = vec![
            Program { name: "queue_grew", at: At::Raw("qdisc_enqueue") },
            Program { name: "queue_shrank", at: At::Raw("qdisc_dequeue") },
        ];
        for (port, index) in settings.ports.iter().zip(&indexes) {
            programs.extend(programs_of(port, *index));
        }
        let loading = "load the programs of the data plane";
        let mut loaded = load(OBJECT, &programs, FIELDS, &[]).map_err(Error::system(loading))?;
        let mut watches: Array<MapData, [u8; tables::WATCH_BYTES]> =
            converted(Map::Array(map(&mut loaded, "WATCHES")?))?;
        for (at, watch) in (0..).zip(&settings.watches) {
            watches.set(at, tables::watch(watch), 0).map_err(map_error)?;
        }
        let mut ports: HashMap<MapData, u32, [u8; tables::PORT_BYTES]> =
            converted(Map::HashMap(map(&mut loaded, "PORTS")?))?;
        for (port, index) in settings.ports.iter().zip(&indexes) {
            let record = tables::port(port.id, port.rate_bytes_per_second.unwrap_or(0));
            ports.insert(index, record, 0).map_err(map_error)?;
        }
        let mut plane = Self {
            settings_map: converted(Map::Array(map(&mut loaded, "SETTINGS")?))?,
            ports,
            numbers: converted(Map::PerCpuArray(map(&mut loaded, "NUMBERS")?))?,
            events: converted(Map::RingBuf(map(&mut loaded, "EVENTS")?))?,
            _programs: loaded,
            settings,
            namespace,
        };
        plane.set_clock()?;
        Ok(plane)
    }

    /// Tells the programs the time of the day. Without a further call, the times in packets follow no step of the
    /// clock; [`Reporter::poll`] calls it.
    ///
    /// # Errors
    /// The kernel does not take the settings.
    pub fn set_clock(&mut self) -> Result<(), Error> {
        let nanos = |clock| {
            let time = clock_gettime(clock);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        let offset = nanos(ClockId::Realtime) - nanos(ClockId::Monotonic);
        let record = tables::settings(&self.settings, self.namespace, offset);
        self.settings_map.set(0, record, 0).map_err(map_error)
    }

    /// Returns the numbers of packets.
    ///
    /// # Errors
    /// The kernel does not return them.
    pub fn counts(&self) -> Result<PlaneCounts, Error> {
        let mut numbers = [0; COUNTS as usize];
        for (at, number) in (0..COUNTS).zip(&mut numbers) {
            let each = self.numbers.get(&at, 0).map_err(map_error)?;
            *number = each.iter().sum();
        }
        let [
            sourced,
            transited,
            sunk,
            mtu_exceeded,
            hops_exceeded,
            segments,
            malformed,
            events_lost,
            discarded,
            refused,
        ] = numbers;
        Ok(PlaneCounts {
            sourced,
            transited,
            sunk,
            mtu_exceeded,
            hops_exceeded,
            segments,
            malformed,
            events_lost,
            discarded,
            refused,
        })
    }

    /// Returns the state of the queue of a port.
    ///
    /// # Errors
    /// The interface was not there when the plane was opened.
    pub fn port(&self, index: u32) -> Result<PortState, Error> {
        self.ports.get(&index, 0).map(|bytes| PortState::read(&bytes)).map_err(map_error)
    }

    /// Calls `take` with each waiting event, and with at most [`MAX_EVENTS`]. Returns the number of events.
    pub fn events(&mut self, mut take: impl FnMut(&Event<'_>)) -> usize {
        let mut count = 0;
        while count < MAX_EVENTS
            && let Some(item) = self.events.next()
        {
            if let Some(event) = Event::read(&item) {
                take(&event);
            }
            count += 1;
        }
        count
    }

    /// The settings with which the plane was opened.
    pub fn settings(&self) -> &PlaneSettings {
        &self.settings
    }
}

/// Returns the programs of a port in their order: a source inserts INT before a transit extends it, and a sink
/// takes it away after that.
fn programs_of(port: &Port, index: u32) -> Vec<Program<'static>> {
    let mut programs = Vec::new();
    for direction in [Direction::Ingress, Direction::Egress] {
        let mut attach = |name, wanted: bool| {
            if wanted {
                programs.push(Program { name, at: At::Interface { index, direction } });
            }
        };
        attach("int_source", port.source == Some(direction));
        attach("int_arrive", port.transit && direction == Direction::Ingress);
        attach("int_transit", port.transit && direction == Direction::Egress);
        attach("int_sink", port.sink == Some(direction));
    }
    programs
}

/// The subject of errors about settings.
const SETTINGS: &str = "the settings of the data plane";

fn check(settings: &PlaneSettings) -> Result<(), Error> {
    if settings.watches.len() > MAX_WATCHES {
        let why = format!("{} flows; at most {MAX_WATCHES}", settings.watches.len());
        return Err(Error::malformed(SETTINGS, why));
    }
    if settings.ports.len() > MAX_PORTS {
        let why = format!("{} interfaces; at most {MAX_PORTS}", settings.ports.len());
        return Err(Error::malformed(SETTINGS, why));
    }
    Ok(())
}

/// Returns the number of an interface in the namespace of this thread.
fn interface_index(name: &str) -> Result<u32, Error> {
    // A thread in another namespace than its process does not see its interfaces in the mounted sysfs.
    let path = Path::new("/proc/thread-self/net/dev");
    fs::metadata(path).map_err(Error::system(format!("stat {}", path.display())))?;
    let doing = format!("find the interface {name}");
    rustix::net::netdevice::name_to_index(socket()?, name).map_err(|e| match e {
        rustix::io::Errno::NODEV => {
            let why = format!("there is no interface `{name}`; `ip link` lists them");
            Error::malformed(SETTINGS, why)
        }
        e => Error::system(doing)(io::Error::from(e)),
    })
}

fn socket() -> Result<rustix::fd::OwnedFd, Error> {
    use rustix::net::{AddressFamily, SocketType};
    rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(|e| Error::system("open a socket")(io::Error::from(e)))
}

fn map(loaded: &mut Loaded, name: &'static str) -> Result<MapData, Error> {
    loaded.map(name).map_err(Error::system(format!("take the table {name}")))
}

fn converted<T: TryFrom<Map, Error = aya::maps::MapError>>(map: Map) -> Result<T, Error> {
    T::try_from(map).map_err(map_error)
}

fn map_error(error: aya::maps::MapError) -> Error {
    Error::system("use a table of the data plane")(with_causes(error))
}
