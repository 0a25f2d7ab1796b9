//! Block devices: how much they move, how busy they are, how long requests take.

use skopos_model::schema::block::*;

use super::row;
use crate::top::data::{Data, Instance};
use crate::top::table::{Cell, Column, Table, fill, number};
use crate::top::text::{self, bytes, seconds};

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
    let rows = data.instances(&FAMILY).map(|device| {
        let busy = device.value(&BUSY_RATIO);
        let cells = vec![
            Cell::number(device.rate(&READ_BYTES_TOTAL), bytes),
            Cell::number(device.rate(&WRITTEN_BYTES_TOTAL), bytes),
            Cell::number(busy, text::percent),
            Cell::Meter(busy),
            Cell::number(device.value(&READ_LATENCY_SECONDS), seconds),
            Cell::number(device.value(&WRITE_LATENCY_SECONDS), seconds),
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

/// Whole devices that ever did anything; the busiest first if there are more than `room`.
pub(super) fn whole(data: &Data, room: usize) -> Table {
    let mut table = table(data);
    let names: Vec<String> = table.rows.iter().map(|r| r.key.clone()).collect();
    let used: Vec<String> =
        data.instances(&FAMILY).filter(is_used).map(|d| text::unescape(d.name)).collect();
    table.rows.retain(|row| {
        used.contains(&row.key) && !names.iter().any(|name| is_partition(&row.key, name))
    });
    if table.rows.len() > room {
        let moved = |row: &crate::top::table::Row| match row.cells.as_slice() {
            [Cell::Text(_, read), Cell::Text(_, written), ..] => {
                read.unwrap_or(0.0) + written.unwrap_or(0.0)
            }
            _ => 0.0,
        };
        table.rows.sort_by(|a, b| moved(b).total_cmp(&moved(a)));
    }
    table
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
    fn partitions_are_told_from_devices() {
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
