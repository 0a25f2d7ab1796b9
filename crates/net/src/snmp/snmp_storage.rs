//! The facts of memories and file systems of devices.

use skopos_model::schema::snmp_storage;

use super::host::Storage;
use super::known::set;
use crate::collector::FactSink;

/// Hands the facts of a storage over.
pub(super) fn publish(name: &str, row: &Storage, sink: &mut dyn FactSink) {
    sink.set(&snmp_storage::MEMORY, name, u64::from(row.is_memory).into());
    set(sink, &snmp_storage::SIZE_BYTES, name, row.size_bytes);
    set(sink, &snmp_storage::USED_BYTES, name, row.used_bytes);
}
