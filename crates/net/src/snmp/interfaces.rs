//! The interfaces of a device: `ifTable` and `ifXTable` (RFC 2863).

use std::collections::{HashMap, HashSet};

use super::counter::{Count, Counter};
use super::unknown::{Reading, Unknown};
use super::value::Value;
use super::walk::{Cell, Walk};

/// Columns of both tables; the first is `ifName`.
pub(super) const COLUMNS: [&[u32]; 21] = [
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 18],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 15],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 19],
    // The counters of 64 bits, in the order of `Counted`.
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 6],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 10],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 7],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 11],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 8],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 12],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 9],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 13],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 2],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 5],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 7],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 8],
    // The counters that have 32 bits only.
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 13],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 19],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 14],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 20],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 21],
];
const NAME: usize = 0;
const ALIAS: usize = 1;
const HIGH_SPEED: usize = 2;
const DISCONTINUITY: usize = 3;
const WIDE: usize = 4;
const DESCRIPTION: usize = 12;
const SPEED: usize = 13;
const ADMIN: usize = 14;
const OPER: usize = 15;
const NARROW_ONLY: usize = 16;
const QUEUE: usize = 20;

/// The counters of 32 bits for devices without those of 64, in the order of [`Counted`].
pub(super) const NARROW_COLUMNS: [&[u32]; WIDE_COUNTERS] = [
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 10],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 16],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 11],
    &[1, 3, 6, 1, 2, 1, 2, 2, 1, 17],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 2],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 4],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 3],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 5],
];

/// The value of a speed that does not fit `ifSpeed`.
const SPEED_BEYOND: u64 = u32::MAX as u64;

/// The shortest frame of Ethernet, in bytes: a link carries no more packets than its speed over this.
const MIN_FRAME_BYTES: f64 = 64.0;

/// A counter of an interface. The first eight have 64 bits where the device offers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Counted {
    ReceiveBytes,
    TransmitBytes,
    ReceiveUnicast,
    TransmitUnicast,
    ReceiveMulticast,
    TransmitMulticast,
    ReceiveBroadcast,
    TransmitBroadcast,
    ReceiveDrops,
    TransmitDrops,
    ReceiveErrors,
    TransmitErrors,
}

/// Counters with 64 bits, and all counters.
const WIDE_COUNTERS: usize = 8;
const COUNTERS: usize = 12;

/// An interface in a poll.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The index of the device, which may be another one after its restart.
    pub index: u32,
    /// `ifName`, else `ifDescr`, else the index; with the index where two interfaces have one name.
    pub name: String,
    /// The text that an administrator gave.
    pub alias: Reading<String>,
    /// Bytes per second that the link carries.
    pub speed_bytes_per_second: Reading<u64>,
    /// True if the administrator wants it to work.
    pub admin_up: Reading<bool>,
    /// True if it can carry packets.
    pub up: Reading<bool>,
    /// Packets in the queue to the link.
    pub queue_packets: Reading<u64>,
    counts: [Reading<Count>; COUNTERS],
}

impl Interface {
    /// Returns a counter.
    pub fn count(&self, counted: Counted) -> Reading<Count> {
        self.counts[counted as usize]
    }

    /// Returns the used share of the link.
    pub fn used_ratio(&self, counted: Counted) -> Reading<f64> {
        match self.speed_bytes_per_second? {
            0 => Err(Unknown::NotOffered),
            speed => Ok(self.count(counted)?.rate? / speed as f64),
        }
    }
}

/// The counters of the polls before, by the name of the interface.
#[derive(Debug, Default)]
pub(super) struct History(HashMap<String, Past>);

#[derive(Debug, Default)]
struct Past {
    discontinuity: Option<u64>,
    counters: [Option<Counter>; COUNTERS],
}

/// Returns true if a row lacks a counter of 64 bits.
pub(super) fn needs_narrow(walk: &Walk) -> bool {
    let lacks = |row: &&Vec<u32>| {
        (WIDE..WIDE + WIDE_COUNTERS)
            .any(|column| walk.cell(column, row).err() == Some(Unknown::NotOffered))
    };
    walk.rows().iter().any(lacks)
}

