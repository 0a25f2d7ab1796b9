//! Each atomic ordering in shared memory has a comment that names the place it pairs with.

use crate::rust::{Rust, words};
use crate::tidy::finding::Finding;
use crate::tree::Tree;

const HOME: &str = "crates/shm/src/";

/// Orderings that need a partner. `Relaxed` orders nothing, so it is not among them.
const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];

/// Most lines of code between the comment and the ordering: a compare-exchange over several lines
/// has its second ordering at the end.
const REACH: usize = 6;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust_files() {
        if file.path.starts_with(HOME) && !file.is_test() {
            findings.extend(in_file(&file.path, rust));
        }
    }
    findings
}

fn in_file(path: &str, rust: &Rust) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_use = false;
    for (line, code) in rust.code().iter().enumerate() {
        in_use |= words(code, "use").next().is_some_and(|at| is_import(&code[..at]));
        let imports = in_use;
        in_use &= !code.contains(';');
        if imports || rust.in_test_module(line) {
            continue;
        }
        let ordering = ORDERINGS.iter().find(|o| words(code, o).next().is_some());
        if let Some(ordering) = ordering.filter(|_| !rust.has_comment_near(line, "SYNC:", REACH)) {
            findings.push(Finding::at(
                path,
                line,
                format!("`{ordering}` without a `SYNC:` comment"),
                "write above it which load or store it pairs with and what becomes visible: \
                 `SYNC: pairs with the load in Ring::latest`",
            ));
        }
    }
    findings
}

/// Whether `use` after this text is an import: nothing or a visibility stands before it.
fn is_import(before: &str) -> bool {
    let before = before.trim();
    before.is_empty() || before.starts_with("pub")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|f| f.line).collect()
    }

    #[test]
    fn an_ordering_without_its_pair_is_refused() {
        let bad = "use std::sync::atomic::Ordering::{\n    Acquire,\n    Release,\n};\n\
                   fn f() {\n    a.load(Acquire);\n}\nfn g() {\n    \
                   // SYNC: pairs with the load in f\n    a.store(1, Release);\n    a.load(Relaxed);\n}\n\
                   fn h() {\n    b();\n    c();\n    d();\n    e();\n    fence(SeqCst);\n}\n\
                   #[cfg(test)]\nmod tests {\n    fn t() { a.load(Acquire); }\n}\n";
        assert_eq!(lines("crates/shm/src/ring.rs", bad), [6, 18]);
    }

    #[test]
    fn tests_and_other_crates_are_left_alone() {
        let text = "fn f() { a.load(Acquire); }\n";
        assert!(lines("crates/shm/src/loom_ring.rs", text).is_empty());
        assert!(lines("crates/skopos/src/up.rs", text).is_empty());
    }
}
