//! Rows of `latest`, and the aggregates over them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use skopos_model::{Kind, Timestamp, Topic, Unit};

use crate::aggregate::{Aggregate, Aggregated, Contribution, contribution};
use crate::expression::{Expression, Fault, Leaf, Leaves};
use crate::limits::MAX_ROWS;
use crate::program::{self, Ema, Fading, Program};
use crate::unknown::Unknown;

/// The rows and their aggregates.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    program: Arc<Program>,
    rows: Vec<Option<Row>>,
    /// Free places in `rows`.
    free: Vec<u32>,
    places: HashMap<u32, u32, BuildHasherDefault<KeyHasher>>,
    /// The exponential means of each row, one for each mean of the program, as of the row's last change.
    means: Vec<f64>,
    aggregates: Vec<Aggregate>,
    /// For each aggregate, the number of rows of each unit that it may read.
    units: Vec<Vec<(Unit, u32)>>,
    /// The time for which the timed aggregates were computed last.
    computed_at: Option<Timestamp>,
    resets: u64,
    refused: u64,
}

/// One row. Unknown numbers are NaN.
#[derive(Clone, Debug)]
struct Row {
    topic: Topic,
    unit: Unit,
    is_counter: bool,
    /// The outcome of each text test.
    texts: u64,
    value: f64,
    /// The time since which the value holds.
    time: Timestamp,
    checked_at: Timestamp,
    /// The time and value of the previous poll, from which the rate is computed.
    before: (Timestamp, f64),
    rate: f64,
}

impl Row {
    /// Returns the number that a mean is computed from.
    #[inline]
    fn source(&self, ema: Ema) -> f64 {
        if ema.of_rate { self.rate } else { self.value }
    }
}

impl Latest {
    pub(crate) fn new(program: Arc<Program>) -> Self {
        let aggregates: Vec<_> =
            program.aggregates.iter().map(|a| Aggregate::new(a.function)).collect();
        Self {
            units: vec![Vec::new(); aggregates.len()],
            aggregates,
            program,
            rows: Vec::new(),
            free: Vec::new(),
            places: HashMap::default(),
            means: Vec::new(),
            computed_at: None,
            resets: 0,
            refused: 0,
        }
    }

