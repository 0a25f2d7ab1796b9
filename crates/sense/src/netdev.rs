//! `netdev`: network interfaces, counters from `/proc/net/dev` (proc(5)), state and speed from
//! `/sys/class/net/*` (Documentation/ABI/testing/sysfs-class-net).
//!
//! The interfaces are those of the network namespace in which the sensor was opened. An interface
//! that has never carried a packet, such as the spare ones that modules create, has no facts until
//! it does.
//!
//! The kernel says when an interface changes ([`link_notices`](crate::link_notices)). Its state is
//! read after such a notice, and at each poll where there are no notices.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use skopos_model::schema::netdev::{self, *};
use skopos_model::schema::{Family, Metric};

use crate::file::{KernelFile, read_record};
use crate::instances::{Instance, Instances};
use crate::link_notices::LinkNotices;
use crate::parse;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};

/// The most interfaces with facts. A node of a container platform has an interface for each
/// container.
const MAX_INTERFACES: usize = 256;

/// The number of polls for which a speed is kept. Reading it makes the driver ask the hardware.
/// Speeds rarely change without the link going down, and then the speed is read at once. The state
/// is read again after this number of polls, too, in case that a driver changed it without a notice.
const SPEED_POLLS: u32 = 64;

/// The numbers after the name: received, then sent.
static COLUMNS: [Option<&Metric>; 16] = [
    Some(&RECEIVE_BYTES_TOTAL),
    Some(&RECEIVE_PACKETS_TOTAL),
    Some(&RECEIVE_ERRORS_TOTAL),
    Some(&RECEIVE_DROPS_TOTAL),
    Some(&RECEIVE_FIFO_ERRORS_TOTAL),
    None,
    None,
    Some(&RECEIVE_MULTICAST_TOTAL),
    Some(&TRANSMIT_BYTES_TOTAL),
    Some(&TRANSMIT_PACKETS_TOTAL),
    Some(&TRANSMIT_ERRORS_TOTAL),
    Some(&TRANSMIT_DROPS_TOTAL),
    None,
    Some(&TRANSMIT_COLLISIONS_TOTAL),
    Some(&TRANSMIT_CARRIER_ERRORS_TOTAL),
    None,
];

pub(crate) struct Netdev {
    file: KernelFile,
    folder: PathBuf,
    interfaces: Instances<Link>,
    /// Absent where the kernel refuses them, and for recorded files.
    notices: Option<LinkNotices>,
    /// Shared by the small files of all interfaces.
    buffer: Vec<u8>,
}

/// The state files of one interface, kept open; `None` where a file does not exist.
struct Link {
    operstate: Option<File>,
    speed: Option<File>,
    was_up: bool,
    speed_polls_left: u32,
}

impl Link {
    fn open(folder: &Path, name: &[u8]) -> Self {
        let folder = folder.join(std::ffi::OsStr::from_bytes(name));
        Self {
            operstate: File::open(folder.join("operstate")).ok(),
            speed: File::open(folder.join("speed")).ok(),
            was_up: false,
            speed_polls_left: 0,
        }
    }
}

impl Netdev {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        Ok(Self {
            file: KernelFile::open_or_skip(&root.proc.join("net/dev"), "netdev")?,
            folder: root.sys.join("class/net"),
            interfaces: Instances::new(&netdev::FAMILY, MAX_INTERFACES),
            // Notices are about the interfaces of this kernel.
            notices: (root.sys == Root::default().sys).then(LinkNotices::open).and_then(Result::ok),
            buffer: Vec::new(),
        })
    }
}

impl Sensor for Netdev {
    fn family(&self) -> &'static Family {
        &netdev::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let Self { file, folder, interfaces, notices, buffer } = self;
        // Taken before the states are read, so that a later change has a notice of its own.
        let may_have_changed = notices.as_ref().is_none_or(LinkNotices::take);
        interfaces.begin();
        // Two lines of headings without a number, then "eth0: 90230987 4312 0 ...".
        for line in parse::lines(file.read()?) {
            let Some((name, counters)) = parse::split_once(line, b':') else { continue };
            let name = parse::trim(name);
            if parse::numbers(counters).all(|n| n == 0) {
                continue;
            }
            let make = || Link::open(folder, name);
            let Some(interface) = interfaces.see(tick.sink, name, make) else { continue };
            for (metric, number) in COLUMNS.into_iter().zip(parse::numbers(counters)) {
                if let Some(metric) = metric {
                    interface.set(tick, metric, number);
                }
            }
            if set_link(interface, tick, may_have_changed, buffer).is_err() {
                // The interface was removed and made anew under its old name.
                interface.state = Link::open(folder, name);
            }
        }
        interfaces.end(tick.sink);
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        self.interfaces.skips()
    }
}

fn set_link(
    interface: &mut Instance<Link>,
    tick: &mut Tick<'_>,
    may_have_changed: bool,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let link = &mut interface.state;
    let Some(operstate) = &link.operstate else { return Ok(()) };
    if !may_have_changed && link.speed_polls_left > 0 {
        link.speed_polls_left -= 1;
        let up = link.was_up;
        interface.set(tick, &UP, u64::from(up));
        return Ok(());
    }
    // Drivers that do not follow RFC 2863 report `unknown`, the loopback's among them. Their
    // interfaces are up as long as they are configured to be.
    let up = matches!(parse::trim(read_record(operstate, buffer)?), b"up" | b"unknown");
    interface.set(tick, &UP, u64::from(up));
    let link = &mut interface.state;
    if link.was_up == up && link.speed_polls_left > 0 {
        link.speed_polls_left -= 1;
        return Ok(());
    }
    link.was_up = up;
    link.speed_polls_left = SPEED_POLLS;
    // In Mbit/s. Interfaces without a speed give -1 or an error.
    let text = link.speed.as_ref().map(|file| read_record(file, buffer));
    let speed = text.and_then(|t| parse::u64(parse::trim(t.ok()?))).filter(|&n| n > 0);
    if let Some(bytes) = speed.and_then(|megabits| megabits.checked_mul(125_000)) {
        interface.set(tick, &SPEED_BYTES_PER_SECOND, bytes);
    }
    Ok(())
}
