//! Turns `schema/*.toml` into Rust: a module for each family, a constant for each metric, and the list of
//! all families.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FamilyFile {
    /// The path of the topics under the node, if it is not the file's name.
    path: Option<String>,
    #[serde(default)]
    instance: String,
    help: String,
    source: String,
    metric: Vec<MetricEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricEntry {
    name: String,
    help: String,
    /// Empty for a plain number. Required, so that a missing unit is an error and not a guess.
    unit: String,
    kind: String,
    #[serde(rename = "type")]
    value_type: String,
    /// Seconds between two reads of its source, where that may be more than the sensor's interval.
    #[serde(default)]
    read_every_seconds: u64,
}

fn main() {
    let folder =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../schema");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.expect("readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    let mut code = String::new();
    let mut families = String::new();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file.file_stem().and_then(|s| s.to_str()).expect("a UTF-8 file name");
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let family: FamilyFile =
            toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        // `self` is a keyword of Rust, and even a raw identifier may not have this name.
        let module = if name == "self" { "self_" } else { name };
        write_family(&mut code, module, name, &family);
        writeln!(families, "    &{module}::FAMILY,").expect("a String takes all");
    }
    writeln!(
        code,
        "/// Every family, by name.\npub static FAMILIES: &[&Family] = &[\n{families}];"
    )
    .expect("a String takes all");
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("schema.rs");
    fs::write(&out, code).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}

fn write_family(code: &mut String, module: &str, name: &str, family: &FamilyFile) {
    let path = family.path.as_deref().unwrap_or(name);
    let FamilyFile { instance, help, source, .. } = family;
    let mut metrics = String::new();
    writeln!(code, "#[doc = {help:?}]\npub mod {module} {{\n    use super::*;").expect("fits");
    for metric in &family.metric {
        let constant = metric.name.to_uppercase();
        let kind = variant(&metric.kind, &["counter", "gauge", "state"]);
        let value_type = variant(&metric.value_type, &["f64", "i64", "u64", "structured"]);
        writeln!(
            code,
            "    #[doc = {:?}]\n    pub static {constant}: Metric = Metric {{ name: {:?}, help: {:?}, \
             unit: Unit::known({:?}), kind: Kind::{kind}, value_type: ValueType::{value_type}, \
             path: {path:?}, read_every_seconds: {} }};",
            metric.help, metric.name, metric.help, metric.unit, metric.read_every_seconds
        )
        .expect("a String takes all");
        write!(metrics, "&{constant}, ").expect("a String takes all");
    }
    writeln!(
        code,
        "    /// The family.\n    pub static FAMILY: Family = Family {{ name: {name:?}, path: \
         {path:?}, instance: {instance:?}, help: {help:?}, source: {source:?}, metrics: \
         &[{metrics}] }};\n}}"
    )
    .expect("a String takes all");
}

/// Turns `counter` into `Counter`; any text that is not allowed is a build error.
fn variant(text: &str, allowed: &[&str]) -> String {
    assert!(allowed.contains(&text), "`{text}` is not one of {allowed:?}");
    let mut chars = text.chars();
    chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect()
}
