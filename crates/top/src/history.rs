//! The history of a topic, with one value for each column of the screen.

use skopos_model::{Kind, Topic, Unit, Value};

use crate::data::{Data, Fact};
use crate::text;

/// The widths of a column in seconds. Round numbers make the scale easy to read and keep the picture
/// from shifting.
const STEPS: [i64; 13] = [1, 2, 3, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];

const SECOND: i64 = 1_000_000_000;

/// Values at equal intervals, the newest last.
pub(crate) struct Series {
    pub values: Vec<Option<f64>>,
    /// Seconds from one value to the next.
    pub step: i64,
    /// The unit of the values; per second for counters.
    unit: Unit,
    is_rate: bool,
}

/// The history of `topic` in at most `columns` values; `None` unless memory has numbers of it.
pub(crate) fn series(data: &Data, topic: &Topic, columns: usize) -> Option<Series> {
    let fact = data.fact(topic)?;
    let samples = &data.histories.get(topic)?.samples;
    let (first, _) = *samples.first()?;
    let columns = i64::try_from(columns).ok().filter(|c| *c > 0)?;
    let end = fact.checked_at.as_nanos();
    let reach = (end - first).max(0) / SECOND + 1;
    let step = STEPS.into_iter().find(|step| reach <= step * columns).unwrap_or(STEPS[12]);
    // Columns end at whole multiples of the step: over time they move but do not change.
    // The newest value is visible at once, a rate when its column is full.
    let whole = end.div_euclid(step * SECOND) + i64::from(fact.kind != Kind::Counter);
    let newest = whole * step * SECOND;
    let oldest = newest - (columns - 1) * step * SECOND;
    let times = (0..columns).map(|column| oldest + column * step * SECOND);
    let values: Vec<Option<f64>> = if fact.kind == Kind::Counter {
        let growth = data.growth(fact)?;
        times.map(|t| growth.per_second(t - step * SECOND, t)).collect()
    } else {
        times.map(|t| value_in(samples, t - step * SECOND, t)).collect()
    };
    // Columns before the first sample are left out.
    let blank = values.iter().take_while(|v| v.is_none()).count();
    let values = values[blank..].to_vec();
    if values.is_empty() {
        return None;
    }
    Some(Series { values, step, unit: fact.unit, is_rate: is_rate(fact) })
}

fn is_rate(fact: &Fact) -> bool {
    fact.kind == Kind::Counter
}

/// The greatest value between two times: a peak must not fall between columns.
fn value_in(samples: &[(i64, f64)], from: i64, to: i64) -> Option<f64> {
    let after = samples.partition_point(|s| s.0 <= from);
    let until = samples.partition_point(|s| s.0 <= to);
    // The last sample before the span was valid at its beginning.
    let held = &samples[after.saturating_sub(1)..until];
    held.iter().map(|s| s.1).reduce(f64::max)
}

impl Series {
    /// The length of the history, in words.
    pub(crate) fn reach(&self) -> String {
        let seconds = self.values.len() as i64 * self.step;
        match seconds {
            s if s < 120 => format!("{s} s"),
            s if s < 7200 => format!("{} min", s / 60),
            s => format!("{} h", s / 3600),
        }
    }

    /// The least and the greatest value.
    pub(crate) fn bounds(&self) -> Option<(f64, f64)> {
        let known = || self.values.iter().flatten().copied().filter(|v| v.is_finite());
        Some((known().reduce(f64::min)?, known().reduce(f64::max)?))
    }

    /// The top of a scale from zero: 1 for a ratio, else the greatest value.
    pub(crate) fn top(&self) -> f64 {
        match self.bounds() {
            _ if self.unit == Unit::RATIO && !self.is_rate => 1.0,
            Some((_, greatest)) if greatest > 0.0 => greatest,
            _ => 1.0,
        }
    }

    /// The text of a value.
    pub(crate) fn show(&self, value: f64) -> String {
        if self.is_rate {
            text::rate(value, self.unit)
        } else {
            text::value(&Value::F64(value), self.unit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_value_of_a_span() {
        let samples = [(10, 1.0), (20, 5.0), (30, 2.0)];
        assert_eq!(value_in(&samples, 0, 5), None);
        assert_eq!(value_in(&samples, 0, 10), Some(1.0));
        assert_eq!(value_in(&samples, 12, 15), Some(1.0));
        assert_eq!(value_in(&samples, 12, 35), Some(5.0));
        assert_eq!(value_in(&samples, 30, 35), Some(2.0));
        assert_eq!(value_in(&[], 0, 5), None);
    }
}
