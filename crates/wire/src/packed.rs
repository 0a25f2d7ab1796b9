//! The last numbers of one vertex, packed: a hub has millions of them.
//!
//! # Layout
//! The first and the last sample are there as they are. Each sample after the first one is also there as a record of its
//! differences from the one before:
//!
//! ```text
//! form       1 byte: bits 0-3 the length of the value in bytes, bits 4-6 the zero bytes below it that are left out,
//!            bit 7 set if a bound follows
//! time       varint: bits 0-2 the whole seconds since the sample before, from 0 to 6, and above them the nanoseconds
//!            that are left, in zigzag order: most values come once a second, some microseconds early or late. If bits
//!            0-2 are 7, another varint has all nanoseconds
//! value      of a double the bits that differ, of an integer the difference in zigzag order; little-endian
//! bound      8 bytes
//! ```

use std::collections::VecDeque;

use skopos_model::{Origin, Sample, Scalar, Timestamp, Value, ValueType};

/// Bytes by which the room for records grows: about three records, so that little of it is unused.
const GROWTH: usize = 32;

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// The bits of a time that have its seconds, and the mark of a time in nanoseconds alone.
const SECONDS_BITS: u32 = 3;
const NANOS_ALONE: u64 = (1 << SECONDS_BITS) - 1;

/// The longest time in seconds and nanoseconds: the nanoseconds that are left fit beside the seconds.
const LONGEST_IN_SECONDS: i64 = 1 << 59;

/// The mark of a record with a bound.
const HAS_BOUND: u8 = 0x80;

/// The last numbers of a vertex.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    first: Slot,
    last: Slot,
    /// Records of the samples after the first one, the oldest first.
    records: VecDeque<u8>,
    count: u8,
    value_type: ValueType,
}

impl Packed {
    pub(crate) fn new(value_type: ValueType) -> Self {
        let (first, last) = (Slot::default(), Slot::default());
        Self { first, last, records: VecDeque::new(), count: 0, value_type }
    }

    /// Returns the type of the numbers.
    #[inline]
    pub(crate) fn value_type(&self) -> ValueType {
        self.value_type
    }

    /// Returns the oldest sample.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Slot> {
        (self.count > 0).then_some(&self.first)
    }

    /// Returns the latest sample.
    #[inline]
    pub(crate) fn last(&self) -> Option<&Slot> {
        (self.count > 0).then_some(&self.last)
    }

    /// Appends a sample, which is later than the last one. The oldest gives way to it if there are `most`.
    pub(crate) fn push(&mut self, slot: Slot, most: u8) {
        if self.count == 0 {
            self.first = slot;
        } else {
            if self.count >= most {
                self.drop_first();
            }
            let mut record = [0; LONGEST];
            let length = self.encode(&slot, &mut record);
            if self.records.capacity() < self.records.len() + length {
                self.records.reserve_exact(length.max(GROWTH));
            }
            self.records.extend(&record[..length]);
        }
        self.last = slot;
        self.count += 1;
    }

    fn drop_first(&mut self) {
        let mut bytes = self.records.iter().copied();
        let before = self.records.len();
        if let Some(next) = decode(&self.first, self.value_type, &mut bytes) {
            let length = before - bytes.len();
            self.first = next;
            self.records.drain(..length);
            self.count -= 1;
        }
    }

    /// Returns all samples, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> {
        let mut bytes = self.records.iter().copied();
        std::iter::successors(self.first().copied(), move |before| {
            decode(before, self.value_type, &mut bytes)
        })
    }

    /// Writes the record of a sample that follows the last one, and returns its length.
    fn encode(&self, slot: &Slot, record: &mut [u8; LONGEST]) -> usize {
        let before = &self.last;
        let difference = match self.value_type {
            ValueType::F64 => slot.bits ^ before.bits,
            _ => zigzag(slot.bits.wrapping_sub(before.bits).cast_signed()),
        };
        let (shift, bytes) = match difference {
            0 => (0, 0),
            _ => {
                let shift = difference.trailing_zeros() / 8;
                (shift, 8 - difference.leading_zeros() / 8 - shift)
            }
        };
        let has_bound = slot.bound.to_bits() != before.bound.to_bits();
        record[0] = (bytes | shift << 4) as u8 | if has_bound { HAS_BOUND } else { 0 };
        let mut at = 1;
        let mut put = |bytes: &[u8]| {
            record[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        let nanos = slot.time.as_nanos().wrapping_sub(before.time.as_nanos());
        let mut put_varint = |mut number: u64| {
            while number >= 0x80 {
                put(&[number as u8 | 0x80]);
                number >>= 7;
            }
            put(&[number as u8]);
        };
        match in_seconds(nanos) {
            Some((seconds, rest)) => put_varint(zigzag(rest) << SECONDS_BITS | seconds),
            None => {
                put_varint(NANOS_ALONE);
                put_varint(nanos.cast_unsigned());
            }
        }
        put(&(difference >> (8 * shift)).to_le_bytes()[..bytes as usize]);
        if has_bound {
            put(&slot.bound.to_bits().to_le_bytes());
        }
        at
    }
}

/// A sample of a number, in 24 bytes; a [`Sample`] takes more than twice as many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) time: Timestamp,
    pub(crate) bits: u64,
    /// Half the width of a predicted value's interval, which is never negative, or one of the two
    /// constants below.
    pub(crate) bound: f64,
}

const MEASURED: f64 = -1.0;
const UNKNOWN: f64 = -2.0;

