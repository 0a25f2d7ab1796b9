//! Patterns that choose rows.

use super::run::Row;

/// Chooses rows by case and metric: `CASE / METRIC`, or `CASE` for all of its metrics. A `*` stands for
/// any text.
pub(super) struct Selector {
    case: String,
    metric: String,
}

impl Selector {
    /// Reads one selector, or several with ` | ` between them.
    pub(super) fn list(text: &str) -> Vec<Self> {
        list(text)
            .map(|one| {
                let (case, metric) = one.split_once(" / ").unwrap_or((one, "*"));
                Self { case: case.trim().to_owned(), metric: metric.trim().to_owned() }
            })
            .collect()
    }

    pub(super) fn matches(&self, row: &Row) -> bool {
        matches(&self.case, &row.case) && matches(&self.metric, &row.metric)
    }
}

/// The parts of an option that takes several, with ` | ` between them.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split('|').map(str::trim).filter(|part| !part.is_empty())
}

/// Whether `text` is `pattern`, in which a `*` stands for any text.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("p50", "p50", true),
            ("p50", "p50 of x", false),
            ("p5*", "p50 of x", true),
            ("*x", "p50 of x", true),
            ("p*of*", "p50 of x", true),
            ("*", "", true),
            ("p*0", "p", false),
            ("*level 2", "error, level 2 by ptrace", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
