//! Path health (MicroMon): latency, loss and queues of the packets from one address to another.
//!
//! The insight is a record for each path with in-band telemetry:
//!
//! - `time_ns`: the time at which the packets were counted.
//! - `path`: both addresses, as in topics.
//! - `latency_seconds`: the time of the last packet from its first hop to its sink.
//! - `hops_seconds`: the part of it that the packet was inside of hops.
//! - `loss_ratio`: lost packets of the last interval over all its packets; unknown without packets.
//! - `queue_bytes`: the most bytes in one queue on the path.
//! - `changes_total`: changes of the path so far.
//!
//! A part that is not known is `null`, with its reason under `unknown`.

use skopos_model::schema::{insight, path};

use super::definition::quotient;
use super::record::Record;
use super::*;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::PATH_HEALTH,
    row: 16,
    name: "path health",
    formula: "(time, path, latency, hops_latency, rate(lost) / (rate(lost) + rate(packets)), queue, changes)",
    source: "MicroMon, section 4: network micrometrics from in-band telemetry; the record is our own",
    instances: Instances::Paths,
    inputs: &[
        InputSpec::needed("packets", FactSelector::Own(&path::PACKETS_TOTAL)),
        InputSpec::optional("lost", FactSelector::Own(&path::LOST_TOTAL)),
        InputSpec::optional("latency", FactSelector::Own(&path::LATENCY_SECONDS)),
        InputSpec::optional("hops_latency", FactSelector::Own(&path::HOPS_LATENCY_SECONDS)),
        InputSpec::optional("queue", FactSelector::Own(&path::QUEUE_BYTES_MAX)),
        InputSpec::optional("changes", FactSelector::Own(&path::CHANGES_TOTAL)),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let mut record = Record::default();
    record.put_time(inputs.first(0)?.checked_at());
    record.put("path", &*subject.instance);
    record.try_put("latency_seconds", inputs.number(2));
    record.try_put("hops_seconds", inputs.number(3));
    record.try_put("loss_ratio", loss_ratio(inputs, 0, 1));
    record.try_put("queue_bytes", inputs.number(4));
    record.try_put("changes_total", inputs.number(5));
    record.finish()
}

/// Returns the share of lost packets in the last interval.
///
/// # Errors
/// Fails if there were no packets, or without a count of them.
pub(super) fn loss_ratio(inputs: &Inputs<'_>, packets: usize, lost: usize) -> Result<f64, Unknown> {
    // A late packet closes a gap, so the number of lost packets may shrink: that is a reset of a counter.
    let (packets, lost) = (inputs.rate(packets)?, inputs.rate(lost)?);
    quotient(lost, lost + packets, "no packet in the last interval")
}
