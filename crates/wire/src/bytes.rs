//! The numbers and texts of a message: LEB128 as in DWARF, signed numbers in zigzag order.

use skopos_model::ByteReader;

use crate::error::Error;

/// Appends a number, seven bits a byte.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number; numbers near zero are short, whatever their sign.
#[inline]
pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_varint(out, (number.wrapping_shl(1) ^ (number >> 63)).cast_unsigned());
}

/// Appends a text after its length.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Reads a message field by field, and says what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageReader<'a>(ByteReader<'a>);

impl<'a> MessageReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(ByteReader::new(bytes))
    }

    /// Checks the first bytes, of which the last is the layout.
    pub(crate) fn magic(&mut self, magic: [u8; 4]) -> Result<(), Error> {
        match *self.take(magic.len()).map_err(|_| Error::Foreign)? {
            [a, b, c, found] if [a, b, c] == magic[..3] => match found == magic[3] {
                true => Ok(()),
                false => Err(Error::Layout { found, known: magic[3] }),
            },
            _ => Err(Error::Foreign),
        }
    }

    /// Checks that nothing follows.
    pub(crate) fn end(&self) -> Result<(), Error> {
        match self.0.remaining() {
            0 => Ok(()),
            more => Err(Error::Long(more)),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        self.0.take(count).ok_or(Error::Short)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Error> {
        self.0.u8().ok_or(Error::Short)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.0.u64().ok_or(Error::Short)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Error> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
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

    #[inline]
    pub(crate) fn signed(&mut self) -> Result<i64, Error> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// Reads the number of items that follow. Each takes at least `least` bytes, so a short message
    /// cannot make its reader reserve much memory.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Error> {
        let count = usize::try_from(self.varint()?).map_err(|_| Error::Number)?;
        if count.checked_mul(least).is_none_or(|bytes| bytes > self.0.remaining()) {
            return Err(Error::Short);
        }
        Ok(count)
    }

    #[inline]
    pub(crate) fn index(&mut self) -> Result<u32, Error> {
        u32::try_from(self.varint()?).map_err(|_| Error::Number)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.count(1)?;
        std::str::from_utf8(self.take(length)?).map_err(|_| Error::Text)
    }
}
