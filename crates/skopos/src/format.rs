//! Values as people read them.

use skopos_model::{Timestamp, Unit, Value};

/// A value with its unit, short: `1.4 GiB`, `12.5 %`, `3.2 ms`, `41 °C`.
pub(crate) fn value(value: &Value, unit: Unit) -> String {
    match value.as_f64() {
        None => value.to_string(),
        Some(number) if !number.is_finite() => number.to_string(),
        Some(number) => match unit.as_str() {
            "bytes" => bytes(number),
            "bytes/s" => format!("{}/s", bytes(number)),
            "seconds" => seconds(number),
            "ratio" => format!("{:.1} %", number * 100.0),
            "celsius" => format!("{number:.1} °C"),
            "" => plain(value, number),
            other => format!("{} {other}", plain(value, number)),
        },
    }
}

/// Integers whole, doubles with three digits after the point at most.
fn plain(value: &Value, number: f64) -> String {
    match value {
        Value::F64(_) => {
            let text = format!("{number:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        other => other.to_string(),
    }
}

/// Powers of 1024 with three or four digits.
pub(crate) fn bytes(number: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = number;
    let mut unit = 0;
    while scaled.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{scaled:.0} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

fn seconds(number: f64) -> String {
    match number.abs() {
        0.0 => "0 s".to_owned(),
        s if s < 1e-6 => format!("{:.0} ns", number * 1e9),
        s if s < 1e-3 => format!("{:.1} µs", number * 1e6),
        s if s < 1.0 => format!("{:.1} ms", number * 1e3),
        _ => format!("{number:.1} s"),
    }
}

/// The time of day of a timestamp in UTC, to the millisecond.
pub(crate) fn time_of_day(time: Timestamp) -> String {
    let text = time.to_string();
    text.get(11..23).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_people_read_them() {
        let check = |v: Value, unit: &str, expected: &str| {
            assert_eq!(value(&v, Unit::new(unit).expect("a unit")), expected);
        };
        check(Value::U64(1_500_000_000), "bytes", "1.4 GiB");
        check(Value::U64(17), "bytes", "17 B");
        check(Value::F64(0.125), "ratio", "12.5 %");
        check(Value::F64(0.0032), "seconds", "3.2 ms");
        check(Value::F64(41.0), "celsius", "41.0 °C");
        check(Value::F64(0.5), "", "0.5");
        check(Value::I64(-3), "", "-3");
        check(Value::F64(f64::NAN), "bytes", "NaN");
    }
}
