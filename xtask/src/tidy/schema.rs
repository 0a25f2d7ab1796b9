//! `schema/*.toml` describes every fact completely, and names tell unit and kind.

use std::collections::HashMap;

use serde::Deserialize;

use crate::tidy::finding::Finding;
use crate::tree::{TextFile, Tree};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    path: Option<String>,
    #[serde(default)]
    instance: String,
    help: String,
    source: String,
    metric: Vec<Metric>,
}

/// The build requires all fields but the unit as well; this check says where one is missing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metric {
    name: String,
    help: String,
    unit: Option<String>,
    kind: String,
    #[serde(rename = "type")]
    value_type: String,
    #[serde(default, rename = "read_every_seconds")]
    _read_every_seconds: u64,
}

const KINDS: &[&str] = &["counter", "gauge", "state"];
const TYPES: &[&str] = &["f64", "i64", "u64", "structured"];

/// Units that a name may end in; a metric whose name does must have that unit.
const TELLING_UNITS: &[&str] =
    &["bytes", "seconds", "ratio", "celsius", "volts", "amperes", "watts", "joules", "hertz"];

/// Suffixes that may follow the unit in a name: `latency_seconds_max`.
const AGGREGATES: &[&str] = &["min", "max", "mean", "p50", "p90", "p99"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The key is the topic below the node, because two families may share a path.
    let mut topics: HashMap<String, String> = HashMap::new();
    for file in &tree.files {
        let Some(name) = family_name(&file.path) else { continue };
        let family: Family = match toml::from_str(&file.text) {
            Ok(family) => family,
            Err(e) => {
                findings.push(unreadable(file, &e));
                continue;
            }
        };
        let mut report = Report { file, findings: &mut findings };
        check_family(&mut report, tree, name, &family);
        for metric in &family.metric {
            check_metric(&mut report, metric);
            let path = family.path.as_deref().unwrap_or(name);
            let topic = format!("{path}/{}/{}", family.instance, metric.name);
            if let Some(first) = topics.insert(topic, file.path.clone()) {
                report.about(
                    &metric.name,
                    format!("`{}` is in {first} already", metric.name),
                    "a topic has one meaning: give one of the two another name",
                );
            }
        }
    }
    findings
}

/// `block` for `schema/block.toml`.
fn family_name(path: &str) -> Option<&str> {
    path.strip_prefix("schema/")?.strip_suffix(".toml").filter(|name| !name.contains('/'))
}

fn unreadable(file: &TextFile, error: &toml::de::Error) -> Finding {
    let start = error.span().map_or(0, |span| span.start);
    let line = file.text[..start].matches('\n').count();
    Finding::at(
        &file.path,
        line,
        error.message().to_owned(),
        "a family has help, source and [[metric]]; a metric has name, help, unit (\"\" for a \
         plain number), kind and type",
    )
}

/// Collects findings of one file and finds their lines.
struct Report<'a> {
    file: &'a TextFile,
    findings: &'a mut Vec<Finding>,
}

impl Report<'_> {
    fn about(&mut self, metric: &str, fault: String, mend: &str) {
        let wanted = format!("name = \"{metric}\"");
        // The last line with the name: of two metrics with one name, the second is the fault.
        let line =
            self.file.text.lines().collect::<Vec<_>>().iter().rposition(|l| l.trim() == wanted);
        let place = line.map_or(0, |line| line + 1);
        let finding = Finding::in_file(&self.file.path, fault, mend);
        self.findings.push(Finding { line: place, ..finding });
    }
}

