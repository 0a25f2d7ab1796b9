//! The panes, a file each: the lines above the table, and the table.

mod parts;
pub(crate) mod overview;
mod cpu;
mod memory;
mod disks;
mod files;
mod damaged;
mod full;
mod network;
mod paths;
mod slow_device;
mod cgroups;
mod system;
mod topics;
mod processes;
mod insights;
pub(crate) mod findings;

use ratatui::text::Line;

use crate::data::Data;
use crate::table::Table;
use crate::theme::Theme;

/// Number of panes.
pub(crate) const COUNT: usize = 12;
/// The first pane, with which the UI starts.
pub(crate) const OVERVIEW: usize = 0;
/// The pane that lists every topic.
pub(crate) const TOPICS: usize = 8;
/// The pane that lists processes.
pub(crate) const PROCESSES: usize = 9;

/// One pane.
pub(crate) struct Pane {
    /// The key that leads to it.
    pub key: char,
    /// Its name in the line of panes.
    pub name: &'static str,
    /// The rank of the name: in a narrow terminal, names with the greatest rank are left out first.
    pub rank: u8,
    /// Returns the lines above the table, for a width in columns.
    pub summary: fn(&Data, Theme, usize) -> Vec<Line<'static>>,
    /// Returns the table, its rows in their own order.
    pub table: fn(&Data) -> Table,
    /// The text for the empty table.
    pub empty: &'static str,
    /// True if it shows answers of the agent.
    pub asks: bool,
    /// The order of the rows at the start.
    pub first_sort: usize,
    /// Keys that choose an order in this pane.
    pub sort_keys: &'static [(char, usize)],
}

/// A pane of facts.
const fn facts(key: char, name: &'static str, rank: u8, table: fn(&Data) -> Table) -> Pane {
    let empty = "Not measured here: `skopos doctor` says why.";
    let (first_sort, sort_keys) = (0, &[]);
    Pane { key, name, rank, summary: no_summary, table, empty, asks: false, first_sort, sort_keys }
}

/// Every pane, in the order of `Tab`.
pub(crate) static PANES: [Pane; COUNT] = [
    facts('1', "overview", 0, |_| Table::default()),
    Pane { summary: cpu::summary, ..facts('2', "cpu", 0, cpu::table) },
    Pane { summary: memory::summary, ..facts('3', "memory", 0, memory::table) },
    facts('4', "disks", 0, disks::table),
    facts('5', "files", 2, files::table),
    Pane { summary: network::summary, ..facts('6', "net", 0, network::table) },
    facts('7', "cgroups", 4, cgroups::table),
    Pane { summary: system::summary, ..facts('8', "system", 3, system::table) },
    facts('9', "topics", 1, topics::table),
    Pane {
        summary: processes::summary,
        empty: processes::EMPTY,
        first_sort: processes::BY_CPU,
        sort_keys: processes::SORT_KEYS,
        ..facts('0', "procs", 0, processes::table)
    },
    Pane { summary: insights::summary, asks: true, ..facts('i', "insights", 0, insights::table) },
    Pane {
        summary: findings::summary,
        empty: findings::EMPTY,
        asks: true,
        ..facts('f', "findings", 0, findings::table)
    },
];

fn no_summary(_: &Data, _: Theme, _: usize) -> Vec<Line<'static>> {
    Vec::new()
}
