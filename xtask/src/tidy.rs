//! What no compiler checks. Each check is one file, with a test on a small bad example, so that a
//! check which stops checking fails its own test.

mod arrows;
mod atomics;
mod changelog;
mod forbidden;
mod length;
mod links;
mod manifests;
mod places;
mod pure;
mod reference;
mod schema;
mod topics;
mod unsafe_homes;

use std::fmt;
use std::process::ExitCode;
use std::time::Instant;

use crate::metadata::Metadata;
use crate::tree::{self, Tree};

/// Something to mend.
pub(crate) struct Finding {
    /// Relative to the root of the repository.
    pub(crate) path: String,
    /// Counted from 1; 0 if it is about the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) mend: String,
}

impl Finding {
    /// About the whole file.
    pub(crate) fn in_file(path: &str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 0, what: what.into(), mend: mend.into() }
    }

    /// About one line, counted from 0.
    pub(crate) fn at(
        path: &str,
        line: usize,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { line: line + 1, ..Self::in_file(path, what, mend) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what)?,
            line => write!(f, "{}:{line}: {}", self.path, self.what)?,
        }
        write!(f, "\n  mend: {}", self.mend)
    }
}

/// What the checks look at.
struct Repository {
    tree: Tree,
    metadata: Metadata,
}

type Check = fn(&Repository) -> Vec<Finding>;

/// By name, in the order of their reports.
const CHECKS: &[(&str, Check)] = &[
    ("arrows", |r| arrows::check(&r.metadata)),
    ("forbidden", |r| forbidden::check(&r.metadata, &r.tree)),
    ("pure", |r| pure::check(&r.tree)),
    ("unsafe_homes", |r| unsafe_homes::check(&r.tree)),
    ("atomics", |r| atomics::check(&r.tree)),
    ("length", |r| length::check(&r.tree)),
    ("schema", |r| schema::check(&r.tree)),
    ("manifests", |r| manifests::check(&r.tree)),
    ("places", |r| places::check(&r.tree)),
    ("changelog", |r| changelog::check(&r.tree)),
    ("links", |r| links::check(&r.tree)),
    ("topics", |r| topics::check(&r.tree)),
    ("reference", |r| reference::check(&r.tree)),
];

/// Runs every check and prints what there is to mend.
pub(crate) fn run() -> ExitCode {
    let started = Instant::now();
    let root = tree::root();
    let read = Tree::read(&root).and_then(|tree| Ok((tree, Metadata::read(&root)?)));
    let (tree, metadata) = match read {
        Ok(read) => read,
        Err(e) => {
            eprintln!("error: the repository cannot be read: {e}");
            eprintln!("hint: tidy needs git, cargo and a git checkout");
            return ExitCode::from(2);
        }
    };
    let repository = Repository { tree, metadata };
    let mut findings = 0;
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        let found = check(&repository);
        if !found.is_empty() {
            failed.push(format!("{name} ({})", found.len()));
        }
        for finding in found {
            findings += 1;
            println!("{finding}");
        }
    }
    let files = repository.tree.files.len();
    let seconds = started.elapsed().as_secs_f64();
    if findings == 0 {
        println!("tidy: {} checks over {files} files, all well ({seconds:.2} s)", CHECKS.len());
        return ExitCode::SUCCESS;
    }
    println!("tidy: {findings} to mend in {files} files: {}", failed.join(", "));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_place_fault_and_remedy() {
        let finding = Finding::at("crates/shm/src/ring.rs", 11, "it is bent", "straighten it");
        assert_eq!(
            finding.to_string(),
            "crates/shm/src/ring.rs:12: it is bent\n  mend: straighten it"
        );
        assert_eq!(Finding::in_file("a", "b", "c").to_string(), "a: b\n  mend: c");
    }
}
