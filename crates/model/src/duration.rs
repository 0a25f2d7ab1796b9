//! Durations as people type and read them.

use std::time::Duration;

use crate::Error;

/// Reads `500ms`, `30s`, `5m`, `2h` or `1d`; a bare number means seconds.
///
/// # Errors
/// [`Error::DurationUnit`] and [`Error::Duration`]; also for what is below zero or too long.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(Error::DurationUnit(unit.to_owned())),
    };
    let none = || Error::Duration(text.to_owned());
    let number: f64 = number.parse().map_err(|_| none())?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| none())
}

/// As people read it: `870 ns`, `1.5 ms`, `12.3 s`, `4 m 05 s`.
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
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("2", 2000), ("1.5m", 90_000)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "5 s", "1y", "1e400s", "..s", "∞"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
