//! The JSON text of a list of numbers, without allocation.

use std::fmt::Write as _;

use skopos_model::Scalar;

/// Decimal places that are written quickly. Ratios and seconds of sensors have no more in lists.
const PLACES: f64 = 1e4;

/// The largest number that is written quickly. Times [`PLACES`] it is below 2^53, up to which a double
/// holds every integer.
const QUICK_BELOW: f64 = 1e11;

/// Appends the list. A number that is not known or not finite is `null`.
pub(crate) fn write(values: &[Option<Scalar>], text: &mut String) {
    text.push('[');
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        match *value {
            Some(Scalar::U64(n)) => push_integer(n, text),
            Some(Scalar::I64(n)) => {
                if n < 0 {
                    text.push('-');
                }
                push_integer(n.unsigned_abs(), text);
            }
            Some(Scalar::F64(n)) if n.is_finite() => push_double(n, text),
            Some(Scalar::F64(_)) | None => text.push_str("null"),
        }
    }
    text.push(']');
}

fn push_integer(mut n: u64, text: &mut String) {
    // 2^64 has 20 digits.
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    text.push_str(std::str::from_utf8(&digits[at..]).expect("digits are ASCII"));
}

/// Appends the shortest text that reads as `n`.
fn push_double(n: f64, text: &mut String) {
    let scaled = (n * PLACES).round();
    // The quotient is the double nearest to a number of four decimal places, so its text reads as `n`.
    if !(0.0..QUICK_BELOW).contains(&n) || scaled / PLACES != n {
        // JSON has no other name for a large number than its digits, which `{}` writes.
        write!(text, "{n}").expect("a String takes all");
        return;
    }
    let (whole, fraction) = (scaled as u64 / 10_000, scaled as u64 % 10_000);
    push_integer(whole, text);
    if fraction == 0 {
        return;
    }
    text.push('.');
    let (mut left, mut unit) = (fraction, 1000);
    while left > 0 {
        text.push(char::from(b'0' + (left / unit) as u8));
        left %= unit;
        unit /= 10;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(values: &[Option<Scalar>]) -> String {
        let mut text = String::new();
        write(values, &mut text);
        text
    }

    #[test]
    fn lists_are_json() {
        let of = |n: f64| text(&[Some(n.into())]);
        assert_eq!(text(&[]), "[]");
        assert_eq!(text(&[Some(7u64.into()), None, Some((-3i64).into())]), "[7,null,-3]");
        for (n, expected) in [
            (0.0, "[0]"),
            (0.5, "[0.5]"),
            (0.0001, "[0.0001]"),
            (12.0304, "[12.0304]"),
            (3_153_600.07, "[3153600.07]"),
            (f64::NAN, "[null]"),
            (f64::INFINITY, "[null]"),
            (-0.25, "[-0.25]"),
            (1.0 / 3.0, "[0.3333333333333333]"),
        ] {
            assert_eq!(of(n), expected);
        }
    }

    proptest! {
        #[test]
        fn a_double_reads_as_what_was_written(bits: u64, n in 0u64..1 << 50) {
            for n in [f64::from_bits(bits), n as f64 / 100.0, (n % 10_000) as f64 / 1e4] {
                let text = text(&[Some(n.into())]);
                let read = text[1..text.len() - 1].parse::<f64>().ok();
                prop_assert_eq!(read, n.is_finite().then_some(n), "{}", text);
            }
        }

        #[test]
        fn an_integer_reads_as_what_was_written(u: u64, i: i64) {
            let text = text(&[Some(u.into()), Some(i.into())]);
            prop_assert_eq!(text, format!("[{u},{i}]"));
        }
    }
}
