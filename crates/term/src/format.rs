//! Values, numbers and times in the form that people read.

use skopos_model::{Timestamp, Unit, Value};

/// Doubles below this are shown with [`SIGNIFICANT`] digits. From this value on, three digits after the
/// point are at least as precise.
const SMALL: f64 = 0.1;

/// Number of digits of a rounded number.
const SIGNIFICANT: i32 = 3;

/// Numbers below this are shown as a power of ten, because so many zeros are hard to count.
const TINY: f64 = 1e-6;

/// Formats a value with its unit: `1.4 GiB`, `12.5 %`, `3.2 ms`, `41.0 °C`.
pub fn value(value: &Value, unit: Unit) -> String {
    match value.as_f64() {
        None => value.to_string(),
        Some(number) if !number.is_finite() => number.to_string(),
        Some(number) => match unit.as_str() {
            "bytes" => bytes(number),
            "bytes/s" => format!("{}/s", bytes(number)),
            "seconds" => seconds(number),
            "ratio" => share(number),
            "celsius" => format!("{number:.1} °C"),
            "" => plain(value, number),
            other => format!("{} {other}", plain(value, number)),
        },
    }
}

/// Formats a share as a percentage: `37.2 %`; below one percent with three digits: `0.0249 %`.
pub fn share(ratio: f64) -> String {
    let percents = ratio * 100.0;
    if percents == 0.0 || percents.abs() >= 1.0 {
        format!("{percents:.1} %")
    } else {
        format!("{} %", significant(percents))
    }
}

/// Formats integers in full, and doubles with three digits after the point, or with three digits if they
/// are small. A value other than zero is never shown as zero.
fn plain(value: &Value, number: f64) -> String {
    match value {
        Value::F64(_) if number != 0.0 && number.abs() < SMALL => significant(number),
        Value::F64(_) => without_zeros(&format!("{number:.3}")),
        other => other.to_string(),
    }
}

/// Formats a number between -1 and 1, except zero, with three digits: `0.000249`, `3.1e-9`.
fn significant(number: f64) -> String {
    if number.abs() < TINY {
        let text = format!("{number:.*e}", SIGNIFICANT as usize - 1);
        let Some((digits, power)) = text.split_once('e') else { return text };
        return format!("{}e{power}", without_zeros(digits));
    }
    // 0.02 has one zero behind the point, and its logarithm is between -2 and -1.
    let zeros = -number.abs().log10().floor() as i32 - 1;
    without_zeros(&format!("{number:.*}", (zeros + SIGNIFICANT) as usize))
}

/// Removes zeros from the end of a fraction.
fn without_zeros(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a number of bytes with three or four digits and a power of 1024: `1.4 GiB`.
pub fn bytes(number: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut scaled = number;
    let mut unit = 0;
    while scaled.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{scaled:.0} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// Formats seconds with three or four digits: `3.2 ms`.
pub fn seconds(number: f64) -> String {
    match number.abs() {
        0.0 => "0 s".to_owned(),
        s if s < 1e-6 => format!("{:.0} ns", number * 1e9),
        s if s < 1e-3 => format!("{:.1} µs", number * 1e6),
        s if s < 1.0 => format!("{:.1} ms", number * 1e3),
        _ => format!("{number:.1} s"),
    }
}

/// Returns the time of day of a timestamp in UTC, to the millisecond.
pub fn time_of_day(time: Timestamp) -> String {
    let text = time.to_string();
    text.get(11..23).unwrap_or(&text).to_owned()
}

/// Replaces control characters, and those that change the direction of text or have no width, by their escapes: `\u{202e}`.
/// Another user or a process chose them, and a terminal would obey.
pub fn printable(text: &str) -> String {
    let is_obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_obeyed(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Formats a number of things: `1 sample`, `3 samples`.
pub fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_cannot_steer_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\tb\u{9b}"), "a\\u{1b}[2J\\tb\\u{9b}");
        for c in "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            assert_eq!(printable(&format!("a{c}b")), format!("a\\u{{{:x}}}b", u32::from(c)));
        }
        assert_eq!(printable("ü → 水"), "ü → 水");
    }

    #[test]
    fn one_thing_is_not_plural() {
        assert_eq!([0, 1, 2].map(|n| count(n, "file")), ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn values_have_units() {
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

    #[test]
    fn a_small_value_is_not_shown_as_zero() {
        let check = |number: f64, unit: &str, expected: &str| {
            let unit = Unit::new(unit).expect("a unit");
            assert_eq!(value(&Value::F64(number), unit), expected, "{number}");
        };
        check(0.000249, "ratio/s", "0.000249 ratio/s");
        check(-0.000_249_4, "ratio/s", "-0.000249 ratio/s");
        check(0.0999, "ratio/s", "0.0999 ratio/s");
        check(0.25, "ratio/s", "0.25 ratio/s");
        check(0.001, "", "0.001");
        check(3.14e-9, "", "3.14e-9");
        check(2e-7, "", "2e-7");
        check(0.0, "ratio/s", "0 ratio/s");
        check(0.0, "ratio", "0.0 %");
        check(0.0001, "ratio", "0.01 %");
        check(0.0006, "ratio", "0.06 %");
        check(0.000_123_45, "ratio", "0.0123 %");
        check(0.009_999_9, "ratio", "1 %");
        check(-0.005, "ratio", "-0.5 %");
        check(0.0101, "ratio", "1.0 %");
        check(1e-12, "ratio", "1e-10 %");
    }
}
