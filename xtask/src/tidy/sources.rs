//! Every Rust file can be cut into tokens; the other checks see nothing of a file that cannot.

use crate::tidy::finding::Finding;
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust_files()
        .filter_map(|(file, rust)| {
            let (line, error) = rust.error()?;
            let mend = "close the bracket, string or comment; `cargo check` shows where it begins";
            Some(Finding::at(&file.path, line, error, mend))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_bracket_is_refused() {
        let tree =
            Tree::of(&[("crates/a/src/a.rs", "fn a() {}\n"), ("crates/a/src/b.rs", "fn b( {\n")]);
        let found: Vec<String> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(found, ["crates/a/src/b.rs"]);
    }
}
