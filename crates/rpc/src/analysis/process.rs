//! The process of a trace file: its configuration, and its own numbers for callpaths, peers and variables.

use super::names::{OTHER, PathId};
use crate::file::Process;
use crate::interval::Interval;

/// The most callpath nodes and variables of one process that are kept. The recorder refuses more than a million names;
/// a file with greater numbers is damaged or was made to fill memory.
pub const MAX_NODES: usize = 1 << 20;

/// Returns the process as reports name it: `kv@n01 (4711)`.
pub fn label(process: &Process) -> String {
    let name = if process.name.is_empty() { "(unnamed)" } else { &process.name };
    match process.node.is_empty() {
        true => format!("{name} ({})", process.pid),
        false => format!("{name}@{} ({})", process.node, process.pid),
    }
}

/// Returns a number of the configuration.
pub fn number(process: &Process, key: &str) -> Option<f64> {
    process.config.get(key)?.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Returns a switch of the configuration: `true`, `1`, `yes` and `on` are true.
pub fn switch(process: &Process, key: &str) -> Option<bool> {
    let value = process.config.get(key)?;
    match value.as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Returns the reason for which the host cannot report an interval.
pub fn unseen_reason(process: &Process, interval: Interval) -> Option<&str> {
    process.unseen.get(interval.name()).map(String::as_str)
}

/// Returns true if two parts of a trace are of one process.
pub(crate) fn is_same(a: &Process, b: &Process) -> bool {
    a.pid == b.pid
        && a.start_ticks == b.start_ticks
        && a.name == b.name
        && a.node == b.node
        && a.boot_id == b.boot_id
}

/// The numbers of one process for names, translated to those of the whole trace.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    paths: Vec<PathId>,
    pvars: Vec<u32>,
    peers: Vec<u32>,
}

/// An empty place of a table.
const UNSET: u32 = u32::MAX;

fn set(table: &mut Vec<u32>, at: usize, value: u32) -> bool {
    if at >= MAX_NODES {
        return false;
    }
    if table.len() <= at {
        table.resize(at + 1, UNSET);
    }
    table[at] = value;
    true
}

fn get(table: &[u32], at: usize) -> Option<u32> {
    table.get(at).copied().filter(|value| *value != UNSET)
}

impl Numbers {
    pub(crate) fn set_path(&mut self, node: u32, path: PathId) -> bool {
        set(&mut self.paths, node as usize, path)
    }

    #[inline]
    pub(crate) fn path(&self, node: u32) -> PathId {
        get(&self.paths, node as usize).unwrap_or(OTHER)
    }

    pub(crate) fn set_pvar(&mut self, number: u16, name: u32) -> bool {
        set(&mut self.pvars, usize::from(number), name)
    }

    pub(crate) fn pvar(&self, number: u16) -> Option<u32> {
        get(&self.pvars, usize::from(number))
    }

    pub(crate) fn set_peer(&mut self, number: u16, name: u32) -> bool {
        set(&mut self.peers, usize::from(number), name)
    }

    pub(crate) fn peer(&self, number: u16) -> Option<u32> {
        get(&self.peers, usize::from(number))
    }
}
