//! `tcp`: the work of TCP, from `/proc/net/snmp` and `/proc/net/netstat` (RFC 4022;
//! Documentation/networking/snmp_counter.rst). The kernel counts IPv4 and IPv6 together, for the
//! network namespace in which the sensor was opened.
//!
//! `/proc/net/netstat` has the rare troubles, and takes the kernel long to make, as it sums two
//! hundred counters of all cores: it is read every five seconds.

use std::io;

use skopos_model::schema::Family;
use skopos_model::schema::tcp::{self, *};

use crate::facts::Facts;
use crate::file::KernelFile;
use crate::rarely::Rarely;
use crate::root::Root;
use crate::sensor::{Sensor, Skip, Tick};
use crate::shared::{Shareable, SharedFile};
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
    /// Shared with `udp`.
    snmp: (SharedFile, Columns),
    netstat: (KernelFile, Columns),
    netstat_due: Rarely,
    facts: Facts,
    /// Segments sent, and sent again, at the last poll.
    sent_before: Option<(u64, u64)>,
}

/// The fewest segments of which a share is told: of a few, one that is sent again is a large share.
const MIN_SEGMENTS: u64 = 100;

/// Returns the share of segments that were sent again between two polls. The kernel counts them apart from others.
/// `None` of few segments, and if a counter fell.
fn retransmit_ratio(before: (u64, u64), now: (u64, u64)) -> Option<f64> {
    let (sent, again) = (now.0.checked_sub(before.0)?, now.1.checked_sub(before.1)?);
    let all = sent.saturating_add(again);
    (all >= MIN_SEGMENTS).then(|| again as f64 / all as f64)
}

impl Tcp {
    pub(crate) fn open(root: &Root, snmp: &mut Shareable) -> Result<Self, Skip> {
        let netstat = KernelFile::open_or_skip(&root.proc.join("net/netstat"), "tcp")?;
        Ok(Self {
            snmp: (snmp.open_or_skip("tcp")?, Columns::new("Tcp: ", &SNMP)),
            netstat: (netstat, Columns::new("TcpExt: ", &NETSTAT)),
            netstat_due: Rarely::every(LISTEN_OVERFLOWS_TOTAL.read_every()),
            facts: Facts::of_node(&tcp::FAMILY),
            sent_before: None,
        })
    }
}

impl Sensor for Tcp {
    fn family(&self) -> &'static Family {
        &tcp::FAMILY
    }

    fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
        let now = tick.monotonic;
        let (file, columns) = &mut self.snmp;
        file.with(now, |text| columns.take(text))?;
        columns.hand_over(&mut self.facts, tick);
        let sent = columns.get(b"OutSegs").zip(columns.get(b"RetransSegs"));
        let ratio = self.sent_before.zip(sent).and_then(|(then, now)| retransmit_ratio(then, now));
        self.sent_before = sent;
        if let Some(ratio) = ratio {
            self.facts.set(tick, &RETRANSMIT_RATIO, ratio);
        }
        if self.netstat_due.is_due(now) {
            let (file, columns) = &mut self.netstat;
            columns.take(file.read_record()?);
            columns.hand_over(&mut self.facts, tick);
            self.netstat_due.was_read(now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_few_segments_or_of_counters_that_fell_is_not_told() {
        for (before, now, expected) in [
            ((0, 0), (150, 50), Some(0.25)),
            ((1000, 10), (1100, 10), Some(0.0)),
            ((1000, 10), (1099, 10), None),
            ((1000, 10), (999, 500), None),
            ((1000, 10), (2000, 9), None),
            ((0, 0), (u64::MAX, u64::MAX), Some(1.0)),
        ] {
            assert_eq!(retransmit_ratio(before, now), expected, "{before:?} {now:?}");
        }
    }
}
