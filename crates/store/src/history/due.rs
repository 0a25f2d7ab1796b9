//! Chooses the parts that are merged next.
//!
//! A part is small if it has less than half of the bytes that a merged part may have. Small parts of consecutive
//! generations are merged once they are many enough, or large enough, or the part after them does not fit to them. The
//! largest of them has at most half of the bytes of all, so a sample is written again at most once for each time that its
//! part doubles.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::limits::{Limits, MAX_STEP};
use super::listing::Listing;
use super::seal::PartName;

/// Bytes of a merged part, at most. It bounds what one run of the chores reads and writes for it, to some seconds of one core.
const MAX_BYTES: u64 = 32 << 20;

/// The most parts that are merged at once. Each takes about a megabyte of memory meanwhile.
const MAX_PARTS: usize = 8;

/// The most bytes of their metadata, which are in memory meanwhile, too.
const MAX_TAILS: u64 = 4 << 20;

/// The share of each limit of a folder that a merged part may have: one of so many. Retention removes whole parts.
const SHARES: u32 = 16;

/// Bounds of the parts that are merged at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) parts: usize,
    pub(super) bytes: u64,
    /// Time between their first and their last sample. In the age of a part its own time counts for a step of the clock
    /// at most, so no merged part spans more than that.
    pub(super) span: Duration,
}

impl Bounds {
    pub(super) fn of(limits: &Limits) -> Self {
        let bytes = MAX_BYTES.min(limits.max_bytes / u64::from(SHARES));
        Self { parts: MAX_PARTS, bytes, span: MAX_STEP.min(limits.max_age / SHARES) }
    }
}

/// Returns the parts that are merged next, with their lengths: the oldest ones of those from generation `from` on. Returns
/// nothing if no parts are due.
pub(super) fn next(listing: &Listing, bounds: &Bounds, from: u64) -> Vec<(PartName, u64)> {
    let held = listing.held();
    let parts: Vec<&(PartName, u64)> = listing.parts.range(from..).map(|(_, part)| part).collect();
    for at in 0..parts.len() {
        let count = due(&parts[at..], bounds, &held);
        if count > 0 {
            return parts[at..at + count].iter().map(|part| (*part).clone()).collect();
        }
    }
    Vec::new()
}

/// Returns the number of parts, from the first one on, that are due to be merged; zero if they are not due.
fn due(parts: &[&(PartName, u64)], bounds: &Bounds, held: &[RangeInclusive<u64>]) -> usize {
    let mut sums = Sums::default();
    for (part, bytes) in parts {
        let with = sums.with(part, *bytes);
        if !sums.is_followed_by(part, held) || !with.fit(bounds) {
            break;
        }
        sums = with;
    }
    // Behind the last part there may be others soon, so few small ones wait for them.
    let is_complete = sums.parts < parts.len() || sums.parts >= bounds.parts;
    let is_due = is_complete || sums.bytes >= bounds.bytes / 2;
    let is_worth_it = sums.parts > 1 && sums.largest <= sums.bytes / 2;
    if is_due && is_worth_it { sums.parts } else { 0 }
}

/// Sums of parts that may be merged.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    parts: usize,
    bytes: u64,
    /// Bytes of the largest part.
    largest: u64,
    tails: u64,
    /// The times of the first and the last sample, if there are samples.
    times: Option<(i64, i64)>,
    /// The last generation.
    last: Option<u64>,
}

impl Sums {
    fn with(&self, part: &PartName, bytes: u64) -> Self {
        // A part without samples has no times: its range is empty.
        let own = (part.from <= part.to).then_some((part.from, part.to));
        let times = match (self.times, own) {
            (Some((from, to)), Some(own)) => Some((from.min(own.0), to.max(own.1))),
            (times, own) => times.or(own),
        };
        Self {
            parts: self.parts + 1,
            bytes: self.bytes.saturating_add(bytes),
            largest: self.largest.max(bytes),
            tails: self.tails.saturating_add(part.tail),
            times,
            last: Some(part.last),
        }
    }

    /// Returns true if no generation is between these parts and `part`, and nothing needs the part as it is.
    fn is_followed_by(&self, part: &PartName, held: &[RangeInclusive<u64>]) -> bool {
        let is_next = self.last.is_none_or(|last| last.checked_add(1) == Some(part.first));
        let is_held =
            |held: &RangeInclusive<u64>| *held.start() <= part.last && part.first <= *held.end();
        is_next && !held.iter().any(is_held)
    }

