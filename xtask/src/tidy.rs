//! Runs the checks that no compiler makes. Each check is one file, with a test on a small bad example,
//! so that a check that stops working fails its own test.

mod arrows;
mod atomics;
mod changelog;
mod finding;
mod forbidden;
mod length;
mod links;
mod manifests;
mod modules;
mod openings;
mod places;
mod pure;
mod reference;
mod results;
mod schema;
mod sources;
mod topics;
mod unsafe_homes;
mod vendored;

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use self::finding::Finding;
use crate::metadata::Metadata;
use crate::tree::{self, Tree};

/// The input of the checks.
struct Repository {
    tree: Tree,
    metadata: Metadata,
}

impl Repository {
    /// Reads the files while cargo answers.
    fn read() -> io::Result<Self> {
        let root = tree::root();
        std::thread::scope(|scope| {
            let metadata = scope.spawn(|| Metadata::read(&root, forbidden::WHOLE));
            let tree = Tree::read(&root)?;
            let metadata = metadata.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok(Self { tree, metadata })
        })
    }
}

type Check = fn(&Repository) -> Vec<Finding>;

/// Name and function of each check, in the order of their reports.
const CHECKS: &[(&str, Check)] = &[
    ("sources", |r| sources::check(&r.tree)),
    ("arrows", |r| arrows::check(&r.metadata)),
    ("modules", |r| modules::check(&r.tree)),
    ("forbidden", |r| forbidden::check(&r.metadata, &r.tree)),
    ("pure", |r| pure::check(&r.tree)),
    ("unsafe_homes", |r| unsafe_homes::check(&r.tree)),
    ("atomics", |r| atomics::check(&r.tree)),
    ("openings", |r| openings::check(&r.tree)),
    ("length", |r| length::check(&r.tree)),
    ("schema", |r| schema::check(&r.tree)),
    ("manifests", |r| manifests::check(&r.tree)),
    ("vendored", |r| vendored::check(&r.tree)),
    ("places", |r| places::check(&r.tree)),
    ("results", |r| results::check(&r.tree)),
    ("changelog", |r| changelog::check(&r.tree)),
    ("links", |r| links::check(&r.tree)),
    ("topics", |r| topics::check(&r.tree)),
    ("reference", |r| reference::check(&r.tree)),
];

/// Runs every check and prints the findings.
pub(crate) fn run() -> ExitCode {
    let started = Instant::now();
    let repository = match Repository::read() {
        Ok(repository) => repository,
        Err(e) => {
            eprintln!("error: the repository cannot be read: {e}");
            eprintln!("hint: tidy needs git, cargo and a git checkout");
            return ExitCode::from(2);
        }
    };
    let mut findings = 0;
    let mut failed = Vec::new();
    for (name, found) in check_all(&repository) {
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

/// The findings of each check, in their order. The checks run side by side.
fn check_all(repository: &Repository) -> Vec<(&'static str, Vec<Finding>)> {
    std::thread::scope(|scope| {
        let start = |(name, check): &(&'static str, Check)| {
            let check = *check;
            (*name, scope.spawn(move || check(repository)))
        };
        let threads: Vec<_> = CHECKS.iter().map(start).collect();
        let end = |(name, thread): (&'static str, ScopedJoinHandle<'_, Vec<Finding>>)| {
            (name, thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        };
        threads.into_iter().map(end).collect()
    })
}

/// Prints the circles of modules, listed or not.
pub(crate) fn circles() -> ExitCode {
    match Tree::read(&tree::root()) {
        Ok(tree) => {
            // A reader that has seen enough closes the pipe.
            let _ = io::stdout().write_all(modules::describe(&tree).as_bytes());
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: the repository cannot be read: {e}");
            ExitCode::from(2)
        }
    }
}
