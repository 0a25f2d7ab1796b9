//! The facts of the collector itself.

use skopos_model::schema::telemetry;

use super::counts::CollectorCounts;
use super::facts::FactSink;

/// Hands the numbers of the collector over.
pub(super) fn publish(counts: &CollectorCounts, sink: &mut dyn FactSink) {
    for (metric, value) in [
        (&telemetry::DATAGRAMS_TOTAL, counts.datagrams),
        (&telemetry::REPORTS_TOTAL, counts.reports),
        (&telemetry::KERNEL_DROPS_TOTAL, counts.kernel_drops),
        (&telemetry::REFUSED_SOURCES_TOTAL, counts.refused_sources),
        (&telemetry::OVER_QUOTA_TOTAL, counts.over_quota),
        (&telemetry::BAD_TAGS_TOTAL, counts.bad_tags),
        (&telemetry::REPLAYS_TOTAL, counts.replays),
        (&telemetry::MALFORMED_TOTAL, counts.malformed),
        (&telemetry::FOREIGN_DOMAINS_TOTAL, counts.foreign_domains),
        (&telemetry::BEYOND_BOUNDS_TOTAL, counts.beyond_bounds),
        (&telemetry::EVICTED_TOTAL, counts.evicted),
        (&telemetry::HOPS_LEFT_OUT_TOTAL, counts.hops_left_out),
    ] {
        sink.set(metric, "", value.into());
    }
}
