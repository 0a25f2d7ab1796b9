//! Slow pair (MicroMon): whether the network or the host makes a path slow.
//!
//! The insight is a record for each path with in-band telemetry:
//!
//! - `time_ns`: the time at which the packets were counted.
//! - `path`: both addresses, as in topics.
//! - `verdict`: `network`, `host`, `both` or `neither`.
//! - `network`: the reason of the network's part: loss, or the share of the latency that packets waited in hops.
//! - `host`: the reason of the host's part: the pressure of its busiest resource.
//!
//! The host is the node that computes the insight: that of the collector. So the verdict is about both ends only
//! where each host with a sink collects its own reports. A part that is not known is `null`, with its reason under
//! `unknown`, and counts as not slow.

use skopos_model::schema::{insight, path, psi};

use super::path_health::loss_ratio;
use super::record::Record;
use super::*;

/// The share of lost packets from which on the network is slow: TCP halves its rate at far less.
const LOSS_RATIO: f64 = 0.001;

/// Seconds in hops from which on the network is slow: a queue of 1 ms is that of a full buffer of a fast switch.
const HOPS_SECONDS: f64 = 0.001;

/// The share of time in which a task stalled from which on the host is slow.
const PRESSURE_RATIO: f64 = 0.1;

pub(super) static DEFINITION: Definition = Definition {
    metric: &insight::SLOW_PAIR,
    row: 18,
    name: "slow pair",
    formula: "network if rate(lost) / (rate(lost) + rate(packets)) > 0.001 or hops_latency > 0.001; host if \
              max(cpu, io, memory) > 0.1",
    source: "MicroMon, sections 1 and 4: host and network decided from at once; the bounds are our own",
    instances: Instances::Paths,
    inputs: &[
        InputSpec::needed("packets", FactSelector::Own(&path::PACKETS_TOTAL)),
        InputSpec::optional("lost", FactSelector::Own(&path::LOST_TOTAL)),
        InputSpec::optional("hops_latency", FactSelector::Own(&path::HOPS_LATENCY_SECONDS)),
        InputSpec::optional("cpu", FactSelector::Named(&psi::SOME_AVG10_RATIO, "cpu")),
        InputSpec::optional("io", FactSelector::Named(&psi::SOME_AVG10_RATIO, "io")),
        InputSpec::optional("memory", FactSelector::Named(&psi::SOME_AVG10_RATIO, "memory")),
    ],
    compute,
};

fn compute(subject: &Subject, inputs: &Inputs<'_>) -> Outcome {
    let mut record = Record::default();
    record.put_time(inputs.first(0)?.checked_at());
    record.put("path", &*subject.instance);
    let (network, host) = (network(inputs), host(inputs));
    let is_slow =
        |part: &Result<(bool, String), Unknown>| part.as_ref().is_ok_and(|(slow, _)| *slow);
    record.put(
        "verdict",
        match (is_slow(&network), is_slow(&host)) {
            (true, true) => "both",
            (true, false) => "network",
            (false, true) => "host",
            (false, false) => "neither",
        },
    );
    record.try_put("network", network.map(|(_, reason)| reason));
    record.try_put("host", host.map(|(_, reason)| reason));
    record.finish()
}

/// Returns whether the network is slow, and why.
fn network(inputs: &Inputs<'_>) -> Result<(bool, String), Unknown> {
    let lost = loss_ratio(inputs, 0, 1);
    if let Ok(lost) = lost
        && lost > LOSS_RATIO
    {
        return Ok((true, format!("{:.2} % of packets were lost", lost * 100.0)));
    }
    match (inputs.number(2), lost) {
        (Ok(seconds), _) => {
            Ok((seconds > HOPS_SECONDS, format!("packets were {:.3} ms in hops", seconds * 1e3)))
        }
        (Err(_), Ok(_)) => Ok((false, "no packet was lost".to_owned())),
        (Err(unknown), Err(_)) => Err(unknown),
    }
}

/// Returns whether the host is slow, and why.
fn host(inputs: &Inputs<'_>) -> Result<(bool, String), Unknown> {
    let resources = [(3, "cpu"), (4, "io"), (5, "memory")];
    let known =
        resources.iter().filter_map(|(slot, name)| Some((inputs.number(*slot).ok()?, *name)));
    let busiest = known.max_by(|(a, _), (b, _)| a.total_cmp(b));
    let Some((ratio, name)) = busiest else { return Err(inputs.missing(3)) };
    let reason = format!("tasks stalled for {name} in {:.0} % of the time", ratio * 100.0);
    Ok((ratio > PRESSURE_RATIO, reason))
}
