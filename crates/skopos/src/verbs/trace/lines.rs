//! Forms that the reports of `skopos trace` share.

use skopos_model::Timestamp;
use skopos_term::format::{self, printable};

/// Formats a time in ns: `3.2 ms`.
pub(super) fn time(ns: f64) -> String {
    format::seconds(ns / 1e9)
}

/// Formats a whole number of ns.
pub(super) fn whole(ns: u64) -> String {
    time(ns as f64)
}

/// Formats the greatest difference between the clocks of a trace in ns: 0 means that no process is related to another.
pub(super) fn clock_bound(ns: u64) -> String {
    if ns == 0 { "an unknown time".to_owned() } else { whole(ns) }
}

/// Formats a moment in ns since 1970: the time of day in UTC.
pub(super) fn moment(ns: i64) -> String {
    format::time_of_day(Timestamp::from_nanos(ns))
}

/// Joins the names of a callpath. Control characters of a name are shown as escapes.
pub(super) fn callpath(names: &[String]) -> String {
    printable(&names.join(" → "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(callpath(&["a".into(), "b\u{1b}[2J".into()]), "a → b\\u{1b}[2J");
    }

    #[test]
    fn clocks_without_a_relation_agree_within_an_unknown_time() {
        assert_eq!((clock_bound(0), clock_bound(40)), ("an unknown time".into(), whole(40)));
    }
}
