//! `udp`: the work of UDP, IPv4 from `/proc/net/snmp` and IPv6 from `/proc/net/snmp6` (RFC 4113),
//! for the network namespace in which the sensor was opened.
//!
//! `/proc/net/snmp6` has all of IPv6 and takes the kernel long to make, as it sums
//! ninety counters of all cores, of which eight are about UDP: it is read every five seconds.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::udp::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::rarely::Rarely;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::shared::{Shareable, SharedFile};
use crate::table::{Columns, Field, Keyed, plain};

static V4: [Field; 8] = [
    plain("InDatagrams", &RECEIVED_DATAGRAMS_TOTAL),
    plain("OutDatagrams", &SENT_DATAGRAMS_TOTAL),
    plain("NoPorts", &NO_PORT_TOTAL),
    plain("InErrors", &RECEIVED_ERRORS_TOTAL),
    plain("RcvbufErrors", &RECEIVE_BUFFER_ERRORS_TOTAL),
    plain("SndbufErrors", &SEND_BUFFER_ERRORS_TOTAL),
    plain("InCsumErrors", &CHECKSUM_ERRORS_TOTAL),
    plain("MemErrors", &MEMORY_ERRORS_TOTAL),
];

static V6: [Field; 8] = [
    plain("Udp6InDatagrams", &RECEIVED_DATAGRAMS_TOTAL),
    plain("Udp6OutDatagrams", &SENT_DATAGRAMS_TOTAL),
    plain("Udp6NoPorts", &NO_PORT_TOTAL),
    plain("Udp6InErrors", &RECEIVED_ERRORS_TOTAL),
    plain("Udp6RcvbufErrors", &RECEIVE_BUFFER_ERRORS_TOTAL),
    plain("Udp6SndbufErrors", &SEND_BUFFER_ERRORS_TOTAL),
    plain("Udp6InCsumErrors", &CHECKSUM_ERRORS_TOTAL),
    plain("Udp6MemErrors", &MEMORY_ERRORS_TOTAL),
];

pub(crate) struct Udp {
    /// The file is shared with `tcp`.
    v4: (SharedFile, Columns, Facts),
    /// Absent where IPv6 is off.
    v6: Option<(KernelFile, Keyed, Facts)>,
    v6_due: Rarely,
}

impl Udp {
    pub(crate) fn open(root: &Root, snmp: &mut Shareable) -> Result<Self, Skip> {
        let v4 = snmp.open_or_skip("udp")?;
        let v6 = KernelFile::open(&root.proc.join("net/snmp6")).ok();
        Ok(Self {
            v4: (v4, Columns::new("Udp: ", &V4), Facts::of(&udp::FAMILY, "v4")),
            v6: v6.map(|file| (file, Keyed::new(&V6), Facts::of(&udp::FAMILY, "v6"))),
            v6_due: Rarely::every(NO_PORT_TOTAL.read_every()),
        })
    }
}

impl Sensor for Udp {
    fn family(&self) -> &'static Family {
        &udp::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let now = tick.monotonic;
        let (file, columns, facts) = &mut self.v4;
        file.with(now, |text| columns.take(text))?;
        columns.hand_over(facts, tick);
        if let Some((file, lines, facts)) = self.v6.as_mut().filter(|_| self.v6_due.is_due(now)) {
            lines.take(file.read_record()?, b"");
            lines.hand_over(facts, tick);
            self.v6_due.was_read(now);
        }
        Ok(())
    }

    fn skips(&self) -> Vec<Skip> {
        match self.v6 {
            Some(_) => Vec::new(),
            None => vec![Skip::new("udp/v6", "IPv6 is off: no /proc/net/snmp6")],
        }
    }
}
