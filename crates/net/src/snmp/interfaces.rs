//! The interfaces of a device: `ifTable` and `ifXTable` (RFC 2863).

use std::collections::{HashMap, HashSet};

use super::counter::{Count, Counter};
use super::names::distinct;
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
    /// `ifName`, else `ifDescr`, else the index; with the index where several interfaces have one name.
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
        let rows: Vec<_> = walk.rows().into_iter().filter(|row| row.len() == 1).collect();
        let names = distinct(rows.iter().map(|row| (*row, name(walk, row))));
        let interface =
            |(row, name): (&Vec<u32>, String)| self.interface(walk, narrow, row, name, began_anew);
        let interfaces: Vec<Interface> = rows.into_iter().zip(names).map(interface).collect();
        // A walk that broke off says nothing about the rows that it did not reach.
        if walk.fault().is_none() {
            let names: HashSet<&str> = interfaces.iter().map(|row| &*row.name).collect();
            self.0.retain(|name, _| names.contains(&**name));
        }
        interfaces
    }

    fn interface(
        &mut self,
        walk: &Walk,
        narrow: &Walk,
        row: &[u32],
        name: String,
        began_anew: bool,
    ) -> Interface {
        let past = self.0.entry(name.clone()).or_default();
        // A time that was not read, or is read for the first time, says nothing about the counters.
        let discontinuity = walk.unsigned(DISCONTINUITY, row).ok().or(past.discontinuity);
        let began_anew =
            began_anew || (past.discontinuity.is_some() && past.discontinuity != discontinuity);
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
            if let (Some(counter), true, true) = (&mut *counter, began_anew, cell.is_err()) {
                counter.expect_anew();
            }
            *count = cell.and_then(|cell| next(counter, cell, most, began_anew));
        }
        Interface {
            index: row.first().copied().unwrap_or(0),
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

fn name(walk: &Walk, row: &[u32]) -> String {
    let named = |column| walk.text(column, row).ok().filter(|name| !name.is_empty());
    let index = row.first().copied().unwrap_or(0);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::super::oid::Oid;
    use super::super::pdu::{Request, Response};
    use super::*;

    /// A device with the columns of interfaces.
    #[derive(Default)]
    struct Device {
        objects: BTreeMap<Oid, Value>,
        /// A column that the device refuses to read.
        refused: Option<usize>,
    }

    impl Device {
        fn set(&mut self, column: usize, index: u32, value: Value) {
            let parts = [COLUMNS[column], &[index]].concat();
            self.objects.insert(Oid::new(&parts).expect("few parts"), value);
        }

        fn answer(&self, request: &Request) -> Response {
            let base = self.refused.map(|column| Oid::from(COLUMNS[column]));
            let place = request.oids.iter().position(|oid| Some(oid) == base.as_ref());
            let (error, error_index) = place.map_or((0, 0), |at| (5, at as i32 + 1));
            let after = |oid: &Oid| match self.objects.range(oid.clone()..).find(|(o, _)| *o > oid)
            {
                Some((next, value)) => (next.clone(), value.clone()),
                None => (oid.clone(), Value::EndOfMib),
            };
            let bindings = request.oids.iter().map(after).collect();
            Response { is_report: false, id: 0, error, error_index, bindings }
        }

        /// Walks the device at a time in seconds, and returns each interface with the rate of its received bytes.
        fn poll(&self, history: &mut History, at: u64) -> Vec<(String, Reading<f64>)> {
            let mut walk = Walk::new(&COLUMNS);
            while let Some(request) = walk.request() {
                walk.take(self.answer(&request), Duration::from_secs(at));
            }
            let rows = history.interfaces(&walk, &Walk::new(&NARROW_COLUMNS), false);
            let rate = |row: &Interface| row.count(Counted::ReceiveBytes).and_then(|c| c.rate);
            rows.iter().map(|row| (row.name.clone(), rate(row))).collect()
        }
    }

    fn text(text: &str) -> Value {
        Value::Octets(text.as_bytes().to_vec())
    }

    fn known(rates: &[(&str, Reading<f64>)]) -> Vec<(String, Reading<f64>)> {
        rates.iter().map(|(name, rate)| ((*name).to_owned(), *rate)).collect()
    }

    #[test]
    fn a_discontinuity_that_was_not_read_is_not_a_restart() {
        let (mut device, mut history) = (Device::default(), History::default());
        let mut poll = |device: &Device, at, expected| {
            assert_eq!(device.poll(&mut history, at), known(&[("a", expected)]), "at {at}");
        };
        device.set(NAME, 7, text("a"));
        device.set(DISCONTINUITY, 7, Value::Ticks(5));
        device.set(WIDE, 7, Value::Counter64(1000));
        poll(&device, 0, Err(Unknown::FirstPoll));
        device.set(WIDE, 7, Value::Counter64(2000));
        device.refused = Some(DISCONTINUITY);
        poll(&device, 10, Ok(100.0));
        device.set(WIDE, 7, Value::Counter64(3000));
        device.refused = None;
        poll(&device, 20, Ok(100.0));
        // The counter itself is not read in the poll that tells of the discontinuity.
        device.set(DISCONTINUITY, 7, Value::Ticks(6));
        device.refused = Some(WIDE);
        poll(&device, 30, Err(Unknown::Refused(5)));
        device.set(WIDE, 7, Value::Counter64(3500));
        device.refused = None;
        poll(&device, 40, Err(Unknown::BeganAnew));
        device.set(WIDE, 7, Value::Counter64(3600));
        poll(&device, 50, Ok(10.0));
    }

    #[test]
    fn interfaces_with_one_name_keep_their_own_counters() {
        let (mut device, mut history) = (Device::default(), History::default());
        for (index, name) in [(1, "a"), (2, "a"), (3, "a~2")] {
            device.set(NAME, index, text(name));
            device.set(WIDE, index, Value::Counter64(u64::from(index) * 1000));
        }
        let names = ["a~1", "a~2~2", "a~2~3"];
        let first = names.map(|name| (name, Err(Unknown::FirstPoll)));
        assert_eq!(device.poll(&mut history, 0), known(&first));
        for index in 1..=3 {
            device.set(WIDE, index, Value::Counter64(u64::from(index) * 1010));
        }
        let rates = [(names[0], Ok(1.0)), (names[1], Ok(2.0)), (names[2], Ok(3.0))];
        assert_eq!(device.poll(&mut history, 10), known(&rates));
        // Without the first interface, the name of the second one is its own, and it is not continued from the first.
        device.objects.retain(|oid, _| oid.parts().last() != Some(&1));
        let rates = device.poll(&mut history, 20);
        assert_eq!(rates[0], ("a".to_owned(), Err(Unknown::FirstPoll)));
    }
}
