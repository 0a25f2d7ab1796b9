//! Arrows between our crates point down only.

use crate::metadata::{Metadata, short_name};
use crate::tidy::finding::Finding;

/// Our crates that each crate may use; `ARCHITECTURE.md` draws it. Crates stand here before they
/// exist, so that their place is known when they come.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("access", &["model"]),
    ("shm", &["model"]),
    ("eval", &["model"]),
    ("bpf", &[]),
    ("term", &["model", "shm"]),
    ("score", &["model", "shm", "eval"]),
    ("sense", &["model", "shm", "score", "bpf"]),
    ("net", &["model", "shm", "score", "bpf"]),
    ("task", &["model", "shm", "score", "bpf"]),
    ("rpc", &["model", "shm", "score"]),
    ("store", &["model"]),
    ("wire", &["model", "access", "store"]),
    ("query", BELOW_QUERY),
    ("steer", &["model"]),
    ("ffi", &["model", "shm", "rpc"]),
    ("agent", &["model", "shm", "eval", "score", "sense", "net", "rpc", "store", "steer", "term"]),
    ("node", &["model", "shm", "store", "wire", "term", "agent"]),
    ("hub", HUB),
    ("serve", SERVE),
    ("top", &["model", "shm", "score", "term", "agent"]),
    ("skopos", EVERYTHING),
    ("bench", EVERYTHING),
    ("dataservice", &["model", "rpc"]),
    ("xtask", &[]),
];

const BELOW_QUERY: &[&str] =
    &["model", "access", "shm", "eval", "score", "sense", "net", "task", "rpc", "store", "wire"];

const HUB: &[&str] = &[
    "model", "access", "shm", "eval", "score", "rpc", "store", "wire", "query", "steer", "term",
    "agent", "node",
];

/// The hub and the crates that it may use.
const SERVE: &[&str] = &[
    "model", "access", "shm", "eval", "score", "rpc", "store", "wire", "query", "steer", "term",
    "agent", "node", "hub",
];

/// `ffi` is for programs of other languages; ours use the crates below it.
const EVERYTHING: &[&str] = &[
    "model", "access", "shm", "eval", "term", "score", "sense", "net", "task", "rpc", "store",
    "wire", "query", "steer", "agent", "node", "hub", "serve", "top",
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
                format!("the crate `{name}` has no place among the others"),
                "draw it in ARCHITECTURE.md, then list what it may use in MAY_USE of \
                 xtask/src/tidy/arrows.rs",
            ));
            continue;
        };
        let ours = package.dependencies.iter().filter(|d| d.path.is_some());
        for used in ours.map(|d| short_name(&d.name)).filter(|used| !allowed.contains(used)) {
            findings.push(Finding::in_file(
                &package.manifest(),
                format!("`{name}` must not use `{used}`"),
                match allowed {
                    [] => format!("`{name}` stands below all crates: move the shared item into it"),
                    _ => format!(
                        "`{name}` may use {}: move the item that it needs down into one \
                         of them, or the code that needs it up",
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

    fn faults(json: &str) -> Vec<String> {
        let metadata = serde_json::from_str(json).expect("metadata");
        check(&metadata).into_iter().map(|f| f.fault).collect()
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
        assert_eq!(faults(json), ["`model` must not use `shm`", "`sense` must not use `net`"]);
    }

    #[test]
    fn the_agent_stands_below_the_hub() {
        let json = r#"{"packages": [
            {"name": "skopos-agent", "dependencies": [
                {"name": "skopos-score", "kind": null, "path": "/x"},
                {"name": "skopos-node", "kind": null, "path": "/x"}]},
            {"name": "skopos-hub", "dependencies": [
                {"name": "skopos-node", "kind": null, "path": "/x"},
                {"name": "skopos-serve", "kind": null, "path": "/x"}]},
            {"name": "skopos-bench", "dependencies": [
                {"name": "skopos-top", "kind": null, "path": "/x"},
                {"name": "skopos", "kind": null, "path": "/x"}]}]}"#;
        assert_eq!(
            faults(json),
            [
                "`agent` must not use `node`",
                "`hub` must not use `serve`",
                "`bench` must not use `skopos`"
            ]
        );
    }

    #[test]
    fn a_crate_without_a_place_is_refused() {
        let json = r#"{"packages": [{"name": "skopos-misc", "dependencies": []}]}"#;
        assert_eq!(faults(json), ["the crate `misc` has no place among the others"]);
    }

    #[test]
    fn the_list_itself_has_no_circle() {
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
