//! Checks that a page names only topics that a schema has: an example that asks for
//! `n01/load/load1` finds nothing, and its reader does not know why.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::tidy::finding::Finding;
use crate::tree::{TextFile, Tree};

/// The parts of a family that a topic is made of.
#[derive(Deserialize)]
struct Family {
    path: Option<String>,
    metric: Vec<Metric>,
}

#[derive(Deserialize)]
struct Metric {
    name: String,
}

/// Families whose topics users name: any metric may be below them.
const OF_USERS: &[&str] = &["insight"];

/// Names of metrics, by the path of their family: `self/sensor`.
type Families = BTreeMap<String, Vec<String>>;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let families = families(tree);
    // Other pages show topics that are wrong, too: as bad examples, or as they once were.
    let is_read = |path: &str| path == "README.md" || path.starts_with("docs/");
    let pages = tree.files.iter().filter(|f| f.path.ends_with(".md") && is_read(&f.path));
    pages.flat_map(|page| check_page(page, &families)).collect()
}

/// Families of the schema. One that cannot be read is another check's finding.
fn families(tree: &Tree) -> Families {
    let mut families = Families::new();
    for file in &tree.files {
        let name = file.path.strip_prefix("schema/").and_then(|name| name.strip_suffix(".toml"));
        let Some(name) = name.filter(|name| !OF_USERS.contains(name)) else { continue };
        let Ok(family) = toml::from_str::<Family>(&file.text) else { continue };
        let path = family.path.unwrap_or_else(|| name.to_owned());
        families.entry(path).or_default().extend(family.metric.into_iter().map(|m| m.name));
    }
    families
}

fn check_page(page: &TextFile, families: &Families) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in page.text.lines().enumerate() {
        for word in words(text) {
            if let Some((family, metrics)) = unknown(word, families) {
                findings.push(Finding::at(
                    &page.path,
                    line,
                    format!("no schema has the topic `{word}`"),
                    format!("schema/ says what `{family}` measures: {}", metrics.join(", ")),
                ));
            }
        }
    }
    findings
}

/// Parts of a line that may be topics or patterns.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/_-.:@%*…".contains(c);
    line.split(move |c| !is_part(c)).map(|word| word.trim_end_matches(['.', ':']))
}

/// The family of a topic that it does not have, with the metrics that it has.
fn unknown<'a>(word: &str, families: &'a Families) -> Option<(&'a str, &'a [String])> {
    let segments: Vec<&str> = word.split('/').collect();
    // Paths of files begin with `/`, or end in a name with an ending; endpoints end in a port.
    let last = *segments.last()?;
    if segments.len() < 2 || segments[0].is_empty() || last.contains(['.', ':']) {
        return None;
    }
    // The node may be left out, or be a wildcard or a name in capitals.
    let is_node = |segment: &str| segment.starts_with(['*', '%']) || is_name_of_node(segment);
    let start = usize::from(is_node(segments[0]));
    let (family, metrics) = families
        .iter()
        .filter(|(path, _)| begins_with(&segments[start..], path))
        .max_by_key(|(path, _)| path.len())?;
    let rest = segments.len() - start - family.split('/').count();
    let metric = (rest >= 1).then_some(last)?;
    let is_known = metrics.iter().any(|known| matches(metric, known));
    (!is_known).then_some((family.as_str(), metrics.as_slice()))
}

/// Whether a segment is what examples call a node: `n01`, `NODE`.
fn is_name_of_node(segment: &str) -> bool {
    let digits = segment.strip_prefix('n').unwrap_or_default();
    let is_numbered = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    is_numbered || segment.chars().all(|c| c.is_ascii_uppercase())
}

fn begins_with(segments: &[&str], path: &str) -> bool {
    let mut segments = segments.iter();
    path.split('/').all(|part| segments.next() == Some(&part))
}

/// Whether the last segment of a topic or a pattern can mean a metric. Capitals and dots stand for any.
fn matches(segment: &str, metric: &str) -> bool {
    if segment.is_empty() || segment.contains('…') || segment.contains(char::is_uppercase) {
        return true;
    }
    let mut rest = metric;
    for (index, part) in segment.split(['*', '%']).enumerate() {
        match rest.find(part) {
            Some(0) => rest = &rest[part.len()..],
            Some(at) if index > 0 => rest = &rest[at + part.len()..],
            _ => return false,
        }
    }
    rest.is_empty() || segment.ends_with(['*', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: &str = "help = \"\"\nsource = \"\"\n[[metric]]\nname = \"load_1m\"\n";
    const SENSOR: &str = "path = \"self/sensor\"\n[[metric]]\nname = \"stretch\"\n";

    fn lines(page: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            ("schema/load.toml", LOAD),
            ("schema/self_sensor.toml", SENSOR),
            ("docs/a.md", page),
        ]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_topic_that_no_schema_has_is_refused() {
        let page =
            "`n01/load/load_1m`\n`n01/load/load1`\nLIKE '%/load/load1'\n`self/sensor/x/stretsh`\n";
        assert_eq!(lines(page), [2, 3, 4]);
    }

    #[test]
    fn patterns_and_paths_of_files_are_not_refused() {
        let page = "'%/load/load_%' load/* load/** n01/load/… schema/load.toml /proc/load/x `load/`\n\
                    crates/sense/src/load.rs load/hub1:7447 self/sensor/*/stretch NODE/self/sensor/SENSOR/METRIC\n";
        assert!(lines(page).is_empty(), "{:?}", lines(page));
    }

    #[test]
    fn wildcards_match_within_a_name() {
        for (segment, is_match) in
            [("load_1m", true), ("load_*", true), ("*_1m", true), ("%1%", true), ("oad*", false)]
        {
            assert_eq!(matches(segment, "load_1m"), is_match, "{segment}");
        }
    }
}
