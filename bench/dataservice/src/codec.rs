//! Serialisation of inputs and outputs: little-endian numbers, and bytes after their length.
//!
//! ```
//! use skopos_dataservice::codec::{Reader, Writer};
//!
//! let mut writer = Writer::default();
//! writer.u32(7).bytes(b"event-1");
//! let bytes = writer.into_bytes();
//! let mut reader = Reader::new(&bytes);
//! assert_eq!(reader.u32()?, 7);
//! assert_eq!(reader.bytes()?, b"event-1");
//! reader.end()?;
//! # Ok::<(), skopos_dataservice::Error>(())
//! ```

use crate::error::{Error, Result};

/// Appends values to a message.
#[derive(Default, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Appends a number of 32 bits.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a number of 64 bits.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends the length of `value` and `value`. A value beyond 4 GiB is cut, which the reader notices.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(value);
        self
    }

    /// Returns the message.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads values of a message in the order in which they were appended.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads a number of 32 bits.
    ///
    /// # Errors
    /// The message ends before.
    pub fn u32(&mut self) -> Result<u32> {
        let (value, rest) = self.rest.split_first_chunk::<4>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*value))
    }

    /// Reads a number of 64 bits.
    ///
    /// # Errors
    /// The message ends before.
    pub fn u64(&mut self) -> Result<u64> {
        let (value, rest) = self.rest.split_first_chunk::<8>().ok_or(SHORT)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*value))
    }

    /// Reads bytes after their length; nothing is allocated.
    ///
    /// # Errors
    /// The message ends before.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.u32()?).map_err(|_| SHORT)?;
        let (value, rest) = self.rest.split_at_checked(length).ok_or(SHORT)?;
        self.rest = rest;
        Ok(value)
    }

    /// Whether all values are read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that all values are read.
    ///
    /// # Errors
    /// Bytes are left over.
    pub fn end(&self) -> Result<()> {
        if self.is_at_end() { Ok(()) } else { Err(Error::Message("it is longer than its values")) }
    }
}

const SHORT: Error = Error::Message("it ends in the middle of a value");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_message_is_refused() {
        assert!(Reader::new(&[255, 255, 255, 255, 1]).bytes().is_err());
        assert!(Reader::new(&[1, 2]).u32().is_err());
        assert!(Reader::new(&[0; 7]).u64().is_err());
        let mut reader = Reader::new(&[0, 0, 0, 0, 9]);
        assert_eq!(reader.bytes().expect("empty"), b"");
        assert!(reader.end().is_err());
    }
}
