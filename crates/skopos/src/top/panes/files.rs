//! File systems: what is used and what is left.

use skopos_model::schema::block;
use skopos_model::schema::fs::*;

use super::row;
use crate::top::data::Data;
use crate::top::table::{Cell, Column, Table, fill, number, words};
use crate::top::text::{self, bytes, percent};

const COLUMNS: [Column; 7] = [
    number("used %", 7, 0),
    fill("", 10, 4),
    number("left", 10, 0),
    number("used", 10, 2),
    number("size", 10, 1),
    number("inodes %", 9, 3),
    words("mode", 4, 3),
];

pub(super) fn table(data: &Data) -> Table {
    let rows = data.instances(&FAMILY).map(|fs| {
        let (total, free) = (fs.value(&TOTAL_BYTES), fs.value(&FREE_BYTES));
        let inodes = fs.value(&INODES).zip(fs.value(&INODES_FREE));
        let inodes = inodes.filter(|(all, _)| *all > 0.0).map(|(all, free)| 1.0 - free / all);
        let mode = match fs.value(&READONLY) {
            Some(1.0) => "ro",
            Some(_) => "rw",
            None => "",
        };
        let cells = vec![
            Cell::number(fs.value(&USED_RATIO), percent),
            Cell::Meter(fs.value(&USED_RATIO)),
            Cell::number(fs.value(&AVAILABLE_BYTES), bytes),
            Cell::number(total.zip(free).map(|(total, free)| total - free), bytes),
            Cell::number(total, bytes),
            Cell::number(inodes, percent),
            Cell::words(mode),
        ];
        let history = fs.fact(&USED_RATIO).or_else(|| fs.fact(&AVAILABLE_BYTES));
        row(&fs, name(data, fs.name), history, cells)
    });
    Table::new("file system", &COLUMNS, rows.collect())
}

/// The fullest first if there are more than `room`.
pub(super) fn fullest(data: &Data, room: usize) -> Table {
    let mut table = table(data);
    if table.rows.len() > room {
        table.sort(1, false);
    }
    table
}

/// A device's name, or the path that was escaped into the topic without its first `/`.
fn name(data: &Data, segment: &str) -> String {
    let name = text::unescape(segment);
    let has_devices = data.instances(&block::FAMILY).next().is_some();
    let is_device = data.instance(&block::FAMILY, segment).is_some();
    let is_path = name.contains('/') || has_devices && !is_device;
    if is_path && !name.starts_with('/') { format!("/{name}") } else { name }
}