    /// Adds a row. Returns false if there are too many; then every value is an error.
    pub(crate) fn add(&mut self, key: u32, topic: &Topic, unit: Unit, kind: Kind) -> bool {
        if self.places.contains_key(&key) {
            return true;
        }
        if self.places.len() == MAX_ROWS {
            self.refused += 1;
            return false;
        }
        let texts = self.program.texts_of(topic, unit, kind);
        let row = Row {
            topic: topic.clone(),
            unit,
            is_counter: kind == Kind::Counter,
            texts,
            value: f64::NAN,
            time: Timestamp::default(),
            checked_at: Timestamp::default(),
            before: (Timestamp::default(), f64::NAN),
            rate: f64::NAN,
        };
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None => self.grow(),
        };
        self.rows[place] = Some(row);
        let means = self.program.emas.len();
        self.means[place * means..(place + 1) * means].fill(f64::NAN);
        self.places.insert(key, place as u32);
        self.count_unit(texts, unit, true);
        self.contribute(place, None);
        self.computed_at = None;
        true
    }

    fn grow(&mut self) -> usize {
        let place = self.rows.len();
        self.rows.push(None);
        self.means.resize(self.rows.len() * self.program.emas.len(), f64::NAN);
        if !place.is_power_of_two() && place != 0 {
            return place;
        }
        let slots = (2 * place).max(1);
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.grow(slots));
        place
    }

    fn count_unit(&mut self, texts: u64, unit: Unit, came: bool) {
        for (aggregate, counts) in self.program.aggregates.iter().zip(&mut self.units) {
            if !may_count(&self.program, aggregate, texts) {
                continue;
            }
            let at = counts.iter().position(|(other, _)| *other == unit);
            match (at, came) {
                (Some(at), true) => counts[at].1 += 1,
                (None, _) => counts.push((unit, 1)),
                (Some(at), false) if counts[at].1 > 1 => counts[at].1 -= 1,
                (Some(at), false) => {
                    counts.swap_remove(at);
                }
            }
        }
    }

    /// Takes a sample in.
    pub(crate) fn change(&mut self, key: u32, time: Timestamp, value: Option<f64>) {
        let Some(&place) = self.places.get(&key) else { return };
        let place = place as usize;
        let Some(row) = &mut self.rows[place] else { return };
        let value = value.unwrap_or(f64::NAN);
        if time == row.time && value.to_bits() == row.value.to_bits() {
            return;
        }
        let old = (row.value, row.rate, row.time);
        // A second sample of the same time replaces the first.
        if time > row.checked_at {
            row.before = (row.checked_at, row.value);
        }
        if row.is_counter && value < row.value {
            self.resets += 1;
            // The count before the restart does not belong to the rate after it.
            row.before.1 = f64::NAN;
        }
        let rate = (value - row.before.1) / time.since(row.before.0).as_secs_f64();
        row.rate = if rate.is_finite() { rate } else { f64::NAN };
        row.value = value;
        row.time = time;
        row.checked_at = row.checked_at.max(time);
        let width = self.program.emas.len();
        let means = &mut self.means[place * width..(place + 1) * width];
        // By index, here and in `contribute`: without link-time optimisation `zip` is a call.
        for (at, mean) in means.iter_mut().enumerate() {
            let ema = self.program.emas[at];
            let old_value = if ema.of_rate { old.1 } else { old.0 };
            *mean = next_mean(ema.fading, *mean, (old_value, old.2), (row.source(ema), time));
        }
        self.computed_at = None;
        self.contribute(place, None);
    }

    /// Records a poll of a row without a change.
    pub(crate) fn hold(&mut self, key: u32, time: Timestamp) {
        let Some(&place) = self.places.get(&key) else { return };
        if let Some(row) = &mut self.rows[place as usize] {
            row.checked_at = row.checked_at.max(time);
            self.computed_at = None;
        }
    }

    /// Removes a row.
    pub(crate) fn remove(&mut self, key: u32) {
        let Some(place) = self.places.remove(&key) else { return };
        let Some(row) = self.rows[place as usize].take() else { return };
        for aggregate in &mut self.aggregates {
            aggregate.set(place as usize, Contribution::Nothing);
        }
        self.count_unit(row.texts, row.unit, false);
        self.free.push(place);
    }

    /// Computes timed aggregates for `now`.
    pub(crate) fn at(&mut self, now: Timestamp) -> Result<(), Unknown> {
        if self.refused > 0 {
            return Err(Unknown::TooManyTopics { refused: self.refused });
        }
        if self.program.is_timed() && self.computed_at != Some(now) {
            for place in 0..self.rows.len() {
                self.contribute(place, Some(now));
            }
            self.computed_at = Some(now);
        }
        Ok(())
    }

    /// Updates the contribution of a row to the aggregates: to the timed ones if `now` is set, otherwise to
    /// the others.
    fn contribute(&mut self, place: usize, now: Option<Timestamp>) {
        let Some(row) = &self.rows[place] else { return };
        let width = self.program.emas.len();
        let leaves = RowLeaves {
            row,
            means: &self.means[place * width..(place + 1) * width],
            emas: &self.program.emas,
            now,
        };
        let mut selected = None;
        for (at, state) in self.aggregates.iter_mut().enumerate() {
            let aggregate = &self.program.aggregates[at];
            if aggregate.timed != now.is_some() {
                continue;
            }
            let selected = *selected
                .get_or_insert_with(|| self.program.selection.truth(&leaves) == Some(true));
            state.set(place, contribution(selected, aggregate, &leaves));
        }
    }

    /// Returns the reason why an aggregate has no value.
    pub(crate) fn why(&self, at: usize) -> Unknown {
        let topic = |place: usize| self.rows[place].as_ref().map(|row| row.topic.to_string());
        let state = &self.aggregates[at];
        match state.fault() {
            Some((place, Fault::DivideByZero)) => {
                return Unknown::DivideByZero { topic: topic(place) };
            }
            Some((place, _)) => return Unknown::TooLarge { topic: topic(place) },
            None => {}
        }
        let aggregate = &self.program.aggregates[at];
        let mut readable = self.rows.iter().flatten();
        let example = readable.find(|row| may_count(&self.program, aggregate, row.texts));
        match (state.value(), example) {
            (Err(Fault::Several), _) => Unknown::Several { topics: state.count() },
            (Err(Fault::TooLarge), _) => Unknown::TooLarge { topic: None },
            (_, None) => Unknown::NoTopic,
            (_, Some(row)) if aggregate.argument == Expression::Leaf(Leaf::Rate) => {
                Unknown::NoRate { example: row.topic.to_string() }
            }
            (_, Some(row)) => Unknown::NoRow {
                topics: self.units[at].iter().map(|(_, rows)| *rows as usize).sum(),
                example: row.topic.to_string(),
            },
        }
    }

    /// Returns the unit of an aggregate.
    pub(crate) fn unit(&self, at: usize) -> Result<Option<Unit>, Unknown> {
        match self.units[at].as_slice() {
            [] => self.program.unit_of_aggregate(at, None),
            [(unit, _)] => self.program.unit_of_aggregate(at, Some(*unit)),
            [..] if !self.program.needs_unit(at) => self.program.unit_of_aggregate(at, None),
            [(first, _), (second, _), ..] => {
                let aggregate = &self.program.aggregates[at];
                let of = |unit: &Unit| {
                    let mut rows = self.rows.iter().flatten();
                    let row = rows.find(|row| {
                        row.unit == *unit && may_count(&self.program, aggregate, row.texts)
                    });
                    (row.map(|r| r.topic.to_string()).unwrap_or_default(), unit.to_string())
                };
                Err(Unknown::Units(Box::new([of(first), of(second)])))
            }
        }
    }

    pub(crate) fn resets(&self) -> u64 {
        self.resets
    }
}

