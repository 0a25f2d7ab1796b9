//! The core uses no clock, no files and no threads: it takes their values as arguments, so that a
//! whole cluster can be simulated from one seed.

use crate::rust::Rust;
use crate::tidy::finding::Finding;
use crate::tree::Tree;

const PURE_CRATES: &[&str] = &[
    "crates/model/src/",
    "crates/eval/src/",
    "crates/score/src/",
    "crates/steer/src/rank/",
    "crates/steer/src/place/",
    "crates/steer/src/simulate/",
];

/// Names of the standard library that reach out of the program.
const OUTSIDE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "SystemTime",
    "Instant::now",
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust_files() {
        if PURE_CRATES.iter().any(|folder| file.path.starts_with(folder)) && !file.is_test() {
            findings.extend(in_file(&file.path, rust));
        }
    }
    findings
}

fn in_file(path: &str, rust: &Rust) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, code) in rust.code().iter().enumerate() {
        if rust.in_test_module(line) {
            continue;
        }
        for outside in OUTSIDE.iter().filter(|outside| code.contains(**outside)) {
            findings.push(Finding::at(
                path,
                line,
                format!("`{outside}` in a crate without clock and files"),
                "take its value as an argument; the caller has the clock and the files",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_in_the_core_is_refused() {
        let bad = "fn age() { let t = std::time::SystemTime::now(); }\n\
                   #[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        let tree = Tree::of(&[("crates/score/src/a.rs", bad), ("crates/sense/src/a.rs", bad)]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/score/src/a.rs", 1));
    }
}
