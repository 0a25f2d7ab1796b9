//! Control groups: the usage of jobs, services and containers, and their limits.

use skopos_model::schema::cgroup::*;

use super::parts::row;
use crate::data::Data;
use crate::table::{Cell, Column, Table, fill, number};
use crate::text::{self, bytes, percent};

const COLUMNS: [Column; 9] = [
    number("cpu %", 7, 0),
    number("memory", 10, 0),
    number("limit", 10, 2),
    fill("", 8, 5),
    number("tasks", 6, 1),
    number("throttled %", 11, 4),
    number("read/s", 10, 3),
    number("write/s", 10, 3),
    number("ooms", 5, 2),
];

pub(super) fn table(data: &Data) -> Table {
    let rows = data.instances(&FAMILY).map(|group| {
        let memory = group.value(&MEMORY_BYTES);
        let limit = group.value(&MEMORY_LIMIT_BYTES);
        let full = memory.zip(limit).filter(|(_, limit)| *limit > 0.0).map(|(m, l)| m / l);
        let cells = vec![
            Cell::number(group.rate(&CPU_SECONDS_TOTAL), percent),
            Cell::number(memory, bytes),
            Cell::Text(limit.map_or_else(String::new, |l| bytes(Some(l))), limit),
            Cell::Meter(full),
            Cell::number(group.value(&TASKS), text::number),
            Cell::number(group.rate(&CPU_THROTTLED_SECONDS_TOTAL), percent),
            Cell::number(group.rate(&IO_READ_BYTES_TOTAL), bytes),
            Cell::number(group.rate(&IO_WRITTEN_BYTES_TOTAL), bytes),
            Cell::number(group.value(&MEMORY_OOM_KILLS_TOTAL), text::number),
        ];
        let history = group.fact(&MEMORY_BYTES).or_else(|| group.fact(&CPU_SECONDS_TOTAL));
        let path = text::unescape(group.name);
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        row(&group, path, history, cells)
    });
    Table::new("cgroup", &COLUMNS, rows.collect())
}

/// The groups; the greatest users of processor time first.
pub(super) fn busiest(data: &Data) -> Table {
    let mut table = table(data);
    // The root is the machine itself, which the overview shows already.
    table.rows.retain(|row| row.key != "/");
    table.sort(1, false);
    table
}
