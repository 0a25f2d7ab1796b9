//! Sensors of a device: `ENTITY-SENSOR-MIB` (RFC 3433), or that of Cisco, which has the same columns.

use super::names::distinct;
use super::unknown::{Reading, Unknown};
use super::walk::Walk;

/// `entPhySensorType`, `Scale`, `Precision`, `Value`, `OperStatus`.
pub(super) const COLUMNS: [&[u32]; 5] = [
    &[1, 3, 6, 1, 2, 1, 99, 1, 1, 1, 1],
    &[1, 3, 6, 1, 2, 1, 99, 1, 1, 1, 2],
    &[1, 3, 6, 1, 2, 1, 99, 1, 1, 1, 3],
    &[1, 3, 6, 1, 2, 1, 99, 1, 1, 1, 4],
    &[1, 3, 6, 1, 2, 1, 99, 1, 1, 1, 5],
];

/// The same columns of `CISCO-ENTITY-SENSOR-MIB`.
pub(super) const CISCO_COLUMNS: [&[u32]; 5] = [
    &[1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1, 1],
    &[1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1, 2],
    &[1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1, 3],
    &[1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1, 4],
    &[1, 3, 6, 1, 4, 1, 9, 9, 91, 1, 1, 1, 1, 5],
];

/// `entPhysicalName` and `entPhysicalDescr`.
pub(super) const NAME_COLUMNS: [&[u32]; 2] =
    [&[1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1, 7], &[1, 3, 6, 1, 2, 1, 47, 1, 1, 1, 1, 2]];

/// The powers of ten of the scales 1 to 17 (RFC 3433, `EntitySensorDataScale`, which has 15 for exa and 18 for peta).
const SCALES: [i32; 17] = [-24, -21, -18, -15, -12, -9, -6, -3, 0, 3, 6, 9, 12, 15, 18, 21, 24];

/// The values that mean "less than it can say" and "more than it can say".
const BEYOND: u32 = 1_000_000_000;

/// The quantity that a sensor measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Volts, of direct or alternating current.
    Volts,
    /// Amperes.
    Amperes,
    /// Watts, electrical or optical.
    Watts,
    /// Hertz.
    Hertz,
    /// Degrees Celsius.
    Celsius,
    /// Relative humidity, as a ratio.
    Humidity,
    /// Revolutions per minute.
    Rpm,
    /// A level of optical power over a milliwatt, in decibels.
    Dbm,
    /// 1 for true, 2 for false.
    Truth,
    /// Another quantity.
    Other,
}

/// A sensor in a poll.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensor {
    /// The name of the part that has it, with the index where several have one name.
    pub name: String,
    /// The quantity that it measures.
    pub quantity: Quantity,
    /// The value in the unit of the quantity.
    pub value: Reading<f64>,
    /// True if the device says that it works.
    pub works: Reading<bool>,
}

/// Makes the sensors of a poll.
pub(super) fn sensors(walk: &Walk, names: &Walk) -> Vec<Sensor> {
    let name = |row: &Vec<u32>| {
        let index = row.first().copied().unwrap_or(0);
        let named = |column| names.text(column, row).ok().filter(|name| !name.is_empty());
        named(0).or_else(|| named(1)).unwrap_or_else(|| format!("sensor-{index}"))
    };
    let sensor = |(row, name): (&Vec<u32>, String)| {
        let status = walk.integer(4, row);
        let works = match status {
            Ok(1) => Ok(true),
            Ok(2 | 3) => Ok(false),
            Ok(_) => Err(Unknown::WrongType),
            Err(why) => Err(why),
        };
        let quantity = quantity(walk.integer(0, row));
        let value = if works == Ok(false) { Err(Unknown::Broken) } else { value(walk, row) };
        let value =
            value.map(|value| if quantity == Quantity::Humidity { value / 100.0 } else { value });
        Sensor { name, quantity, value, works }
    };
    let rows = walk.rows();
    let names = distinct(rows.iter().map(|row| (*row, name(row))));
    rows.into_iter().zip(names).map(sensor).collect()
}

fn quantity(kind: Reading<i32>) -> Quantity {
    match kind {
        Ok(3 | 4) => Quantity::Volts,
        Ok(5) => Quantity::Amperes,
        Ok(6) => Quantity::Watts,
        Ok(7) => Quantity::Hertz,
        Ok(8) => Quantity::Celsius,
        Ok(9) => Quantity::Humidity,
        Ok(10) => Quantity::Rpm,
        Ok(12) => Quantity::Truth,
        Ok(14) => Quantity::Dbm,
        _ => Quantity::Other,
    }
}

fn value(walk: &Walk, row: &[u32]) -> Reading<f64> {
    let raw = walk.integer(3, row)?;
    if raw.unsigned_abs() >= BEYOND {
        return Err(Unknown::Broken);
    }
    let at = usize::try_from(walk.integer(1, row)?).ok().and_then(|scale| scale.checked_sub(1));
    let scale = *at.and_then(|at| SCALES.get(at)).ok_or(Unknown::WrongType)?;
    // A precision below zero tells the digits that are right, and changes nothing.
    let decimals = match walk.integer(2, row)? {
        decimals @ 0..=9 => decimals,
        -8..0 => 0,
        _ => return Err(Unknown::WrongType),
    };
    let exponent = scale - decimals;
    // One division by a whole power keeps 23.5 what it is.
    let power = 10f64.powi(exponent.abs());
    Ok(if exponent < 0 { f64::from(raw) / power } else { f64::from(raw) * power })
}
