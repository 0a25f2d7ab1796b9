//! Text of JSON, without intermediate strings.

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends a string with its quotes.
pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            byte => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Appends a number.
pub(super) fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends 16 hexadecimal digits.
pub(super) fn hex(out: &mut Vec<u8>, value: u64) {
    let digit = |at: u32| HEX[(value >> (60 - 4 * at)) as usize & 15];
    let digits: [u8; 16] = std::array::from_fn(|at| digit(at as u32));
    out.extend_from_slice(&digits);
}

/// Appends nanoseconds as microseconds with three digits after the point.
pub(super) fn microseconds(out: &mut Vec<u8>, ns: u64) {
    number(out, ns / 1000);
    let rest = ns % 1000;
    let digit = |of: u64| b'0' + (rest / of % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_and_number_is_read_back_by_another_parser(text in ".*", value: u64) {
            let mut out = Vec::new();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
            out.clear();
            number(&mut out, value);
            prop_assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
            let mut out = Vec::new();
            hex(&mut out, value);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{value:016x}"));
        }
    }

    #[test]
    fn microseconds_keep_nanoseconds() {
        let mut out = Vec::new();
        microseconds(&mut out, 1_234_056);
        assert_eq!(out, b"1234.056");
    }
}
