//! The instances of a device that have facts, so that those of a row that is gone are removed.

use std::collections::BTreeSet;

use skopos_model::escape_segment;
use skopos_model::schema::{self, Family};

use super::poll::Snapshot;
use super::{snmp_interface, snmp_processor, snmp_sensor, snmp_storage};
use crate::collector::FactSink;

/// The longest instance. A longer name is cut off, and its end is the number of its row.
const MAX_INSTANCE_BYTES: usize = 160;

/// The instances of one device.
#[derive(Debug, Default)]
pub(super) struct Published([BTreeSet<String>; 4]);

impl Published {
    /// Hands the rows of a snapshot over, and removes those that are gone.
    pub(super) fn publish(&mut self, device: &str, snapshot: &Snapshot, sink: &mut dyn FactSink) {
        let mut now: [BTreeSet<String>; 4] = Default::default();
        for row in &snapshot.interfaces {
            let name = note(device, &row.name, &mut now[0]);
            snmp_interface::publish(&name, row, sink);
        }
        for row in &snapshot.storages {
            let name = note(device, &row.name, &mut now[1]);
            snmp_storage::publish(&name, row, sink);
        }
        for row in &snapshot.processors {
            let name = note(device, &row.index.to_string(), &mut now[2]);
            snmp_processor::publish(&name, row, sink);
        }
        for row in &snapshot.sensors {
            let name = note(device, &row.name, &mut now[3]);
            snmp_sensor::publish(&name, row, sink);
        }
        let families: [&Family; 4] = [
            &schema::snmp_interface::FAMILY,
            &schema::snmp_storage::FAMILY,
            &schema::snmp_processor::FAMILY,
            &schema::snmp_sensor::FAMILY,
        ];
        // A poll that broke off says nothing about the rows that it did not reach.
        let is_whole = snapshot.faults.is_empty();
        for ((before, now), family) in self.0.iter_mut().zip(now).zip(families) {
            if !is_whole {
                before.extend(now);
                continue;
            }
            for gone in before.difference(&now) {
                sink.remove(family, gone);
            }
            *before = now;
        }
    }
}

/// Returns the instance of a row: the device, a colon and the name in small letters, with `_` for spaces, so that it is easy
/// to type. Where two names become one, a number tells them apart.
fn note(device: &str, name: &str, into: &mut BTreeSet<String>) -> String {
    let mut escaped = String::new();
    let simple = |c: char| match c {
        // A colon stands between the device and the name.
        '/' | ':' => '.',
        ' ' => '_',
        '~' => '+',
        other => other.to_ascii_lowercase(),
    };
    escape_segment(name.chars().map(simple).collect::<String>().as_bytes(), &mut escaped);
    let mut instance = format!("{device}:{escaped}");
    if instance.len() > MAX_INSTANCE_BYTES || into.contains(&instance) {
        instance.truncate(MAX_INSTANCE_BYTES - 8);
        instance = format!("{instance}+{}", into.len());
    }
    into.insert(instance.clone());
    instance
}
