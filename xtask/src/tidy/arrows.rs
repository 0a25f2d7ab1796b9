//! Arrows between our crates point down only.

use crate::metadata::{Metadata, short_name};
use crate::tidy::finding::Finding;

/// What each crate may use of ours; `ARCHITECTURE.md` draws it. Crates stand here before they
/// exist, so that the first one to write one finds its place.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("shm", &["model"]),
    ("eval", &["model"]),
    ("score", &["model", "shm", "eval"]),
    ("sense", &["model", "shm", "score"]),
    ("net", &["model", "shm", "score"]),
    ("task", &["model", "shm", "score"]),
    ("rpc", &["model", "shm", "score"]),
    ("store", &["model"]),
    ("wire", &["model", "store"]),
    ("query", BELOW_QUERY),
    ("steer", BELOW_QUERY),
    ("ffi", &["model", "shm"]),
    ("skopos", EVERYTHING),
    ("xtask", &[]),
];

const BELOW_QUERY: &[&str] =
    &["model", "shm", "eval", "score", "sense", "net", "task", "rpc", "store", "wire"];

const EVERYTHING: &[&str] = &[
    "model", "shm", "eval", "score", "sense", "net", "task", "rpc", "store", "wire", "query",
    "steer", "ffi",
];

/// Development and build dependencies obey the same arrows: a test that needs a higher crate
/// belongs to the higher crate.
pub(crate) fn check(metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let name = package.short_name();
        let Some((_, allowed)) = MAY_USE.iter().find(|(krate, _)| *krate == name) else {
            findings.push(Finding::in_file(
                &package.manifest(),
                format!("nobody knows where the crate `{name}` stands"),
                "draw it in ARCHITECTURE.md, then list what it may use in MAY_USE of \
                 xtask/src/tidy/arrows.rs",
            ));
            continue;
        };
        let ours = package.dependencies.iter().filter(|d| d.path.is_some());
        for used in ours.map(|d| short_name(&d.name)).filter(|used| !allowed.contains(used)) {
            findings.push(Finding::in_file(
                &package.manifest(),
                format!("`{name}` uses `{used}`, and no arrow leads there"),
                match allowed {
                    [] => format!("`{name}` uses none of our crates: move what both need below"),
                    _ => format!(
                        "`{name}` may use {}: move what it needs down into one of them, or the \
                         code that needs it up",
                        allowed.join(", ")
                    ),
                },
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(json: &str) -> Vec<String> {
        let metadata = serde_json::from_str(json).expect("metadata");
        check(&metadata).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn an_arrow_that_points_up_is_refused_also_in_tests() {
        let json = r#"{"packages": [
            {"name": "skopos-model", "dependencies": [
                {"name": "serde_json", "kind": null},
                {"name": "skopos-shm", "kind": "dev", "path": "/x"}]},
            {"name": "skopos-sense", "dependencies": [
                {"name": "skopos-model", "kind": null, "path": "/x"},
                {"name": "skopos-net", "kind": null, "path": "/x"}]},
            {"name": "skopos", "dependencies": [
                {"name": "skopos-sense", "kind": null, "path": "/x"}]}]}"#;
        assert_eq!(
            whats(json),
            [
                "`model` uses `shm`, and no arrow leads there",
                "`sense` uses `net`, and no arrow leads there"
            ]
        );
    }

    #[test]
    fn an_unknown_crate_is_asked_for_its_place() {
        let json = r#"{"packages": [{"name": "skopos-misc", "dependencies": []}]}"#;
        assert_eq!(whats(json), ["nobody knows where the crate `misc` stands"]);
    }

    #[test]
    fn the_list_itself_has_no_cycle() {
        for (at, (krate, allowed)) in MAY_USE.iter().enumerate() {
            for used in *allowed {
                let below = MAY_USE.iter().position(|(k, _)| k == used);
                assert!(
                    below.is_some_and(|b| b < at),
                    "`{krate}` may use `{used}`, which stands above it"
                );
            }
        }
    }
}
