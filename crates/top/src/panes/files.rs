//! File systems: used and available bytes.

use skopos_model::schema::{Family, Metric, block, fs, remote_fs};

use super::parts::row;
use crate::data::{Data, Instance};
use crate::table::{Cell, Column, Row, Table, fill, number, words};
use crate::text::{self, bytes, percent};

const COLUMNS: [Column; 7] = [
    number("used %", 7, 0),
    fill("", 10, 4),
    number("left", 10, 0),
    number("used", 10, 2),
    number("size", 10, 1),
    number("inodes %", 9, 3),
    words("mode", 4, 3),
];

/// The metrics of a row in one of the two families of file systems.
pub(super) struct Names {
    pub family: &'static Family,
    total: &'static Metric,
    free: &'static Metric,
    pub available: &'static Metric,
    pub used_ratio: &'static Metric,
    inodes: &'static Metric,
    inodes_free: &'static Metric,
    pub readonly: &'static Metric,
}

pub(super) static LOCAL: Names = Names {
    family: &fs::FAMILY,
    total: &fs::TOTAL_BYTES,
    free: &fs::FREE_BYTES,
    available: &fs::AVAILABLE_BYTES,
    used_ratio: &fs::USED_RATIO,
    inodes: &fs::INODES,
    inodes_free: &fs::INODES_FREE,
    readonly: &fs::READONLY,
};

pub(super) static REMOTE: Names = Names {
    family: &remote_fs::FAMILY,
    total: &remote_fs::TOTAL_BYTES,
    free: &remote_fs::FREE_BYTES,
    available: &remote_fs::AVAILABLE_BYTES,
    used_ratio: &remote_fs::USED_RATIO,
    inodes: &remote_fs::INODES,
    inodes_free: &remote_fs::INODES_FREE,
    readonly: &remote_fs::READONLY,
};

pub(super) fn table(data: &Data) -> Table {
    let rows = [&LOCAL, &REMOTE].into_iter().flat_map(|names| {
        data.instances(names.family).map(|instance| file_system(data, names, &instance))
    });
    Table::new("file system", &COLUMNS, rows.collect())
}

fn file_system(data: &Data, names: &Names, instance: &Instance<'_>) -> Row {
    let value = |metric| instance.value(metric);
    let (total, free) = (value(names.total), value(names.free));
    let inodes = value(names.inodes).zip(value(names.inodes_free));
    let inodes = inodes.filter(|(all, _)| *all > 0.0).map(|(all, free)| 1.0 - free / all);
    let mode = match (value(&remote_fs::RESPONDING), value(names.readonly)) {
        (Some(0.0), _) => "hung",
        (_, Some(1.0)) => "ro",
        (_, Some(_)) => "rw",
        (_, None) => "",
    };
    let cells = vec![
        Cell::number(value(names.used_ratio), percent),
        Cell::Meter(value(names.used_ratio)),
        Cell::number(value(names.available), bytes),
        Cell::number(total.zip(free).map(|(total, free)| total - free), bytes),
        Cell::number(total, bytes),
        Cell::number(inodes, percent),
        Cell::words(mode),
    ];
    let history = instance.fact(names.used_ratio).or_else(|| instance.fact(names.available));
    row(instance, name(data, names, instance), history, cells)
}

/// The file systems; the fullest first if there are more than `room`.
pub(super) fn fullest(data: &Data, room: usize) -> Table {
    let mut table = table(data);
    if table.rows.len() > room {
        table.sort(1, false);
    }
    table
}

/// The name of a device, or the path of a mount point.
pub(super) fn name(data: &Data, names: &Names, instance: &Instance<'_>) -> String {
    if names.family.name == fs::FAMILY.name {
        local_name(data, instance.name)
    } else {
        format!("/{}", text::unescape(instance.name).trim_start_matches('/'))
    }
}

/// A device's name, or the path that was escaped into the topic without its first `/`.
fn local_name(data: &Data, segment: &str) -> String {
    let name = text::unescape(segment);
    let has_devices = data.instances(&block::FAMILY).next().is_some();
    let is_device = data.instance(&block::FAMILY, segment).is_some();
    let is_path = name.contains('/') || has_devices && !is_device;
    if is_path && !name.starts_with('/') { format!("/{name}") } else { name }
}
