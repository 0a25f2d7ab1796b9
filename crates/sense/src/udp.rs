//! `udp`: the work of UDP, IPv4 from `/proc/net/snmp` and IPv6 from `/proc/net/snmp6` (RFC 4113),
//! for the network namespace in which the sensor was opened.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::udp::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
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
    v4: (KernelFile, Columns, Facts),
    /// Absent where IPv6 is off.
    v6: Option<(KernelFile, Keyed, Facts)>,
}

impl Udp {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let v4 = KernelFile::open_or_skip(&root.proc.join("net/snmp"), "udp")?;
        let v6 = KernelFile::open(&root.proc.join("net/snmp6")).ok();
        Ok(Self {
            v4: (v4, Columns::new("Udp: ", &V4), Facts::of(&udp::FAMILY, "v4")),
            v6: v6.map(|file| (file, Keyed::new(&V6), Facts::of(&udp::FAMILY, "v6"))),
        })
    }
}

impl Sensor for Udp {
    fn family(&self) -> &'static Family {
        &udp::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let (file, columns, facts) = &mut self.v4;
        columns.take(file.read_record()?);
        columns.hand_over(facts, tick);
        if let Some((file, lines, facts)) = &mut self.v6 {
            lines.take(file.read_record()?, b"");
            lines.hand_over(facts, tick);
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
