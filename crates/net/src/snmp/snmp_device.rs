//! The facts of devices.

use serde_json::json;
use skopos_model::Structured;
use skopos_model::schema::snmp_device;

use super::device::Outcome;
use super::known::set;
use super::unknown::Unknown;
use crate::collector::FactSink;

/// Hands the facts of a device over.
pub(super) fn publish(device: &str, outcome: &Outcome, sink: &mut dyn FactSink) {
    let answers = u64::from(outcome.snapshot.is_some());
    sink.set(&snmp_device::ANSWERS, device, answers.into());
    sink.set(&snmp_device::POLL_SECONDS, device, outcome.took.as_secs_f64().into());
    let Some(snapshot) = &outcome.snapshot else {
        let why = outcome.failed.unwrap_or(Unknown::NoAnswer);
        return put(
            &json!({"faults": [{"table": "all", "reason": why.to_string()}]}),
            device,
            sink,
        );
    };
    set(sink, &snmp_device::UP_SECONDS, device, snapshot.up_seconds);
    set(sink, &snmp_device::MEMORY_BYTES, device, snapshot.memory_bytes);
    sink.set(&snmp_device::RESTARTED, device, u64::from(snapshot.began_anew).into());
    let faults: Vec<_> = snapshot
        .faults
        .iter()
        .map(|(table, why)| json!({"table": table, "reason": why.to_string()}))
        .collect();
    put(&json!({"name": snapshot.name.as_ref().ok(), "faults": faults}), device, sink);
}

/// Hands over that a device cannot be polled.
pub(super) fn publish_failure(device: &str, why: &str, sink: &mut dyn FactSink) {
    sink.set(&snmp_device::ANSWERS, device, 0u64.into());
    put(&json!({"faults": [{"table": "all", "reason": why}]}), device, sink);
}

fn put(about: &serde_json::Value, device: &str, sink: &mut dyn FactSink) {
    // A name and at most seven faults are far below the bound of a structured value.
    if let Ok(about) = Structured::new(about.clone()) {
        sink.set_structured(&snmp_device::ABOUT, device, &about);
    }
}
