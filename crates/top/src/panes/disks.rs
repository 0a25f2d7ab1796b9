//! Block devices: transfer, utilisation, and the latency of requests.

use skopos_model::Topic;
use skopos_model::schema::block::*;

use super::parts::row;
use crate::data::{Data, Instance};
use crate::table::{Cell, Column, Table, fill, number};
use crate::text::{self, bytes, seconds};

const COLUMNS: [Column; 10] = [
    number("read/s", 10, 0),
    number("write/s", 10, 0),
    number("busy %", 7, 0),
    fill("", 8, 6),
    number("r lat", 8, 1),
    number("w lat", 8, 1),
    number("queue", 6, 2),
    number("r ops", 6, 3),
    number("w ops", 6, 3),
    number("now", 5, 4),
];

/// Devices and partitions.
pub(super) fn table(data: &Data) -> Table {
    devices_table(data.instances(&FAMILY))
}

fn devices_table<'a>(devices: impl Iterator<Item = Instance<'a>>) -> Table {
    let rows = devices.map(|device| {
        let busy = device.value(&BUSY_RATIO);
        let cells = vec![
            Cell::number(device.rate(&READ_BYTES_TOTAL), bytes),
            Cell::number(device.rate(&WRITTEN_BYTES_TOTAL), bytes),
            Cell::number(busy, text::percent),
            Cell::Meter(busy),
            Cell::number(device.value_of_last_poll(&READ_LATENCY_SECONDS), seconds),
            Cell::number(device.value_of_last_poll(&WRITE_LATENCY_SECONDS), seconds),
            Cell::number(device.value(&QUEUE_DEPTH_MEAN), text::number),
            Cell::number(device.rate(&READ_REQUESTS_TOTAL), text::number),
            Cell::number(device.rate(&WRITTEN_REQUESTS_TOTAL), text::number),
            Cell::number(device.value(&IN_FLIGHT), text::number),
        ];
        let history = device.fact(&BUSY_RATIO).or_else(|| device.fact(&READ_BYTES_TOTAL));
        row(&device, text::unescape(device.name), history, cells)
    });
    Table::new("disk", &COLUMNS, rows.collect())
}

/// Whole devices that ever had a request; the busiest first if there are more than `room`.
pub(super) fn whole(data: &Data, room: usize) -> Table {
    let mut devices = wholes(data);
    if devices.len() > room {
        devices.sort_by(|a, b| moved(b).total_cmp(&moved(a)));
    }
    devices_table(devices.into_iter())
}

fn wholes(data: &Data) -> Vec<Instance<'_>> {
    let names: Vec<&str> = data.instances(&FAMILY).map(|d| d.name).collect();
    let is_whole = |d: &Instance<'_>| !names.iter().any(|name| is_partition(d.name, name));
    data.instances(&FAMILY).filter(|d| is_used(d) && is_whole(d)).collect()
}

/// Bytes per second, to rank devices by.
fn moved(device: &Instance<'_>) -> f64 {
    device.rates(&[&READ_BYTES_TOTAL, &WRITTEN_BYTES_TOTAL]).unwrap_or(0.0)
}

/// The utilisation of the device that moved most since the machine started, for the overview.
pub(super) fn history(data: &Data) -> Option<Topic> {
    let total = |d: &Instance<'_>| {
        let bytes = [&READ_BYTES_TOTAL, &WRITTEN_BYTES_TOTAL];
        bytes.iter().filter_map(|m| d.value(m)).sum::<f64>()
    };
    let devices = wholes(data).into_iter();
    devices.max_by(|a, b| total(a).total_cmp(&total(b)))?.topic(&BUSY_RATIO)
}

fn is_used(device: &Instance<'_>) -> bool {
    let requests = [&READ_REQUESTS_TOTAL, &WRITTEN_REQUESTS_TOTAL];
    requests.iter().any(|m| device.value(m).is_some_and(|n| n > 0.0))
}

/// True if `name` is a partition of `device`: `sda1` of `sda`, `nvme0n1p1` of `nvme0n1`.
fn is_partition(name: &str, device: &str) -> bool {
    let Some(rest) = name.strip_prefix(device) else { return false };
    let number = if device.ends_with(|c: char| c.is_ascii_digit()) {
        rest.strip_prefix('p').unwrap_or_default()
    } else {
        rest
    };
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_not_devices() {
        for (name, device) in [("sda1", "sda"), ("nvme0n1p12", "nvme0n1"), ("mmcblk0p1", "mmcblk0")]
        {
            assert!(is_partition(name, device), "{name}");
        }
        for (name, device) in
            [("sda", "sda"), ("sdaa", "sda"), ("loop10", "loop1"), ("dm-1", "sda")]
        {
            assert!(!is_partition(name, device), "{name}");
        }
    }
}
