//! Numbers in packets: variable lengths, and decimal numbers of three digits.
//!
//! A *varint* has 7 bits in each byte, the lowest first; the highest bit says that another byte follows (LEB128).
//! A *decimal* is an exponent (one signed byte) and a mantissa (a varint, zigzag: 0, -1, 1, -2, ...), and means
//! mantissa * 10^exponent. A mantissa has at most three digits, so the error is at most half a percent: a report says what
//! is unusual, and the exact series stays on the node. The exponent 127 means infinity with the sign of the mantissa, which
//! is 1 or -1. Each number has one form: the mantissa does not end with a zero unless the exponent is 126, and zero is 0, 0.

use crate::Error;
use crate::bytes::Reader;

/// The exponent that means infinity.
const INFINITE: i8 = 127;

/// The range of exponents. Larger numbers are infinite, smaller ones zero.
const EXPONENTS: std::ops::RangeInclusive<i32> = -126..=126;

/// The greatest mantissa.
const MAX_MANTISSA: i64 = 999;

/// The most bytes of a varint of 64 bits.
const MAX_VARINT_BYTES: u32 = 10;

/// Appends a varint.
pub(super) fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Reads a varint.
pub(super) fn varint(reader: &mut Reader<'_>) -> Result<u64, Error> {
    let mut value = 0_u64;
    for at in 0..MAX_VARINT_BYTES {
        let byte = reader.u8()?;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * at);
        if shifted >> (7 * at) != bits {
            break;
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::malformed("a variable-length number", "it has more than 64 bits"))
}

/// Appends a decimal. A NaN is written as zero; detectors have none.
pub(super) fn put_decimal(into: &mut Vec<u8>, value: f64) {
    let (mantissa, exponent) = decimal_of(value);
    into.push(exponent as u8);
    put_varint(into, (mantissa << 1 ^ mantissa >> 63) as u64);
}

/// Reads a decimal.
pub(super) fn decimal(reader: &mut Reader<'_>) -> Result<f64, Error> {
    let exponent = reader.u8()? as i8;
    let zigzag = varint(reader)?;
    let mantissa = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
    if mantissa.abs() > MAX_MANTISSA {
        return Err(Error::malformed(
            "a decimal",
            format!("its mantissa {mantissa} has over three digits"),
        ));
    }
    let wide = i32::from(exponent);
    match (exponent, mantissa) {
        (0, 0) => Ok(0.0),
        (INFINITE, 1) => Ok(f64::INFINITY),
        (INFINITE, -1) => Ok(f64::NEG_INFINITY),
        // Each number has one form, so that a packet that is read and written again is the same.
        _ if EXPONENTS.contains(&wide) && (mantissa % 10 != 0 || is_last(wide, mantissa)) => {
            Ok(scaled(mantissa as f64, wide))
        }
        _ => {
            let why = format!("{mantissa} and exponent {exponent} are not the shortest form");
            Err(Error::malformed("a decimal", why))
        }
    }
}

/// Returns true for a mantissa that ends with a zero because the exponent cannot be greater.
fn is_last(exponent: i32, mantissa: i64) -> bool {
    exponent == *EXPONENTS.end() && mantissa != 0
}

/// Returns the mantissa and the exponent nearest to `value`, without zeros at the end of the mantissa.
fn decimal_of(value: f64) -> (i64, i8) {
    let size = value.abs();
    if value.is_nan() || size == 0.0 {
        return (0, 0);
    }
    let sign = if value < 0.0 { -1 } else { 1 };
    let mut exponent = size.log10().floor() as i32 - 2;
    let mut mantissa = scaled(size, -exponent).round() as i64;
    while mantissa > MAX_MANTISSA {
        mantissa = (mantissa + 5) / 10;
        exponent += 1;
    }
    while mantissa > 0 && mantissa % 10 == 0 && exponent != *EXPONENTS.end() {
        mantissa /= 10;
        exponent += 1;
    }
    if !size.is_finite() || exponent > *EXPONENTS.end() {
        (sign, INFINITE)
    } else if mantissa == 0 || exponent < *EXPONENTS.start() {
        (0, 0)
    } else {
        (sign * mantissa, exponent as i8)
    }
}

/// Returns `number * 10^exponent`. A division by a whole power of ten is exact where a product with a fraction is not.
fn scaled(number: f64, exponent: i32) -> f64 {
    if exponent < 0 { number / 10_f64.powi(-exponent) } else { number * 10_f64.powi(exponent) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: f64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_decimal(&mut bytes, value);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<f64, Error> {
        decimal(&mut Reader::new("a decimal", bytes))
    }

    #[test]
    fn decimals_are_these_bytes() {
        for (value, bytes, back) in [
            (0.0, &[0, 0][..], 0.0),
            (5.0, &[0, 10], 5.0),
            (-5.0, &[0, 9], -5.0),
            (1000.0, &[3, 2], 1000.0),
            (0.25, &[0xfe, 50], 0.25),
            (123_456.0, &[3, 0xf6, 1], 123_000.0),
            (999.6, &[3, 2], 1000.0),
            (f64::INFINITY, &[127, 2], f64::INFINITY),
            (f64::NEG_INFINITY, &[127, 1], f64::NEG_INFINITY),
            (1e150, &[127, 2], f64::INFINITY),
            (1e-200, &[0, 0], 0.0),
            (f64::NAN, &[0, 0], 0.0),
        ] {
            assert_eq!(written(value), bytes, "{value}");
            assert_eq!(read(bytes).expect("whole"), back, "{value}");
        }
        // 10, 0 * 10, twice infinity, and an exponent of -127 have another form or none.
        for odd in [[0, 20], [1, 0], [127, 4], [0x81, 2]] {
            let why = read(&odd).expect_err("odd").to_string();
            assert!(why.ends_with("are not the shortest form"), "{why}");
        }
        let greatest = read(&written(1e128)).expect("the greatest power");
        assert!((greatest / 1e128 - 1.0).abs() < 1e-12, "{greatest}");
        assert!(read(&[0]).is_err() && read(&[]).is_err());
        let why = read(&[0, 0xd0, 0x0f]).expect_err("1000").to_string();
        assert_eq!(why, "a decimal: its mantissa 1000 has over three digits");
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_an_error() {
        let read = |bytes: &[u8]| varint(&mut Reader::new("a test", bytes));
        let mut most = vec![0xff; 9];
        most.push(1);
        assert_eq!(read(&most).expect("64 bits"), u64::MAX);
        most[9] = 2;
        assert!(read(&most).is_err());
        assert!(read(&[0x80; 11]).is_err());
        assert!(read(&[0x80; 3]).is_err(), "it ends within the number");
    }

    proptest! {
        #[test]
        fn a_decimal_is_within_half_a_percent_and_survives_being_sent_on(value in -1e120_f64..1e120, small in -1.0..1.0) {
            for value in [value, small] {
                let once = read(&written(value)).expect("whole");
                prop_assert!((once - value).abs() <= 0.005_1 * value.abs(), "{} {}", value, once);
                prop_assert_eq!(written(once), written(value));
            }
        }

        #[test]
        fn every_decimal_that_is_read_is_written_as_it_was(exponent: u8, mantissa in 0_u8..0x80, more in 0_u8..16) {
            let bytes = if more > 0 { vec![exponent, mantissa | 0x80, more] } else { vec![exponent, mantissa] };
            if let Ok(value) = read(&bytes) {
                prop_assert_eq!(written(value), bytes);
            }
        }

        #[test]
        fn varints_come_back(value: u64) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(varint(&mut Reader::new("a test", &bytes)).expect("whole"), value);
        }
    }
}
