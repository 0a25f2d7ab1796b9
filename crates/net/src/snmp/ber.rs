//! Reads and writes elements in the Basic Encoding Rules, as far as SNMP has them (RFC 3417, section 8).

use super::oid::{MAX_OID_PARTS, Oid};
use crate::Error;
use crate::bytes::Reader;

/// Tags of elements.
pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const NULL: u8 = 0x05;
pub(super) const OID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;

/// The bits of a tag that are all set if its number follows in further bytes. SNMP has no such tag.
const LONG_TAG: u8 = 0x1f;

/// The most bytes of a length: no message is longer than four bytes can say.
const MAX_LENGTH_BYTES: u8 = 4;

/// Returns the tag and the content of the next element.
///
/// # Errors
/// The element is longer than the rest, or its tag or length has a form that SNMP does not use.
pub(super) fn element<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8]), Error> {
    let tag = reader.u8()?;
    if tag & LONG_TAG == LONG_TAG {
        return Err(malformed(format!("the tag {tag:#04x} is not one of SNMP")));
    }
    let length = match reader.u8()? {
        short @ 0..=0x7f => usize::from(short),
        first => {
            let count = first & 0x7f;
            if !(1..=MAX_LENGTH_BYTES).contains(&count) {
                return Err(malformed(format!("a length has {count} bytes; it may have 1 to 4")));
            }
            let bytes = reader.take(usize::from(count))?;
            bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
    };
    Ok((tag, reader.take(length)?))
}

/// Returns the content of the next element, which must have this tag.
///
/// # Errors
/// It has another tag, or is not an element.
pub(super) fn expect<'a>(reader: &mut Reader<'a>, tag: u8) -> Result<&'a [u8], Error> {
    let (found, content) = element(reader)?;
    if found != tag {
        return Err(malformed(format!("an element has tag {found:#04x} instead of {tag:#04x}")));
    }
    Ok(content)
}

/// Returns the next element, which must be an integer of 32 bits.
///
/// # Errors
/// It is not one.
pub(super) fn expect_i32(reader: &mut Reader<'_>) -> Result<i32, Error> {
    let number = signed(expect(reader, INTEGER)?)?;
    i32::try_from(number).map_err(|_| malformed(format!("{number} has more than 32 bits")))
}