impl Slot {
    pub(crate) fn new(time: Timestamp, bits: u64, origin: Origin) -> Self {
        let bound = match origin {
            Origin::Measured => MEASURED,
            Origin::Unknown => UNKNOWN,
            // It came from another node and may be any number.
            Origin::Predicted { bound } => bound.max(0.0),
        };
        Self { time, bits, bound }
    }

    #[inline]
    pub(crate) fn sample(&self, value_type: ValueType) -> Option<Sample> {
        let origin = match self.bound {
            MEASURED => Origin::Measured,
            UNKNOWN => Origin::Unknown,
            bound => Origin::Predicted { bound },
        };
        let value = Value::from(Scalar::from_bits(value_type, self.bits)?);
        Some(Sample { time: self.time, value, origin })
    }
}

/// Splits a time into seconds, from 0 to 6, and the nanoseconds that are left; `None` for a time that does not fit.
#[inline]
fn in_seconds(nanos: i64) -> Option<(u64, i64)> {
    if !(0..LONGEST_IN_SECONDS).contains(&nanos) {
        return None;
    }
    let seconds = (nanos + SECOND / 2) / SECOND;
    let seconds = if seconds.cast_unsigned() < NANOS_ALONE { seconds } else { 0 };
    Some((seconds.cast_unsigned(), nanos - seconds * SECOND))
}

/// The longest record: its form, the mark and ten bytes of time, a value and a bound.
const LONGEST: usize = 1 + 1 + 10 + 8 + 8;

/// Reads the record of the sample after `before`.
#[inline]
fn decode(
    before: &Slot,
    value_type: ValueType,
    bytes: &mut impl Iterator<Item = u8>,
) -> Option<Slot> {
    let form = bytes.next()?;
    let time = varint(bytes)?;
    let nanos = match time & NANOS_ALONE {
        NANOS_ALONE => varint(bytes)?.cast_signed(),
        seconds => seconds.cast_signed() * SECOND + unzigzag(time >> SECONDS_BITS),
    };
    let time = before.time.as_nanos().wrapping_add(nanos);
    let mut number = |length: usize| {
        (0..length).try_fold(0u64, |number, at| Some(number | u64::from(bytes.next()?) << (8 * at)))
    };
    let difference = number(usize::from(form & 0xf))? << (8 * u32::from(form >> 4 & 7));
    let bits = match value_type {
        ValueType::F64 => before.bits ^ difference,
        _ => before.bits.wrapping_add(unzigzag(difference).cast_unsigned()),
    };
    let bound = if form & HAS_BOUND == 0 { before.bound } else { f64::from_bits(number(8)?) };
    Some(Slot { time: Timestamp::from_nanos(time), bits, bound })
}

#[inline]
fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut number, mut at) = (0u64, 0);
    loop {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x7f) << at;
        at += 7;
        if byte < 0x80 {
            return Some(number);
        }
    }
}

#[inline]
fn zigzag(number: i64) -> u64 {
    (number.wrapping_shl(1) ^ (number >> 63)).cast_unsigned()
}

#[inline]
fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slots() -> impl Strategy<Value = Vec<(u64, u64, f64)>> {
        let step = prop_oneof![
            1u64..1000,
            Just(1_000_000_000),
            (1u64..9, 0u64..400_000).prop_map(|(s, late)| s * 1_000_000_000 + late - 200_000),
            (1u64 << 59) - 2..(1 << 59) + 2,
            1u64..=u64::MAX >> 8,
        ];
        let bits = prop_oneof![0u64..300, any::<u64>(), any::<f64>().prop_map(f64::to_bits)];
        let bound = prop_oneof![Just(-1.0), Just(-2.0), any::<f64>()];
        prop::collection::vec((step, bits, bound), 0..80)
    }

    proptest! {
        #[test]
        fn samples_come_back_unchanged_and_the_oldest_are_evicted(
            given in slots(),
            value_type in prop_oneof![
                Just(ValueType::F64), Just(ValueType::U64), Just(ValueType::I64)
            ],
        ) {
            let (mut packed, mut time) = (Packed::new(value_type), i64::MIN);
            let mut kept = VecDeque::new();
            for (step, bits, bound) in given {
                time = time.wrapping_add(step.cast_signed());
                let slot = Slot { time: Timestamp::from_nanos(time), bits, bound };
                packed.push(slot, 32);
                if kept.len() == 32 {
                    kept.pop_front();
                }
                kept.push_back(slot);
                let bits_of = |slot: &Slot| (slot.time, slot.bits, slot.bound.to_bits());
                prop_assert_eq!(packed.first().map(bits_of), kept.front().map(bits_of));
                prop_assert_eq!(packed.last().map(bits_of), kept.back().map(bits_of));
                let unpacked: Vec<_> = packed.iter().map(|slot| bits_of(&slot)).collect();
                prop_assert_eq!(unpacked, kept.iter().map(bits_of).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_counter_of_a_second_takes_less_than_a_quarter_of_the_samples_as_they_are() {
        let mut packed = Packed::new(ValueType::U64);
        for n in 0..1000u64 {
            let time = Timestamp::from_nanos(n as i64 * 1_000_000_000);
            packed.push(Slot { time, bits: n * 1500, bound: -1.0 }, 32);
        }
        assert_eq!(packed.iter().count(), 32);
        assert!(packed.records.capacity() <= 32 * size_of::<Slot>() / 4);
    }
}
