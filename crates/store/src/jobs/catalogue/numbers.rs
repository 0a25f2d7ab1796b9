//! Sets of the numbers of parts, as ranges.

use std::fmt;

use super::super::part::PartRef;

/// The numbers of a job's parts: ascending ranges, each without its end.
///
/// The text is a multirange of PostgreSQL, such as `{[0,3),[7,8)}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(Vec<(u64, u64)>);

impl Numbers {
    /// Returns the numbers of parts.
    pub fn of(parts: &[PartRef]) -> Self {
        let mut numbers: Vec<u64> = parts.iter().map(|part| part.number.into()).collect();
        numbers.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, end)) if number <= *end => *end = (*end).max(number + 1),
                _ => ranges.push((number, number + 1)),
            }
        }
        Self(ranges)
    }

    /// Reads a text; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('{')?.strip_suffix('}')?;
        let ranges = text.split_inclusive(')').map(|range| {
            let range = range.trim_start_matches(',').strip_prefix('[')?.strip_suffix(')')?;
            let (from, to) = range.split_once(',')?;
            Some((from.parse().ok()?, to.parse().ok()?))
        });
        ranges.collect::<Option<Vec<_>>>().map(Self)
    }

    /// Returns true if `other` has all of these numbers, and more.
    pub fn are_fewer_than(&self, other: &Self) -> bool {
        let is_within = |&(from, to): &(u64, u64)| {
            let at = other.0.partition_point(|&(start, _)| start <= from);
            at.checked_sub(1).is_some_and(|at| other.0[at].1 >= to)
        };
        self != other && self.0.iter().all(is_within)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (at, (from, to)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}[{from},{to})")?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(numbers: &[u32]) -> Numbers {
        let part = |number: &u32| PartRef { number: *number, segment: String::new(), rows: 1 };
        Numbers::of(&numbers.iter().map(part).collect::<Vec<_>>())
    }

    #[test]
    fn a_text_has_all_numbers() {
        for (list, text) in [
            (&[][..], "{}"),
            (&[0], "{[0,1)}"),
            (&[2, 0, 1, 7, 7], "{[0,3),[7,8)}"),
            (&[u32::MAX], "{[4294967295,4294967296)}"),
        ] {
            assert_eq!(numbers(list).to_string(), text);
            assert_eq!(Numbers::parse(text), Some(numbers(list)));
        }
        for text in ["", "{", "{[1)}", "{[a,2)}", "{[1,2)", "[1,2)"] {
            assert_eq!(Numbers::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_set_is_fewer_than_one_that_has_all_of_it_and_more() {
        let check = |a: &[u32], b: &[u32], expected| {
            assert_eq!(numbers(a).are_fewer_than(&numbers(b)), expected, "{a:?} {b:?}");
        };
        check(&[], &[], false);
        check(&[], &[0], true);
        check(&[0], &[0], false);
        check(&[0], &[0, 1], true);
        check(&[0, 1], &[0], false);
        check(&[0, 2], &[0, 1, 2], true);
        check(&[0, 3], &[0, 1, 2], false);
        check(&[5], &[0, 1, 4, 5, 6], true);
        check(&[3], &[0, 1, 4, 5, 6], false);
        check(&[1, 2], &[0, 1], false);
    }
}
