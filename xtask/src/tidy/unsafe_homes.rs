//! Few crates have `unsafe`, and each use has a comment that says why it is sound.

use crate::rust::{Rust, words};
use crate::tidy::finding::Finding;
use crate::tree::{TextFile, Tree};

/// Crates that cannot work without `unsafe`: shared memory and the C ABI.
const HOMES: &[&str] = &["shm", "ffi"];

/// Crates that may need a system call without a safe wrapper. Such a crate gives the reason in its
/// `lib.rs`, in a comment `UNSAFE: reason`.
const HOMES_WITH_REASON: &[&str] = &["bpf", "task", "net", "sense"];

/// Most lines of code between the comment above a statement and the `unsafe` inside it.
const REACH: usize = 3;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust_files() {
        findings.extend(forbids(tree, file));
        if !may_be_unsafe(tree, file) {
            findings.extend(out_of_place(file, rust));
        }
        findings.extend(unexplained(file, rust));
    }
    findings
}

fn is_home(tree: &Tree, krate: &str) -> bool {
    let says_why = || {
        let lib = tree.file(&format!("crates/{krate}/src/lib.rs"));
        lib.is_some_and(|f| f.text.lines().any(gives_reason))
    };
    HOMES.contains(&krate) || HOMES_WITH_REASON.contains(&krate) && says_why()
}

fn gives_reason(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//")
        && line.split_once("UNSAFE:").is_some_and(|(_, reason)| reason.trim().contains(' '))
}

fn may_be_unsafe(tree: &Tree, file: &TextFile) -> bool {
    match file.crate_name() {
        Some(krate) if is_home(tree, krate) => true,
        // Only an allocator that counts can test "a tick allocates nothing".
        Some(_) => file.path.contains("/tests/") && file.text.contains("GlobalAlloc"),
        None => file.path.starts_with("fuzz/"),
    }
}

/// The root file of every other crate forbids `unsafe`, so that the compiler refuses it too.
fn forbids(tree: &Tree, file: &TextFile) -> Option<Finding> {
    let krate = file.crate_name()?;
    let in_source = file.path.split_once("src/")?.1;
    let is_root = matches!(in_source, "lib.rs" | "main.rs") || in_source.starts_with("bin/");
    if !is_root || is_home(tree, krate) || file.text.contains("#![forbid(unsafe_code)]") {
        return None;
    }
    let mend = if HOMES_WITH_REASON.contains(&krate) {
        "add it below the module header; if a system call needs `unsafe`, write a comment \
         `// UNSAFE: reason` there instead"
    } else {
        "add it below the module header"
    };
    Some(Finding::in_file(&file.path, "there is no `#![forbid(unsafe_code)]`", mend))
}

fn out_of_place(file: &TextFile, rust: &Rust) -> Vec<Finding> {
    let mend = format!(
        "use a safe wrapper (`rustix` has most system calls), or move it to {}",
        HOMES.join(" or ")
    );
    rust.lines_with_word("unsafe")
        .map(|line| Finding::at(&file.path, line, "`unsafe` outside of its homes", mend.as_str()))
        .collect()
}

fn unexplained(file: &TextFile, rust: &Rust) -> Vec<Finding> {
    rust.lines_with_word("unsafe")
        .filter(|&line| needs_comment(rust, line))
        .filter(|&line| !rust.has_comment_near(line, "SAFETY:", REACH))
        .map(|line| {
            Finding::at(
                &file.path,
                line,
                "`unsafe` without a `SAFETY:` comment",
                "write above it the rule that must hold here and why it does",
            )
        })
        .collect()
}

/// Whether the line keeps a promise, in a block or an implementation. Declarations (`unsafe fn`,
/// `unsafe trait`, `unsafe extern`) ask for one, and attributes (`unsafe(no_mangle)`) name a symbol.
fn needs_comment(rust: &Rust, line: usize) -> bool {
    let code = &rust.code()[line];
    words(code, "unsafe").any(|at| {
        let rest = code[at + "unsafe".len()..].trim_start();
        let next_line = || rust.code().get(line + 1).map_or("", |l| l.trim_start());
        let rest = if rest.is_empty() { next_line() } else { rest };
        rest.starts_with('{') || rest.starts_with("impl")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files))
            .into_iter()
            .map(|f| format!("{}:{} {}", f.path, f.line, f.fault))
            .collect()
    }

    #[test]
    fn unsafe_outside_of_its_homes_is_refused() {
        let bad = "#![forbid(unsafe_code)]\n// SAFETY: none at all\nfn f() { unsafe { g() } }\n";
        assert_eq!(
            faults(&[("crates/model/src/lib.rs", bad), ("fuzz/fuzz_targets/map.rs", bad)]),
            ["crates/model/src/lib.rs:3 `unsafe` outside of its homes"]
        );
    }

    #[test]
    fn a_root_file_that_forbids_nothing_is_refused() {
        assert_eq!(
            faults(&[
                ("crates/skopos/src/main.rs", "fn main() {}\n"),
                ("crates/skopos/src/verbs.rs", ""),
                ("crates/shm/src/lib.rs", "//! x\n"),
            ]),
            ["crates/skopos/src/main.rs:0 there is no `#![forbid(unsafe_code)]`"]
        );
    }

    #[test]
    fn a_sensor_crate_with_a_reason_is_a_home() {
        let call = (
            "crates/sense/src/smart.rs",
            "// SAFETY: the buffer outlives the call\nunsafe { ioctl() };\n",
        );
        let reason = "// UNSAFE: no crate wraps the NVMe health ioctl\n";
        assert!(faults(&[("crates/sense/src/lib.rs", reason), call]).is_empty());
        assert_eq!(faults(&[("crates/sense/src/lib.rs", "// UNSAFE:\n"), call]).len(), 2);
        assert_eq!(faults(&[("crates/model/src/lib.rs", reason)]).len(), 1);
    }

    #[test]
    fn unsafe_without_a_reason_is_refused() {
        let bad = "fn f() {\n    unsafe { g() }\n}\nunsafe impl Send for T {}\n\
                   unsafe fn h() {}\n#[unsafe(no_mangle)]\nfn i() {\n    // SAFETY: j is total\n    \
                   let x =\n        unsafe { j() };\n}\n";
        assert_eq!(
            faults(&[("crates/shm/src/a.rs", bad)]),
            [
                "crates/shm/src/a.rs:2 `unsafe` without a `SAFETY:` comment",
                "crates/shm/src/a.rs:4 `unsafe` without a `SAFETY:` comment"
            ]
        );
    }

    #[test]
    fn a_test_may_count_allocations_and_nothing_else() {
        let allocator = "// SAFETY: passes on to System\nunsafe impl GlobalAlloc for Counting {}\n";
        let other = "// SAFETY: no\nunsafe impl Send for X {}\n";
        assert!(faults(&[("crates/sense/tests/allocation.rs", allocator)]).is_empty());
        assert_eq!(faults(&[("crates/sense/tests/other.rs", other)]).len(), 1);
    }
}