/// Returns the number with this content in two's complement.
///
/// # Errors
/// It has no byte, or more than 8.
pub(super) fn signed(content: &[u8]) -> Result<i64, Error> {
    let first = *content.first().ok_or_else(|| malformed("an integer has no bytes"))?;
    if content.len() > 8 {
        return Err(malformed(format!("an integer has {} bytes", content.len())));
    }
    let sign: i64 = if first & 0x80 == 0 { 0 } else { -1 };
    Ok(content.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
}

/// Returns the number with this content, of at most `bits` bits. Agents that leave out the leading zero are understood.
///
/// # Errors
/// It has no byte, or does not fit.
pub(super) fn unsigned(content: &[u8], bits: u32) -> Result<u64, Error> {
    if content.is_empty() {
        return Err(malformed("an integer has no bytes"));
    }
    let most = bits as usize / 8;
    let digits = content.iter().position(|byte| *byte != 0).map_or(&[][..], |at| &content[at..]);
    if digits.len() > most || content.len() > most + 1 {
        return Err(malformed(format!("a number has more than {bits} bits")));
    }
    Ok(digits.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Returns the object identifier with this content.
///
/// # Errors
/// A part does not fit or is not finished, or there are too many parts.
pub(super) fn oid(content: &[u8]) -> Result<Oid, Error> {
    let mut parts = Vec::new();
    let mut part: u32 = 0;
    let mut is_open = true;
    for byte in content {
        let shifted = part.checked_mul(128).ok_or_else(|| malformed("a part is too large"))?;
        part = shifted | u32::from(byte & 0x7f);
        is_open = byte & 0x80 != 0;
        if is_open {
            continue;
        }
        if parts.is_empty() {
            let first = (part / 40).min(2);
            parts.extend([first, part - first * 40]);
        } else {
            parts.push(part);
        }
        part = 0;
        if parts.len() > MAX_OID_PARTS {
            return Err(malformed("an object identifier has too many parts"));
        }
    }
    if is_open {
        return Err(malformed("an object identifier is not finished"));
    }
    Oid::new(&parts).ok_or_else(|| malformed("an object identifier has too many parts"))
}

/// Appends an element.
pub(super) fn put(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let begin = length.leading_zeros() as usize / 8;
        out.push(0x80 | (bytes.len() - begin) as u8);
        out.extend(&bytes[begin..]);
    }
    out.extend(content);
}

/// Appends an element whose content `fill` writes.
pub(super) fn put_with(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    fill(&mut content);
    put(out, tag, &content);
}

/// Appends an integer in its shortest form.
pub(super) fn put_i32(out: &mut Vec<u8>, number: i32) {
    let bytes = number.to_be_bytes();
    let is_filler = |pair: &[u8]| matches!(pair, [0, 0..=0x7f] | [0xff, 0x80..=0xff]);
    let begin = bytes.windows(2).take_while(|pair| is_filler(pair)).count();
    put(out, INTEGER, &bytes[begin..]);
}

/// Appends an object identifier.
pub(super) fn put_oid(out: &mut Vec<u8>, oid: &Oid) {
    put_with(out, OID, |content| {
        let (first, rest) = oid.parts().split_at(oid.parts().len().min(2));
        let first = match *first {
            [a, b] => a.saturating_mul(40).saturating_add(b),
            _ => 0,
        };
        for part in [&first].into_iter().chain(rest) {
            let groups = (32 - part.leading_zeros()).div_ceil(7).max(1);
            for group in (0..groups).rev() {
                let more = if group == 0 { 0 } else { 0x80 };
                content.push(more | (part >> (7 * group) & 0x7f) as u8);
            }
        }
    });
}

/// Returns the error of an element.
pub(super) fn malformed(why: impl Into<String>) -> Error {
    Error::malformed("an SNMP message", why)
}

/// Reads the elements of `content`.
pub(super) fn reader(content: &[u8]) -> Reader<'_> {
    Reader::new("an SNMP message", content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_take_their_shortest_form_and_come_back() {
        for (number, expected) in [
            (0, &[2, 1, 0][..]),
            (127, &[2, 1, 0x7f]),
            (128, &[2, 2, 0, 0x80]),
            (-1, &[2, 1, 0xff]),
            (-128, &[2, 1, 0x80]),
            (-129, &[2, 2, 0xff, 0x7f]),
            (i32::MAX, &[2, 4, 0x7f, 0xff, 0xff, 0xff]),
            (i32::MIN, &[2, 4, 0x80, 0, 0, 0]),
        ] {
            let mut out = Vec::new();
            put_i32(&mut out, number);
            assert_eq!(out, expected);
            assert_eq!(expect_i32(&mut reader(&out)).expect("an integer"), number);
        }
        assert_eq!(signed(&[0, 0, 0, 5]).expect("a long form"), 5);
        assert!(signed(&[]).is_err() && signed(&[0; 9]).is_err());
    }

    #[test]
    fn unsigned_numbers_fit_their_bits() {
        let check = |content: &[u8], bits, expected: Option<u64>| {
            assert_eq!(unsigned(content, bits).ok(), expected, "{content:?}");
        };
        check(&[0], 32, Some(0));
        check(&[0, 0xff, 0xff, 0xff, 0xff], 32, Some(u64::from(u32::MAX)));
        // Without the leading zero.
        check(&[0xff, 0xff, 0xff, 0xff], 32, Some(u64::from(u32::MAX)));
        check(&[1, 0, 0, 0, 0], 32, None);
        check(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 64, Some(u64::MAX));
        check(&[1, 0, 0, 0, 0, 0, 0, 0, 0], 64, None);
        check(&[], 32, None);
    }

    #[test]
    fn object_identifiers_come_back() {
        for parts in [&[1, 3, 6, 1, 2, 1, 1, 3, 0][..], &[2, 999, 3], &[1, 3, u32::MAX, 128, 127]] {
            let oid = Oid::new(parts).expect("few parts");
            let mut out = Vec::new();
            put_oid(&mut out, &oid);
            let content = expect(&mut reader(&out), OID).expect("an identifier");
            assert_eq!(super::oid(content).expect("read"), oid);
        }
        assert_eq!(oid(&[0x2b, 6, 1]).expect("read").to_string(), "1.3.6.1");
        assert!(oid(&[]).is_err(), "empty");
        assert!(oid(&[0x2b, 0x86]).is_err(), "not finished");
        assert!(oid(&[0x2b, 0xff, 0xff, 0xff, 0xff, 0x7f]).is_err(), "more than 32 bits");
        assert!(oid(&[1; 200]).is_err(), "too many parts");
    }

    #[test]
    fn lengths_are_bounded_by_the_bytes_that_are_there() {
        let check = |bytes: &[u8], expected: Option<usize>| {
            let found = element(&mut reader(bytes)).ok().map(|(_, content)| content.len());
            assert_eq!(found, expected, "{bytes:?}");
        };
        check(&[4, 2, 7, 7], Some(2));
        check(&[4, 0x81, 2, 7, 7], Some(2));
        check(&[4, 0x84, 0, 0, 0, 1, 7], Some(1));
        check(&[4, 3, 7, 7], None);
        check(&[4, 0x84, 0xff, 0xff, 0xff, 0xff, 7], None);
        check(&[4, 0x85, 0, 0, 0, 0, 1, 7], None);
        check(&[4, 0x80, 7, 0, 0], None);
        check(&[0x1f, 0x81, 1, 0], None);
        check(&[4], None);
        let mut out = Vec::new();
        put(&mut out, OCTETS, &[7; 300]);
        assert_eq!(out[..4], [4, 0x82, 1, 44]);
        assert_eq!(expect(&mut reader(&out), OCTETS).expect("read"), [7; 300]);
    }
}
