//! The process of a trace file: its description, its clock, and its own numbers for callpaths, peers and variables.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::names::{OTHER, PathId};
use crate::interval::Interval;

/// The most callpath nodes and variables of one process that are kept. The recorder refuses more than a million names;
/// a file with greater numbers is damaged or was made to fill memory.
pub const MAX_NODES: usize = 1 << 20;

/// The description of a process: the first frame of its file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Version of the format. A newer version is read as far as version 1 has the same fields, and counted.
    pub version: u32,
    /// The name that the process gave itself.
    pub name: String,
    /// Number of the process on its node.
    pub pid: u32,
    /// The start, in ticks of its clock.
    pub start_ticks: u64,
    /// The name of the machine.
    pub node: String,
    /// Identifies one boot of the machine: processes with the same one have the same clock.
    pub boot_id: String,
    /// The host of the recorder, such as `tonic`.
    pub host: String,
    /// The configuration, such as `execution_streams`.
    pub config: BTreeMap<String, String>,
    /// The names of the intervals that the host reports.
    pub intervals: Vec<String>,
    /// The intervals that the host cannot report, with the reason for each.
    pub unseen: BTreeMap<String, String>,
}

impl Process {
    /// The process as reports name it: `kv@n01 (4711)`.
    pub fn label(&self) -> String {
        let name = if self.name.is_empty() { "(unnamed)" } else { &self.name };
        match self.node.is_empty() {
            true => format!("{name} ({})", self.pid),
            false => format!("{name}@{} ({})", self.node, self.pid),
        }
    }

    /// A number of the configuration.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.config.get(key)?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// A switch of the configuration: `true`, `1`, `yes` and `on` are true.
    pub fn switch(&self, key: &str) -> Option<bool> {
        let value = self.config.get(key)?;
        match value.as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// The reason for which the host cannot report an interval.
    pub fn unseen_reason(&self, interval: Interval) -> Option<&str> {
        self.unseen.get(interval.name()).map(String::as_str)
    }
}

/// The relation of ticks to the time of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    ticks: u64,
    unix_ns: i64,
    ns_per_tick: f64,
    /// The error of `unix_ns`.
    pub error_ns: u64,
}

/// The slowest clock that is believed: a millisecond a tick. The fastest: 1000 ticks a ns.
const NS_PER_TICK: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

impl Clock {
    /// Decodes the payload of a clock frame; `None` if it is short or its rate is not credible.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
        let clock = Self {
            ticks: word(0)?,
            unix_ns: word(8)? as i64,
            ns_per_tick: f64::from_bits(word(16)?),
            error_ns: word(24)?,
        };
        NS_PER_TICK.contains(&clock.ns_per_tick).then_some(clock)
    }

    /// The time of a tick in ns since 1970, by the clock of the process's machine.
    #[inline]
    pub fn unix_ns(&self, ticks: u64) -> i64 {
        let since = ticks.wrapping_sub(self.ticks) as i64;
        self.unix_ns.saturating_add((since as f64 * self.ns_per_tick) as i64)
    }

    /// The length of a duration in ns.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
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
