//! The facts of sensors of devices.

use skopos_model::schema::snmp_sensor;

use super::known::set;
use super::sensors::{Quantity, Sensor};
use crate::collector::FactSink;

/// Hands the facts of a sensor over.
pub(super) fn publish(name: &str, row: &Sensor, sink: &mut dyn FactSink) {
    set(sink, &snmp_sensor::WORKS, name, row.works.map(u64::from));
    let metric = match row.quantity {
        Quantity::Volts => &snmp_sensor::VOLTAGE_VOLTS,
        Quantity::Amperes => &snmp_sensor::CURRENT_AMPERES,
        Quantity::Watts => &snmp_sensor::POWER_WATTS,
        Quantity::Hertz => &snmp_sensor::FREQUENCY_HERTZ,
        Quantity::Celsius => &snmp_sensor::TEMPERATURE_CELSIUS,
        Quantity::Humidity => &snmp_sensor::HUMIDITY_RATIO,
        Quantity::Rpm => &snmp_sensor::FAN_RPM,
        Quantity::Dbm => &snmp_sensor::POWER_DBM,
        Quantity::Truth | Quantity::Other => &snmp_sensor::READING,
    };
    set(sink, metric, name, row.value);
}
