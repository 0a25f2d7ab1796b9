//! Reads and writes fields in the byte order of networks.

use crate::Error;

/// Reads fields from the begin of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which hold the structure `what`.
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    /// Returns the bytes that are not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the next `count` bytes.
    ///
    /// # Errors
    /// Fewer bytes are left.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let short = Error::Short { what: self.what, needed: count, left: self.rest.len() };
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let short = Error::Short { what: self.what, needed: N, left: self.rest.len() };
        let (taken, rest) = self.rest.split_first_chunk().ok_or(short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Returns the next byte.
    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    /// Returns the next two bytes as a number.
    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    /// Returns the next four bytes as a number.
    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    /// Returns the next eight bytes as a number.
    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_order_and_a_short_packet_is_an_error() {
        let mut reader = Reader::new("a test", &[1, 0, 2, 0, 0, 0, 3, 9]);
        assert_eq!(reader.u8().expect("there"), 1);
        assert_eq!(reader.u16().expect("there"), 2);
        assert_eq!(reader.u32().expect("there"), 3);
        let why = reader.u64().expect_err("one byte is left").to_string();
        assert_eq!(why, "a test needs 8 bytes, and 1 are left");
        assert_eq!(reader.rest(), [9]);
        assert_eq!(reader.take(1).expect("there"), [9]);
        assert!(reader.take(1).is_err());
    }
}
