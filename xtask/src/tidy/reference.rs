//! Checks that the generated pages of the reference are what their sources give.

use crate::reference::outdated;
use crate::tidy::finding::Finding;
use crate::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mend = "run `cargo xtask reference` and commit the page";
    let pages = outdated(tree).into_iter();
    pages.map(|(path, what)| Finding::in_file(path, what, mend)).collect()
}
