//! Tables of benchmark results in Markdown pages, generated from `bench/runs` between markers.
//!
//! `bench/README.md` documents the markers. `cargo xtask results` rewrites the pages, and tidy refuses
//! a page whose tables differ from the raw runs.

mod cases;
mod figure;
mod glob;
mod marker;
mod page;
mod run;
mod table;

use std::process::ExitCode;
use std::{fs, io};

use self::page::Problem;
use self::run::Runs;
use crate::tree::{self, TextFile, Tree};

/// One page as the raw runs make it.
pub(crate) struct Page<'a> {
    pub(crate) file: &'a TextFile,
    /// The page with every table that could be made.
    pub(crate) text: String,
    /// Markers that could not be followed.
    pub(crate) problems: Vec<Problem>,
}

/// Makes every page that has a marker. An error is a run that cannot be read: its path and fault.
pub(crate) fn pages(tree: &Tree) -> Result<Vec<Page<'_>>, (String, String)> {
    let runs = Runs::read(tree)?;
    let with_marker = tree
        .files
        .iter()
        .filter(|file| file.path.ends_with(".md") && file.text.contains(marker::START));
    let make = |file| {
        let (text, problems) = page::make(file, &runs);
        Page { file, text, problems }
    };
    Ok(with_marker.map(make).collect())
}

/// Rewrites the pages and says which changed.
pub(crate) fn run() -> ExitCode {
    match rewrite() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Returns the number of markers that could not be followed.
fn rewrite() -> io::Result<usize> {
    let root = tree::root();
    let tree = Tree::read(&root)?;
    let pages =
        pages(&tree).map_err(|(path, fault)| io::Error::other(format!("{path}: {fault}")))?;
    let mut problems = 0;
    for page in pages {
        for problem in &page.problems {
            problems += 1;
            println!("{}:{}: {}", page.file.path, problem.line + 1, problem.fault);
        }
        if page.text != page.file.text {
            fs::write(root.join(&page.file.path), &page.text)?;
            println!("{}: rewritten", page.file.path);
        }
    }
    Ok(problems)
}
