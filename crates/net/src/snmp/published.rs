//! The instances of a device that have facts, so that those of a row that is gone are removed.

use std::collections::{BTreeSet, HashMap};

use skopos_model::escape_segment;
use skopos_model::schema::{self, Family};

use super::poll::Snapshot;
use super::{snmp_interface, snmp_processor, snmp_sensor, snmp_storage};
use crate::collector::FactSink;

/// The longest instance. A longer name is cut off, and its end is a number.
const MAX_INSTANCE_BYTES: usize = 160;

/// Bytes of a number at the end of an instance: a plus and eight digits.
const NUMBER_BYTES: usize = 9;

/// The instances of one device.
#[derive(Debug, Default)]
pub(super) struct Published([BTreeSet<String>; 4]);

impl Published {
    /// Hands the rows of a snapshot over, and removes those that are gone.
    pub(super) fn publish(&mut self, device: &str, snapshot: &Snapshot, sink: &mut dyn FactSink) {
        let Snapshot { interfaces, storages, processors, sensors, .. } = snapshot;
        let indices: Vec<String> = processors.iter().map(|row| row.index.to_string()).collect();
        let named = [
            instances(device, interfaces.iter().map(|row| &*row.name)),
            instances(device, storages.iter().map(|row| &*row.name)),
            instances(device, indices.iter().map(String::as_str)),
            instances(device, sensors.iter().map(|row| &*row.name)),
        ];
        for (name, row) in named[0].iter().zip(interfaces) {
            snmp_interface::publish(name, row, sink);
        }
        for (name, row) in named[1].iter().zip(storages) {
            snmp_storage::publish(name, row, sink);
        }
        for (name, row) in named[2].iter().zip(processors) {
            snmp_processor::publish(name, row, sink);
        }
        for (name, row) in named[3].iter().zip(sensors) {
            snmp_sensor::publish(name, row, sink);
        }
        let now = named.map(BTreeSet::from_iter);
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

/// Returns the instances of rows by their names: the device, a colon and the name in small letters, with `_` for spaces, so
/// that it is easy to type. Names that become one, and names that are too long, get a number that depends on the name alone.
fn instances<'a>(device: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let simple = |c: char| match c {
        // A colon stands between the device and the name.
        '/' | ':' => '.',
        ' ' => '_',
        '~' => '+',
        other => other.to_ascii_lowercase(),
    };
    let instance = |name: &'a str| {
        let mut escaped = String::new();
        escape_segment(name.chars().map(simple).collect::<String>().as_bytes(), &mut escaped);
        (name, format!("{device}:{escaped}"))
    };
    let rows: Vec<(&str, String)> = names.map(instance).collect();
    let mut uses: HashMap<&str, usize> = HashMap::new();
    rows.iter().for_each(|(_, instance)| *uses.entry(instance).or_default() += 1);
    let numbered = |(name, instance): &(&str, String)| {
        if instance.len() <= MAX_INSTANCE_BYTES && uses.get(&**instance) == Some(&1) {
            return instance.clone();
        }
        // An escaped name is ASCII, so each byte is a character.
        let begin = instance.get(..MAX_INSTANCE_BYTES - NUMBER_BYTES).unwrap_or(instance);
        format!("{begin}+{:08x}", number(name))
    };
    rows.iter().map(numbered).collect()
}

/// Returns a number of a name: FNV-1a with 32 bits.
fn number(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_depends_on_no_row_with_another_name() {
        let of = |names: &[&str]| instances("sw1", names.iter().copied());
        assert_eq!(of(&["Ethernet1/1", "eth 2"]), ["sw1:ethernet1.1", "sw1:eth_2"]);
        let both = of(&["Gi1", "gi1", "gi2"]);
        assert_eq!(both[2], "sw1:gi2");
        assert!(both[0] != both[1] && both[0].starts_with("sw1:gi1+"), "{both:?}");
        let [first, second] = [both[0].clone(), both[1].clone()];
        assert_eq!(of(&["gi1", "gi2", "Gi1"]), [second, "sw1:gi2".to_owned(), first]);
        let long = "x".repeat(300);
        let cut = of(&[&long]);
        assert_eq!(cut[0].len(), MAX_INSTANCE_BYTES);
        assert_eq!(of(&["y", &long])[1], cut[0]);
    }
}