fn check_family(report: &mut Report<'_>, tree: &Tree, name: &str, family: &Family) {
    if !is_name(name) {
        report.about("", format!("`{name}` is not a name"), NAME_MEND);
    }
    if let Err((fault, mend)) = check_help(&family.help) {
        report.about("", format!("the family's {fault}"), mend);
    }
    if family.source.trim().is_empty() {
        report.about(
            "",
            "the source is empty".to_owned(),
            "name the kernel file or the document that the values come from",
        );
    }
    if family.metric.is_empty() {
        report.about("", "the family has no metric".to_owned(), "add one, or remove the file");
    }
    // Facts about the agent come from the agent, insights from `score`, facts about other nodes from the live
    // plane, and facts about networks from the collector of telemetry reports and the poller of devices.
    let heard = format!("crates/node/src/{name}.rs");
    // Until the live plane has its own crate.
    let before = format!("crates/skopos/src/live/{name}.rs");
    let computed = format!("crates/score/src/{name}/mod.rs");
    let sensor = format!("crates/sense/src/{name}.rs");
    // Networks report their own state, and other hosts their anomalies.
    let collected = format!("crates/net/src/collector/{name}.rs");
    let reported = format!("crates/agent/src/telemetry/{name}.rs");
    let polled = format!("crates/net/src/snmp/{name}.rs");
    let ranked = format!("crates/agent/src/ranks/{name}.rs");
    let has_source = [&computed, &heard, &sensor, &before, &collected, &reported, &polled, &ranked]
        .iter()
        .any(|path| tree.file(path).is_some());
    if !name.starts_with("self") && !has_source {
        report.about(
            "",
            format!("no sensor feeds the family: there is no {sensor}"),
            "write the sensor, or remove the family",
        );
    }
}

fn check_metric(report: &mut Report<'_>, metric: &Metric) {
    let name = &metric.name;
    if !is_name(name) {
        report.about(name, format!("`{name}` is not a name"), NAME_MEND);
    }
    if let Err((fault, mend)) = check_help(&metric.help) {
        report.about(name, format!("`{name}`: its {fault}"), mend);
    }
    for (word, value, allowed) in
        [("kind", &metric.kind, KINDS), ("type", &metric.value_type, TYPES)]
    {
        if !allowed.contains(&value.as_str()) {
            let mend = format!("write one of {}", allowed.join(", "));
            report.about(name, format!("`{name}`: `{value}` is not a {word}"), &mend);
        }
    }
    match (metric.kind == "counter", name.ends_with("_total")) {
        (true, false) => report.about(
            name,
            format!("`{name}` is a counter and does not end in `_total`"),
            "add `_total`, or make it a gauge if it can fall",
        ),
        (false, true) => report.about(
            name,
            format!("`{name}` ends in `_total` and is not a counter"),
            "take `_total` away, or make it a counter if it only grows",
        ),
        _ => {}
    }
    check_unit(report, metric);
}

fn check_unit(report: &mut Report<'_>, metric: &Metric) {
    let name = &metric.name;
    let Some(unit) = &metric.unit else {
        report.about(
            name,
            format!("`{name}` has no unit"),
            "write `unit = \"\"` if it is a plain number",
        );
        return;
    };
    let stem = name.strip_suffix("_total").unwrap_or(name);
    let stem = AGGREGATES
        .iter()
        .find_map(|a| stem.strip_suffix(a).and_then(|s| s.strip_suffix('_')))
        .unwrap_or(stem);
    let ends_in = |unit: &str| {
        stem.strip_suffix(unit).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    };
    if unit.is_empty() {
        if let Some(told) = TELLING_UNITS.iter().find(|told| ends_in(told)) {
            report.about(
                name,
                format!("`{name}` ends in `{told}` and has no unit"),
                "write the unit, or another name",
            );
        }
    } else if unit.contains('%') {
        report.about(name, format!("`{name}` is in percent"), "use a ratio from 0 to 1");
    } else if !ends_in(&in_words(unit)) {
        report.about(
            name,
            format!("`{name}` does not tell its unit `{unit}`"),
            "end the name in the unit, before `_total` of a counter",
        );
    }
}

/// `bytes_per_second` for `bytes/s`: a name cannot have a slash.
fn in_words(unit: &str) -> String {
    match unit.strip_suffix("/s") {
        Some(amount) => format!("{amount}_per_second"),
        None => unit.replace('/', "_per_"),
    }
}

