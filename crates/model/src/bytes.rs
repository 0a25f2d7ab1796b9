//! The reader of binary formats: logs on disk, messages from the network.

/// Reads numbers and texts from the front of a byte slice, and never beyond its end.
///
/// Numbers are little-endian. A read that needs more bytes than are left returns `None` and takes
/// nothing.
///
/// ```
/// use skopos_model::ByteReader;
///
/// let mut reader = ByteReader::new(&[7, 1, 0, 0, 0, 9]);
/// assert_eq!((reader.u8(), reader.u32()), (Some(7), Some(1)));
/// assert_eq!((reader.u64(), reader.remaining()), (None, 1));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    /// Starts at the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes that are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no byte is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes the next `count` bytes as a text; `None` also if they are not UTF-8.
    pub fn text(&mut self, count: usize) -> Option<&'a str> {
        std::str::from_utf8(self.take(count)?).ok()
    }

    /// Takes the next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Takes the next 4 bytes as an unsigned number.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes the next 8 bytes as an unsigned number.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes the next 8 bytes as a signed number.
    #[inline]
    pub fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}
