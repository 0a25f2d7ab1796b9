//! Numbers as bytes: LEB128 as in DWARF, and a reader that never reads beyond its end.

use crate::Error;

/// Appends a number, seven bits a byte.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number, small ones of either sign short.
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_varint(out, (number.wrapping_shl(1) ^ (number >> 63)).cast_unsigned());
}

/// Appends a text with its length.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Error::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Error> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has one bit left.
            if shift == 63 && bits > 1 {
                return Err(Error::Number);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::Number)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Error> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// A number of things that follow, each at least `least` bytes long: so a short message cannot
    /// make anybody reserve much.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Error> {
        let count = usize::try_from(self.varint()?).map_err(|_| Error::Number)?;
        if count.checked_mul(least).is_none_or(|bytes| bytes > self.0.len()) {
            return Err(Error::Short);
        }
        Ok(count)
    }

    pub(crate) fn index(&mut self) -> Result<u32, Error> {
        u32::try_from(self.varint()?).map_err(|_| Error::Number)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.count(1)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| Error::Text)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }
}
