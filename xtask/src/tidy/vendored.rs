//! A copy of a library in `vendor/` says why it is there, and is the one that programs are built with.
//!
//! Cargo only warns when an update leaves a copy unused, and programs would have the fault again that the copy mends.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::tidy::finding::Finding;
use crate::tree::{Tree, VENDORED};

#[derive(Default, Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    /// The registry; absent for a package of this repository.
    source: Option<String>,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let lock = tree.file("Cargo.lock").map(|file| toml::from_str::<Lock>(&file.text));
    let lock = lock.and_then(Result::ok).unwrap_or_default();
    let paths = tree.vendored.iter().filter_map(|path| path.strip_prefix(VENDORED));
    let copies: BTreeSet<&str> = paths.filter_map(|path| path.split('/').next()).collect();
    let mut findings = Vec::new();
    for copy in copies {
        let folder = format!("{VENDORED}{copy}");
        if !tree.vendored.contains(&format!("{folder}/README.md")) {
            findings.push(Finding::in_file(
                &folder,
                "has no README.md",
                "say what was changed and why, and when the copy can go",
            ));
        }
        let mut locked = lock.package.iter().filter(|package| package.name == copy).peekable();
        if locked.peek().is_none() || locked.any(|package| package.source.is_some()) {
            findings.push(Finding::in_file(
                &folder,
                format!("programs are built with another `{copy}`"),
                "bring the copy to the version in Cargo.lock, or delete it with its line of `[patch.crates-io]`",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(vendored: &[&str], lock: &str) -> Vec<String> {
        let mut tree = Tree::of(&[("Cargo.lock", lock)]);
        tree.vendored = vendored.iter().map(|path| (*path).to_owned()).collect();
        check(&tree).into_iter().map(|f| format!("{}: {}", f.path, f.fault)).collect()
    }

    #[test]
    fn a_copy_that_is_unused_or_unexplained_is_refused() {
        let copy = ["vendor/a/README.md", "vendor/a/src/lib.rs"];
        let used = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n";
        let other = format!("{used}source = \"registry\"\n");
        assert!(faults(&copy, used).is_empty());
        assert_eq!(faults(&copy[1..], used), ["vendor/a: has no README.md"]);
        for lock in ["", &other, &format!("{used}\n{other}")] {
            assert_eq!(faults(&copy, lock), ["vendor/a: programs are built with another `a`"]);
        }
    }
}
