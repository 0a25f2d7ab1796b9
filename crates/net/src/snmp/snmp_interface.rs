//! The facts of interfaces of devices.

use serde_json::json;
use skopos_model::Structured;
use skopos_model::schema::snmp_interface;

use super::interfaces::{Counted, Interface};
use super::known::set;
use crate::collector::FactSink;

/// Hands the facts of an interface over.
pub(super) fn publish(name: &str, row: &Interface, sink: &mut dyn FactSink) {
    let about = json!({"name": row.name, "alias": row.alias.as_ref().ok(), "index": row.index});
    // Two texts of at most 255 characters are far below the bound of a structured value.
    if let Ok(about) = Structured::new(about) {
        sink.set_structured(&snmp_interface::ABOUT, name, &about);
    }
    set(sink, &snmp_interface::UP, name, row.up.map(u64::from));
    set(sink, &snmp_interface::ADMIN_UP, name, row.admin_up.map(u64::from));
    set(sink, &snmp_interface::SPEED_BYTES_PER_SECOND, name, row.speed_bytes_per_second);
    set(sink, &snmp_interface::QUEUE_PACKETS, name, row.queue_packets);
    for (counted, metric) in [
        (Counted::ReceiveBytes, &snmp_interface::RECEIVE_BYTES_TOTAL),
        (Counted::TransmitBytes, &snmp_interface::TRANSMIT_BYTES_TOTAL),
        (Counted::ReceiveUnicast, &snmp_interface::RECEIVE_UNICAST_TOTAL),
        (Counted::TransmitUnicast, &snmp_interface::TRANSMIT_UNICAST_TOTAL),
        (Counted::ReceiveMulticast, &snmp_interface::RECEIVE_MULTICAST_TOTAL),
        (Counted::TransmitMulticast, &snmp_interface::TRANSMIT_MULTICAST_TOTAL),
        (Counted::ReceiveBroadcast, &snmp_interface::RECEIVE_BROADCAST_TOTAL),
        (Counted::TransmitBroadcast, &snmp_interface::TRANSMIT_BROADCAST_TOTAL),
        (Counted::ReceiveDrops, &snmp_interface::RECEIVE_DROPS_TOTAL),
        (Counted::TransmitDrops, &snmp_interface::TRANSMIT_DROPS_TOTAL),
        (Counted::ReceiveErrors, &snmp_interface::RECEIVE_ERRORS_TOTAL),
        (Counted::TransmitErrors, &snmp_interface::TRANSMIT_ERRORS_TOTAL),
    ] {
        set(sink, metric, name, row.count(counted).map(|count| count.total));
    }
    for (counted, rate, ratio) in [
        (
            Counted::ReceiveBytes,
            &snmp_interface::RECEIVE_BYTES_PER_SECOND,
            &snmp_interface::RECEIVE_USED_RATIO,
        ),
        (
            Counted::TransmitBytes,
            &snmp_interface::TRANSMIT_BYTES_PER_SECOND,
            &snmp_interface::TRANSMIT_USED_RATIO,
        ),
    ] {
        set(sink, rate, name, row.count(counted).and_then(|count| count.rate));
        set(sink, ratio, name, row.used_ratio(counted));
    }
}
