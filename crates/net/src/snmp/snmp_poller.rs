//! The facts of the poller itself.

use skopos_model::schema::snmp_poller;

use super::counts::PollerCounts;
use crate::collector::FactSink;

/// Hands the numbers of the poller over.
pub(super) fn publish(counts: &PollerCounts, sink: &mut dyn FactSink) {
    for (metric, value) in [
        (&snmp_poller::REQUESTS_TOTAL, counts.requests),
        (&snmp_poller::RESPONSES_TOTAL, counts.responses),
        (&snmp_poller::TIMEOUTS_TOTAL, counts.timeouts),
        (&snmp_poller::REFUSED_TOTAL, counts.refused),
        (&snmp_poller::POLLS_TOTAL, counts.polls),
        (&snmp_poller::FAILED_POLLS_TOTAL, counts.failed_polls),
    ] {
        sink.set(metric, "", value.into());
    }
}