impl History {
    /// Makes the interfaces of a poll. `began_anew` says that the device restarted.
    pub(super) fn interfaces(
        &mut self,
        walk: &Walk,
        narrow: &Walk,
        began_anew: bool,
    ) -> Vec<Interface> {
        let mut names = HashSet::new();
        let mut interfaces = Vec::new();
        for row in walk.rows() {
            let [index] = row[..] else { continue };
            let mut name = name(walk, row, index);
            if names.contains(&name) {
                name = format!("{name}~{index}");
            }
            names.insert(name.clone());
            interfaces.push(self.interface(walk, narrow, index, name, began_anew));
        }
        // A walk that broke off says nothing about the rows that it did not reach.
        if walk.fault().is_none() {
            self.0.retain(|name, _| names.contains(name));
        }
        interfaces
    }

    fn interface(
        &mut self,
        walk: &Walk,
        narrow: &Walk,
        index: u32,
        name: String,
        began_anew: bool,
    ) -> Interface {
        let row = &[index][..];
        let discontinuity = walk.unsigned(DISCONTINUITY, row).ok();
        let past = self.0.entry(name.clone()).or_default();
        let began_anew = began_anew || past.discontinuity != discontinuity;
        past.discontinuity = discontinuity;
        let speed = speed(walk, row);
        let state = |column| match walk.integer(column, row)? {
            1 => Ok(true),
            2..=7 => Ok(false),
            _ => Err(Unknown::WrongType),
        };
        let mut counts = [Err(Unknown::NotOffered); COUNTERS];
        for (at, (count, counter)) in counts.iter_mut().zip(&mut past.counters).enumerate() {
            let cell = match at.checked_sub(WIDE_COUNTERS) {
                Some(beyond) => walk.cell(NARROW_ONLY + beyond, row),
                None => walk.cell(WIDE + at, row).or_else(|why| match why {
                    Unknown::NotOffered => narrow.cell(at, row),
                    other => Err(other),
                }),
            };
            let most = speed.ok().filter(|speed| *speed > 0).map(|speed| speed as f64);
            let most = match at {
                0 | 1 => most,
                2..WIDE_COUNTERS => most.map(|bytes| bytes / MIN_FRAME_BYTES),
                _ => None,
            };
            *count = cell.and_then(|cell| next(counter, cell, most, began_anew));
        }
        Interface {
            index,
            name,
            alias: walk.text(ALIAS, row),
            speed_bytes_per_second: speed,
            admin_up: state(ADMIN),
            up: state(OPER),
            queue_packets: walk.unsigned(QUEUE, row),
            counts,
        }
    }
}

fn next(
    past: &mut Option<Counter>,
    cell: &Cell,
    most: Option<f64>,
    began_anew: bool,
) -> Reading<Count> {
    let (raw, bits) = match cell.value {
        Value::Counter32(raw) => (u64::from(raw), 32),
        Value::Counter64(raw) => (raw, 64),
        _ => return Err(Unknown::WrongType),
    };
    Ok(match past {
        Some(counter) => counter.next(raw, bits, cell.at, most, began_anew),
        None => {
            let (counter, count) = Counter::new(raw, bits, cell.at);
            *past = Some(counter);
            count
        }
    })
}

fn name(walk: &Walk, row: &[u32], index: u32) -> String {
    let named = |column| walk.text(column, row).ok().filter(|name| !name.is_empty());
    named(NAME).or_else(|| named(DESCRIPTION)).unwrap_or_else(|| format!("index-{index}"))
}

/// `ifHighSpeed` is in millions of bits, and 0 for links below; `ifSpeed` is in bits.
fn speed(walk: &Walk, row: &[u32]) -> Reading<u64> {
    match walk.unsigned(HIGH_SPEED, row) {
        Ok(mega) if mega > 0 => Ok(mega.saturating_mul(1_000_000) / 8),
        _ => match walk.unsigned(SPEED, row)? {
            SPEED_BEYOND => Err(Unknown::NotOffered),
            bits => Ok(bits / 8),
        },
    }
}
