//! Numbers and names as text of a known width.

use std::time::Duration;

use ratatui::text::Span;
use skopos_model::{Unit, Value};

use skopos_term::format;

/// The text in place of an unknown number.
pub(crate) const UNKNOWN: &str = "-";

/// The width of `text` on a terminal.
pub(crate) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Span::raw(text).width() }
}

/// Cuts `text` to `columns`; a cut text ends in `ellipsis` if that fits.
pub(crate) fn cut(text: &str, columns: usize, ellipsis: &str) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let ellipsis = if width(ellipsis) < columns { ellipsis } else { "" };
    let room = columns - width(ellipsis);
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = width(c.encode_utf8(&mut [0; 4]));
        if used + wide > room {
            break;
        }
        used += wide;
        kept.push(c);
    }
    kept + ellipsis
}

/// Cuts or pads `text` to exactly `columns`, aligned to the left or to the right.
pub(crate) fn fit(text: &str, columns: usize, right: bool, ellipsis: &str) -> String {
    let text = cut(text, columns, ellipsis);
    let pad = " ".repeat(columns.saturating_sub(width(&text)));
    if right { pad + &text } else { text + &pad }
}

/// A number in at most five characters: `0.12`, `12.3`, `123`, `12.3k`, `1.2M`.
pub(crate) fn short(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string();
    }
    let mut scaled = number;
    let mut suffix = "";
    for next in ["k", "M", "G", "T", "P"] {
        // The limit is 10,000 and not 1,000, because whole numbers are easier to read than rounded ones.
        if scaled.abs() < if suffix.is_empty() { 9999.5 } else { 999.5 } {
            break;
        }
        scaled /= 1000.0;
        suffix = next;
    }
    let digits = match scaled.abs() {
        s if !(0.005..99.95).contains(&s) => 0,
        s if s >= 9.995 => 1,
        _ if suffix.is_empty() => 2,
        _ => 1,
    };
    let whole = suffix.is_empty() && scaled.fract() == 0.0;
    format!("{scaled:.*}{suffix}", if whole { 0 } else { digits })
}

/// A share in percent without the sign: ` 37.2`.
pub(crate) fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| UNKNOWN.to_owned(), |r| format!("{:.1}", r * 100.0))
}

/// A share in percent: `37.2 %`.
pub(crate) fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| UNKNOWN.to_owned(), format::share)
}

/// An amount of bytes.
pub(crate) fn bytes(number: Option<f64>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), format::bytes)
}

/// A plain number.
pub(crate) fn number(number: Option<f64>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), short)
}

/// A time.
pub(crate) fn seconds(number: Option<f64>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |n| format::value(&Value::F64(n), Unit::SECONDS))
}

/// A counter's growth in a second: bytes as bytes, seconds as a share of time.
pub(crate) fn rate(rate: f64, unit: Unit) -> String {
    match unit.as_str() {
        "bytes" => format!("{}/s", format::bytes(rate)),
        "seconds" => format::share(rate),
        _ => format!("{}/s", short(rate)),
    }
}

/// A value with its unit.
pub(crate) fn value(value: &Value, unit: Unit) -> String {
    format::value(value, unit)
}

/// An age in at most five characters: `0.3s`, `12s`, `5m`, `3h`, `2d`.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs_f64();
    match seconds {
        s if s < 9.95 => format!("{s:.1}s"),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}

/// The name in a segment of a topic; undoes `skopos_model::escape_segment`.
pub(crate) fn unescape(segment: &str) -> String {
    if segment == "-" {
        return "/".to_owned();
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let hex = |b: &u8| (*b as char).to_digit(16);
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                let code = hex(high).unwrap_or(0) * 16 + hex(low).unwrap_or(0);
                bytes.push(u8::try_from(code).unwrap_or(b'?'));
                rest = tail;
            }
            (b':', _) => bytes.push(b'/'),
            (other, _) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Splits `text` at spaces into lines of at most `columns`.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() && width(line) + 1 + width(word) > columns {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let check = |n: f64, expected: &str| assert_eq!(short(n), expected, "{n}");
        check(0.0, "0");
        check(0.125, "0.12");
        check(0.004, "0");
        check(3.0, "3");
        check(12.34, "12.3");
        check(123.4, "123");
        check(9999.0, "9999");
        check(12_345.0, "12.3k");
        check(999_960.0, "1.0M");
        check(-12_345_678.0, "-12.3M");
        check(f64::INFINITY, "inf");
    }

    #[test]
    fn rates_follow_the_unit() {
        assert_eq!(rate(2048.0, Unit::BYTES), "2.0 KiB/s");
        assert_eq!(rate(0.5, Unit::SECONDS), "50.0 %");
        assert_eq!(rate(12.0, Unit::NONE), "12/s");
    }

    #[test]
    fn ages_are_short() {
        let check = |s: f64, expected: &str| assert_eq!(age(Duration::from_secs_f64(s)), expected);
        check(0.31, "0.3s");
        check(9.99, "10s");
        check(119.0, "119s");
        check(300.0, "5m");
        check(7200.0, "2h");
        check(200_000.0, "2d");
    }

    #[test]
    fn cut_and_fit_keep_the_width() {
        assert_eq!(cut("abcdef", 4, "…"), "abc…");
        assert_eq!(cut("abcdef", 2, "..."), "ab");
        assert_eq!(cut("日本語", 5, "…"), "日本…");
        assert_eq!(fit("ab", 4, true, "…"), "  ab");
        assert_eq!(fit("日本語", 4, false, "…"), "日… ");
    }

    #[test]
    fn unescaping_undoes_escaping() {
        for name in ["/mnt/Data set", "/", "nvme0n1", "/a%b:c", "/-"] {
            let mut segment = String::new();
            skopos_model::escape_segment(name.as_bytes(), &mut segment);
            let found = unescape(&segment);
            assert!(found == name || format!("/{found}") == name, "{name}: {found}");
        }
    }

    #[test]
    fn wrapping_keeps_every_word() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), [""]);
        assert_eq!(wrap("overlong", 3), ["overlong"]);
    }
}
