//! Durations as text that people type and read.

use std::time::Duration;

use crate::error::Error;

/// Units of time, the longest first, in seconds.
const UNITS: [(&str, f64); 5] =
    [("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3)];

/// Reads `500ms`, `30s`, `5m`, `2h` or `1d`, or several of them from long to short, as in `1h30m`; a
/// bare number means seconds.
///
/// # Errors
/// [`Error::DurationUnit`] and [`Error::Duration`], also if the duration is below zero or too long.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let wrong = || Error::Duration(text.to_owned());
    let seconds = |number: f64| Duration::try_from_secs_f64(number).map_err(|_| wrong());
    if let Ok(number) = text.parse() {
        return seconds(number);
    }
    let (mut rest, mut sum, mut shorter) = (text, 0.0, UNITS.as_slice());
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let number: f64 = number.parse().map_err(|_| wrong())?;
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            // A missing unit, as in `1m30`.
            return Err(if unit.is_empty() {
                wrong()
            } else {
                Error::DurationUnit(unit.to_owned())
            });
        }
        // A unit in another order, or twice, is a mistake.
        let at = shorter.iter().position(|(name, _)| *name == unit).ok_or_else(wrong)?;
        sum += number * shorter[at].1;
        (rest, shorter) = (after, &shorter[at + 1..]);
    }
    if text.is_empty() { Err(wrong()) } else { seconds(sum) }
}

/// Formats a duration for people: `870 ns`, `1.5 ms`, `12.3 s`, `4 m 05 s`.
pub fn human(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 1e-6 => format!("{} ns", duration.as_nanos()),
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.1} s"),
        s if s < 3600.0 => {
            let whole = s as u64;
            format!("{} m {:02} s", whole / 60, whole % 60)
        }
        s => {
            let minutes = s as u64 / 60;
            format!("{} h {:02} m", minutes / 60, minutes % 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_typed() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("2", 2000),
            ("1.5m", 90_000),
            ("1m30s", 90_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("1h0.5s", 3_600_500),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "-1", "5 s", "1y", "1e400s", "..s", "∞", "inf", "NaN"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["1m30", "30s1m", "1m1m", "1mm", "1h30", "1m30y"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("-5"), Err(Error::Duration("-5".to_owned())), "no unit is missing");
    }
}