    fn fit(&self, bounds: &Bounds) -> bool {
        let span = self.times.map_or(0, |(from, to)| to.abs_diff(from));
        self.parts <= bounds.parts
            && self.bytes <= bounds.bytes
            && self.largest < bounds.bytes / 2
            && self.tails <= MAX_TAILS
            && Duration::from_nanos(span) <= bounds.span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Listed;

    const HOUR: i64 = 3_600_000_000_000;
    const MIB: u64 = 1 << 20;

    /// A part of one generation, an hour long.
    fn part(generation: u64, bytes: u64) -> (PartName, u64) {
        let from = generation.cast_signed() * HOUR;
        let to = from + HOUR - 1;
        (PartName { first: generation, last: generation, from, to, tail: 1000, sum: 0 }, bytes)
    }

    fn listing(parts: Vec<(PartName, u64)>) -> Listing {
        let parts = parts.into_iter().map(|(part, bytes)| (part.first, (part, bytes))).collect();
        Listing { parts, ..Listing::default() }
    }

    /// Returns the first and the last generation of the parts that are due.
    fn due_of(listing: &Listing, from: u64) -> Option<(u64, u64)> {
        let due = next(listing, &Bounds::of(&Limits::default()), from);
        Some((due.first()?.0.first, due.last()?.0.last))
    }

    #[track_caller]
    fn check(mebibytes: &[u64], expected: Option<(u64, u64)>) {
        let parts = (1..).zip(mebibytes).map(|(generation, bytes)| part(generation, bytes * MIB));
        assert_eq!(due_of(&listing(parts.collect()), 0), expected, "{mebibytes:?}");
    }

    #[test]
    fn parts_are_due_once_they_are_many_or_large_or_cannot_become_more() {
        check(&[], None);
        check(&[1; 7], None);
        check(&[1; 8], Some((1, 8)));
        check(&[3; 5], None);
        check(&[3; 6], Some((1, 6)));
        // A part with half of the bytes is not merged again.
        check(&[16; 4], None);
        check(&[15; 4], Some((1, 2)));
        check(&[2, 2, 2, 20], Some((1, 3)));
        check(&[20, 2, 2, 2], None);
        // The largest part would be written again for few bytes.
        check(&[9, 1, 1, 1, 1, 1, 1, 1], None);
        check(&[9, 1, 1, 1, 1, 1, 1, 1, 1], Some((2, 9)));
    }

    #[test]
    fn the_parts_of_a_day_are_merged_and_no_longer_ones() {
        let mut parts: Vec<_> = (1..=5).map(|generation| part(generation, MIB)).collect();
        parts[4].0.to += 24 * HOUR;
        assert_eq!(due_of(&listing(parts.clone()), 0), Some((1, 4)), "the clock was set ahead");
        parts[4].0.to -= 24 * HOUR;
        assert_eq!(due_of(&listing(parts.clone()), 0), None);
        for part in &mut parts {
            part.0.tail = MAX_TAILS / 4;
        }
        assert_eq!(due_of(&listing(parts), 0), Some((1, 4)), "their metadata take much memory");
    }

    #[test]
    fn a_part_without_samples_has_no_times() {
        let mut parts: Vec<_> = (1..=8).map(|generation| part(generation, MIB)).collect();
        (parts[3].0.from, parts[3].0.to) = (i64::MAX, 0);
        assert_eq!(due_of(&listing(parts), 0), Some((1, 8)));
    }

    #[test]
    fn parts_beside_a_gap_or_a_damaged_file_are_not_merged_with_it() {
        let all = || (1..=12).map(|generation| part(generation, MIB));
        let without = all().filter(|(part, _)| part.first != 5).collect();
        assert_eq!(due_of(&listing(without), 0), Some((1, 4)));
        let mut with_log = listing(all().collect());
        with_log.logs.insert(4, 100);
        assert_eq!(due_of(&with_log, 0), Some((1, 3)));
        assert_eq!(due_of(&with_log, 3), Some((5, 12)));
        let mut with_damage = listing(all().collect());
        with_damage.quarantined.push(Listed { name: "log-00000003".to_owned(), bytes: 1 });
        assert_eq!(due_of(&with_damage, 0), Some((1, 2)));
        assert_eq!(due_of(&with_damage, 2), Some((4, 11)));
    }

    /// Seals parts of some bytes, and merges what is due after each. Returns the number of parts, and how often each byte
    /// was written again.
    fn keep(count: u64, every: i64, bytes: u64) -> (usize, f64) {
        let mut listing = Listing::default();
        let bounds = Bounds::of(&Limits::default());
        let mut written = 0;
        for generation in 1..=count {
            let from = generation.cast_signed() * every;
            let to = from + every - 1;
            let name =
                PartName { first: generation, last: generation, from, to, tail: 5000, sum: 0 };
            listing.parts.insert(generation, (name, bytes));
            loop {
                let due = next(&listing, &bounds, 0);
                let Some((first, _)) = due.first().cloned() else { break };
                let bytes = due.iter().map(|(_, bytes)| bytes).sum();
                written += bytes;
                for (part, _) in &due {
                    listing.parts.remove(&part.first);
                }
                let last = &due[due.len() - 1].0;
                let merged = PartName { last: last.last, to: last.to, ..first.clone() };
                listing.parts.insert(first.first, (merged, bytes));
            }
        }
        (listing.parts.len(), written as f64 / (count * bytes) as f64)
    }

    #[test]
    fn few_parts_are_left_and_each_sample_is_written_few_times() {
        let minute = 60_000_000_000;
        // A week of full logs, of hourly ones, and of tiny ones.
        for (count, every, bytes, most_parts, most_written) in [
            (7 * 86, 17 * minute, 5 * MIB / 2, 13 * 7, 1.01),
            (7 * 24, HOUR, MIB, 2 * 7, 2.0),
            (7 * 24, HOUR, MIB / 10, 2 * 7, 2.0),
            (7 * 1440, minute, MIB / 50, 3 * 7, 7.0),
        ] {
            let (parts, written) = keep(count, every, bytes);
            assert!(parts <= most_parts, "{count} parts became {parts}");
            assert!(written <= most_written, "{count} parts were written {written} times");
        }
    }
}