const NAME_MEND: &str = "a name is a-z, then a-z 0-9 _";

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Returns the fault of a help text and its remedy.
fn check_help(help: &str) -> Result<(), (&'static str, &'static str)> {
    if help.trim().is_empty() {
        return Err(("help is empty", "describe the metric in one sentence"));
    }
    if help.contains('\n') || help.trim() != help {
        return Err(("help has line feeds or spaces around it", "write one line"));
    }
    if help.ends_with('.') {
        return Err(("help ends in a period", "take it away: tables show it without"));
    }
    if !help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()) {
        return Err(("help does not begin like a sentence", "begin with a capital letter"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(metrics: &str) -> Vec<String> {
        let text = format!("help = \"Disks\"\nsource = \"/proc/diskstats\"\n{metrics}");
        let tree = Tree::of(&[("schema/disk.toml", &text), ("crates/sense/src/disk.rs", "")]);
        check(&tree).into_iter().map(|f| format!("{}: {}", f.line, f.fault)).collect()
    }

    fn metric(name: &str, unit: &str, kind: &str) -> String {
        format!(
            "[[metric]]\nname = \"{name}\"\nhelp = \"A thing\"\nunit = \"{unit}\"\n\
             kind = \"{kind}\"\ntype = \"u64\"\n"
        )
    }

    #[test]
    fn good_metrics_pass() {
        let good = [
            metric("read_bytes_total", "bytes", "counter"),
            metric("await_seconds_max", "seconds", "gauge"),
            metric("rate_bytes_per_second", "bytes/s", "gauge"),
            metric("in_flight", "", "gauge"),
            metric("celsius", "celsius", "gauge"),
        ];
        assert!(faults(&good.concat()).is_empty());
    }

    #[test]
    fn names_tell_unit_and_kind() {
        assert_eq!(
            faults(&metric("read", "bytes", "gauge")),
            ["4: `read` does not tell its unit `bytes`"]
        );
        assert_eq!(
            faults(&metric("read_bytes", "", "gauge")),
            ["4: `read_bytes` ends in `bytes` and has no unit"]
        );
        assert_eq!(
            faults(&metric("reads", "", "counter")),
            ["4: `reads` is a counter and does not end in `_total`"]
        );
        assert_eq!(
            faults(&metric("reads_total", "", "gauge")),
            ["4: `reads_total` ends in `_total` and is not a counter"]
        );
        assert_eq!(
            faults(&metric("busy_percent", "%", "gauge")),
            ["4: `busy_percent` is in percent"]
        );
        assert_eq!(faults(&metric("Reads", "", "gauge")), ["4: `Reads` is not a name"]);
        assert_eq!(faults(&metric("reads", "", "rate")), ["4: `reads`: `rate` is not a kind"]);
    }

    #[test]
    fn two_metrics_with_one_name_are_refused() {
        let twice = metric("in_flight", "", "gauge").repeat(2);
        assert_eq!(faults(&twice), ["10: `in_flight` is in schema/disk.toml already"]);
    }

    #[test]
    fn a_missing_field_is_named() {
        let without_unit = metric("in_flight", "", "gauge").replace("unit = \"\"\n", "");
        assert_eq!(faults(&without_unit), ["4: `in_flight` has no unit"]);
        let without_kind = metric("in_flight", "", "gauge").replace("kind = \"gauge\"\n", "");
        assert_eq!(faults(&without_kind), ["3: missing field `kind`"]);
        let helps = ["", "a thing", "A thing."]
            .map(|help| faults(&metric("in_flight", "", "gauge").replace("A thing", help)).len());
        assert_eq!(helps, [1, 1, 1]);
    }

    #[test]
    fn a_family_without_a_sensor_is_refused() {
        let text = format!("help = \"X\"\nsource = \"y\"\n{}", metric("a", "", "gauge"));
        assert_eq!(check(&Tree::of(&[("schema/smart.toml", &text)])).len(), 1);
        assert!(check(&Tree::of(&[("schema/self_agent.toml", &text)])).is_empty());
        let computed = [("schema/smart.toml", &*text), ("crates/score/src/smart/mod.rs", "")];
        assert!(check(&Tree::of(&computed)).is_empty());
        let sourceless = text.replace("\"y\"", "\"\"");
        assert_eq!(check(&Tree::of(&[("schema/self_agent.toml", &sourceless)])).len(), 1);
    }
}
