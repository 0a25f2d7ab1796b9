//! The name of a segment.

/// The name of a segment. The id of a job is not in it: ids never become paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::jobs) struct SegmentName {
    /// The number of the segment in its folder. Later segments have higher numbers.
    pub(in crate::jobs) number: u64,
    /// The first and the last time of its records, in nanoseconds of UNIX time; zero for a time before 1970.
    pub(in crate::jobs) from: i64,
    pub(in crate::jobs) to: i64,
    /// Length of its tail in bytes.
    pub(in crate::jobs) tail: u64,
    /// Checksum of its tail, and of the rest of the name.
    pub(in crate::jobs) sum: u32,
}

impl SegmentName {
    pub(in crate::jobs) fn parse(name: &str) -> Option<Self> {
        let mut words = name.strip_prefix("segment-")?.strip_suffix(".parquet")?.split('-');
        let number = words.next()?.parse().ok()?;
        let (from, to) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let tail = u64::from_str_radix(words.next()?, 16).ok()?;
        let sum = u32::from_str_radix(words.next()?, 16).ok()?;
        words.next().is_none().then_some(Self { number, from, to, tail, sum })
    }

    pub(in crate::jobs) fn file_name(&self) -> String {
        let Self { number, from, to, tail, sum } = self;
        format!("segment-{number:08}-{from}-{to}-{tail:x}-{sum:08x}.parquet")
    }

    /// Returns the name of the unfinished file of a segment.
    pub(in crate::jobs) fn temporary(number: u64) -> String {
        format!("segment-{number:08}.tmp")
    }

    /// Returns true if a file of this name is an unfinished segment.
    pub(in crate::jobs) fn is_temporary(name: &str) -> bool {
        name.starts_with("segment-") && name.ends_with(".tmp")
    }

    /// Returns the bytes of the name that its checksum covers.
    pub(super) fn covered(&self) -> Vec<u8> {
        let times = [self.from.to_le_bytes(), self.to.to_le_bytes()].concat();
        [&self.number.to_le_bytes(), &times[..], &self.tail.to_le_bytes()].concat()
    }
}