impl Aggregated for Latest {
    #[inline]
    fn aggregate(&self, at: usize) -> Result<f64, Fault> {
        self.aggregates[at].value()
    }
}

/// Returns true if an aggregate reads a row with these texts, for at least some numbers.
fn may_count(program: &Program, aggregate: &program::Aggregate, texts: u64) -> bool {
    let text = |test: usize| Some(texts >> test & 1 == 1);
    program.selection.by_texts(&text) != Some(false)
        && aggregate.filter.by_texts(&text) != Some(false)
}

/// Returns the mean after a change, from the old and new value with the times since which they hold. By
/// time, the old value held until now; by change, the new value takes its share. The first value is the
/// mean, also after an unknown value.
#[inline]
fn next_mean(fading: Fading, mean: f64, old: (f64, Timestamp), new: (f64, Timestamp)) -> f64 {
    if mean.is_nan() || new.0.is_nan() {
        return new.0;
    }
    match fading {
        Fading::HalfLife(seconds) => faded(mean, old.0, old.1, new.1, seconds),
        Fading::Alpha(share) => mean + share * (new.0 - mean),
    }
}

/// Returns the mean at `now` if it was `mean` at `time` and the value was `value` since.
#[inline]
fn faded(mean: f64, value: f64, time: Timestamp, now: Timestamp, half_life: f64) -> f64 {
    value + (mean - value) * (-(now.since(time).as_secs_f64() / half_life)).exp2()
}

/// The leaves of an expression about one row.
struct RowLeaves<'a> {
    row: &'a Row,
    means: &'a [f64],
    emas: &'a [Ema],
    /// `None` if no leaf depends on the time.
    now: Option<Timestamp>,
}

impl Leaves for RowLeaves<'_> {
    #[inline]
    fn leaf(&self, leaf: Leaf) -> Result<f64, Fault> {
        let number = match (leaf, self.now) {
            (Leaf::Value, _) => self.row.value,
            (Leaf::Rate, _) => self.row.rate,
            (Leaf::Age, Some(now)) if self.row.checked_at != Timestamp::default() => {
                now.since(self.row.checked_at).as_secs_f64()
            }
            (Leaf::Ema(at), now) => match (self.emas[at].fading, now) {
                (Fading::HalfLife(seconds), Some(now)) => {
                    let value = self.row.source(self.emas[at]);
                    faded(self.means[at], value, self.row.time, now, seconds)
                }
                _ => self.means[at],
            },
            (Leaf::Age | Leaf::Aggregate(_), _) => f64::NAN,
        };
        if number.is_finite() { Ok(number) } else { Err(Fault::Null) }
    }

    #[inline]
    fn text(&self, test: usize) -> Option<bool> {
        Some(self.row.texts >> test & 1 == 1)
    }
}

/// A hasher for keys, which are small numbers chosen by the program, so spreading their bits is enough
/// (Fibonacci hashing, Knuth, "The Art of Computer Programming" 6.4).
#[derive(Clone, Copy, Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
