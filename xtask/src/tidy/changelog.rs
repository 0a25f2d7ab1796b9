//! The changelog has a section for changes that are not released yet.

use crate::tidy::finding::Finding;
use crate::tree::Tree;

const PATH: &str = "CHANGELOG.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mend = "write `## [Unreleased]` above the newest release, and under it one line for each \
                change that a user can notice";
    match tree.file(PATH) {
        None => vec![Finding::in_file(PATH, "the file is missing", mend)],
        Some(file) if !file.text.lines().any(|l| l.trim_end() == "## [Unreleased]") => {
            vec![Finding::in_file(PATH, "there is no Unreleased section", mend)]
        }
        Some(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changelog_without_unreleased_is_refused() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
        assert_eq!(check(&Tree::of(&[(PATH, "# Changelog\n\n## [0.1.0]\n")])).len(), 1);
        assert!(check(&Tree::of(&[(PATH, "# Changelog\n\n## [Unreleased]\n")])).is_empty());
    }
}
