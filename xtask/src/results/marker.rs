//! The markers: `<!-- results:score run="2026-11-21-vm" -->`.

use std::collections::BTreeMap;

/// The beginning of every marker.
pub(super) const START: &str = "<!-- results:";

/// The marker after a table or a value.
pub(super) const END: &str = "<!-- /results -->";

const OPTIONS: &[&str] = &[
    "run", "rows", "without", "columns", "skopos", "caption", "view", "metrics", "peers", "base",
    "also", "value", "of",
];

/// One marker, taken apart.
pub(super) struct Marker<'a> {
    pub(super) bench: &'a str,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Marker<'a> {
    /// Reads a marker from its `<!--` to its `-->`.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        let inside = text.strip_prefix(START).and_then(|rest| rest.strip_suffix("-->"));
        let inside = inside.ok_or("the marker has no `-->`")?.trim();
        let (bench, mut rest) = inside.split_once(' ').unwrap_or((inside, ""));
        let mut options = BTreeMap::new();
        while !rest.trim().is_empty() {
            let option = rest.trim_start().split_once("=\"").and_then(|(name, value)| {
                let (value, after) = value.split_once('"')?;
                Some((name, value, after))
            });
            let (name, value, after) =
                option.ok_or_else(|| format!("`{}` is not NAME=\"VALUE\"", rest.trim()))?;
            if !OPTIONS.contains(&name) {
                let all = OPTIONS.join(", ");
                return Err(format!("`{name}` is not an option; the options are {all}"));
            }
            options.insert(name, value);
            rest = after;
        }
        Ok(Self { bench, options })
    }

    pub(super) fn option(&self, name: &str) -> Option<&'a str> {
        self.options.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_has_a_benchmark_and_options() {
        let text = "<!-- results:score run=\"2026-11-21-vm\" rows=\"a, b / *\" -->";
        let marker = Marker::parse(text).expect("a marker");
        assert_eq!(marker.bench, "score");
        assert_eq!(marker.option("run"), Some("2026-11-21-vm"));
        assert_eq!(marker.option("rows"), Some("a, b / *"));
        assert_eq!(marker.option("columns"), None);
    }

    #[test]
    fn a_marker_with_a_mistake_is_refused() {
        for (text, fault) in [
            ("<!-- results:score run=x -->", "`run=x` is not NAME=\"VALUE\""),
            ("<!-- results:score", "the marker has no `-->`"),
        ] {
            assert_eq!(Marker::parse(text).err().as_deref(), Some(fault));
        }
        let unknown = Marker::parse("<!-- results:score row=\"x\" -->").err().unwrap_or_default();
        assert!(unknown.starts_with("`row` is not an option; the options are run, "), "{unknown}");
    }
}
