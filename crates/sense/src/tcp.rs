//! `tcp`: the work of TCP, from `/proc/net/snmp` and `/proc/net/netstat` (RFC 4022;
//! Documentation/networking/snmp_counter.rst). The kernel counts IPv4 and IPv6 together, for the
//! network namespace in which the sensor was opened.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::tcp::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::table::{Columns, Field, plain};

static SNMP: [Field; 10] = [
    plain("CurrEstab", &ESTABLISHED),
    plain("ActiveOpens", &ACTIVE_OPENS_TOTAL),
    plain("PassiveOpens", &PASSIVE_OPENS_TOTAL),
    plain("AttemptFails", &ATTEMPT_FAILURES_TOTAL),
    plain("EstabResets", &ESTABLISHED_RESETS_TOTAL),
    plain("InSegs", &RECEIVED_SEGMENTS_TOTAL),
    plain("OutSegs", &SENT_SEGMENTS_TOTAL),
    plain("RetransSegs", &RETRANSMITTED_SEGMENTS_TOTAL),
    plain("InErrs", &RECEIVED_ERRORS_TOTAL),
    plain("OutRsts", &SENT_RESETS_TOTAL),
];

static NETSTAT: [Field; 19] = [
    plain("ListenOverflows", &LISTEN_OVERFLOWS_TOTAL),
    plain("ListenDrops", &LISTEN_DROPS_TOTAL),
    plain("TCPReqQFullDrop", &REQUEST_QUEUE_DROPS_TOTAL),
    plain("SyncookiesSent", &SYN_COOKIES_SENT_TOTAL),
    plain("TCPTimeouts", &TIMEOUTS_TOTAL),
    plain("TCPFastRetrans", &FAST_RETRANSMITS_TOTAL),
    plain("TCPSlowStartRetrans", &SLOW_START_RETRANSMITS_TOTAL),
    plain("TCPSynRetrans", &SYN_RETRANSMITS_TOTAL),
    plain("TCPLostRetransmit", &LOST_RETRANSMITS_TOTAL),
    plain("TCPSpuriousRTOs", &SPURIOUS_TIMEOUTS_TOTAL),
    plain("TCPOFOQueue", &OUT_OF_ORDER_TOTAL),
    plain("TCPRcvCollapsed", &RECEIVE_COLLAPSES_TOTAL),
    plain("PruneCalled", &PRUNED_TOTAL),
    plain("TCPBacklogDrop", &BACKLOG_DROPS_TOTAL),
    plain("TCPRcvQDrop", &RECEIVE_QUEUE_DROPS_TOTAL),
    plain("TCPToZeroWindowAdv", &ZERO_WINDOWS_TOTAL),
    plain("TCPAbortOnMemory", &ABORTS_ON_MEMORY_TOTAL),
    plain("TCPAbortOnTimeout", &ABORTS_ON_TIMEOUT_TOTAL),
    plain("TCPMemoryPressures", &MEMORY_PRESSURES_TOTAL),
];

pub(crate) struct Tcp {
    snmp: (KernelFile, Columns),
    netstat: (KernelFile, Columns),
    facts: Facts,
}

impl Tcp {
    pub(crate) fn open(root: &Root) -> Result<Self, Skip> {
        let open = |name: &str| KernelFile::open_or_skip(&root.proc.join(name), "tcp");
        Ok(Self {
            snmp: (open("net/snmp")?, Columns::new("Tcp: ", &SNMP)),
            netstat: (open("net/netstat")?, Columns::new("TcpExt: ", &NETSTAT)),
            facts: Facts::of_node(&tcp::FAMILY),
        })
    }
}

impl Sensor for Tcp {
    fn family(&self) -> &'static Family {
        &tcp::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        for (file, columns) in [&mut self.snmp, &mut self.netstat] {
            columns.take(file.read_record()?);
            columns.hand_over(&mut self.facts, tick);
        }
        Ok(())
    }
}
