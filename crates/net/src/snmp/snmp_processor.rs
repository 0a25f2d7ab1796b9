//! The facts of processors of devices.

use skopos_model::schema::snmp_processor;

use super::host::Processor;
use super::known::set;
use crate::collector::FactSink;

/// Hands the facts of a processor over.
pub(super) fn publish(name: &str, row: &Processor, sink: &mut dyn FactSink) {
    set(sink, &snmp_processor::BUSY_RATIO, name, row.busy_ratio);
}
