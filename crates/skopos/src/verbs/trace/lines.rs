//! Forms that the reports of `skopos trace` share.

use skopos_model::Timestamp;
use skopos_term::format;

/// Formats a time in ns: `3.2 ms`.
pub(super) fn time(ns: f64) -> String {
    format::seconds(ns / 1e9)
}

/// Formats a whole number of ns.
pub(super) fn whole(ns: u64) -> String {
    time(ns as f64)
}

/// Formats a moment in ns since 1970: the time of day in UTC.
pub(super) fn moment(ns: i64) -> String {
    format::time_of_day(Timestamp::from_nanos(ns))
}

/// Joins the names of a callpath. Control characters of a name are shown as escapes.
pub(super) fn callpath(names: &[String]) -> String {
    printable(&names.join(" → "))
}

/// Replaces control characters, which a process chose and a terminal would obey.
pub(super) fn printable(text: &str) -> String {
    match text.chars().any(char::is_control) {
        true => text
            .chars()
            .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
            .collect(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(callpath(&["a".into(), "b\u{1b}[2J".into()]), "a → b\\u{1b}[2J");
    }
}
