//! Each direct dependency has its version in one place, with a reason beside it.

use crate::tidy::finding::Finding;
use crate::tree::Tree;

const ROOT: &str = "Cargo.toml";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        if file.path == ROOT {
            findings.extend(reasons(&file.text));
        } else if file.crate_name().is_some() && file.path.ends_with("/Cargo.toml") {
            findings.extend(inherited(&file.path, &file.text));
        }
    }
    findings
}

/// A comment in the workspace's dependencies is the reason of all entries below it, up to the next
/// comment or blank line. Our own crates need no reason.
fn reasons(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut has_reason = false;
    for (line, name, raw) in entries(text, |table| table == "workspace.dependencies") {
        match name {
            None if raw.starts_with('#') => has_reason = raw.len() > 2,
            None => has_reason &= !raw.is_empty(),
            Some(name) if !has_reason && !raw.contains("path =") => findings.push(Finding::at(
                ROOT,
                line,
                format!("`{name}` has no reason"),
                "write a comment line above it: say what it does that ten lines of code could not",
            )),
            Some(_) => {}
        }
    }
    findings
}

/// Crates take every version from the workspace, so that each library has one version.
fn inherited(path: &str, text: &str) -> Vec<Finding> {
    let is_dependencies = |table: &str| {
        let last = table.rsplit('.').next().unwrap_or_default();
        matches!(last, "dependencies" | "dev-dependencies" | "build-dependencies")
    };
    entries(text, is_dependencies)
        .filter_map(|(line, name, raw)| {
            let name = name.filter(|_| !raw.contains("workspace = true"))?;
            Some(Finding::at(
                path,
                line,
                format!("`{name}` has a version of its own"),
                "put the version into `[workspace.dependencies]` of the root and write \
                 `workspace = true` here",
            ))
        })
        .collect()
}

/// The lines of the tables that `wanted` chooses: number, key if the line has one, and text.
fn entries(
    text: &str,
    wanted: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (usize, Option<&str>, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(line, raw)| {
        let raw = raw.trim();
        if let Some(table) = raw.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            inside = wanted(table);
            return None;
        }
        let name = raw.split(['=', '.', ' ']).next().filter(|n| {
            raw.contains('=') && !n.is_empty() && !n.starts_with(['#', '"', ']', '}', '{'])
        });
        inside.then_some((line, name, raw))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<(usize, String)> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|f| (f.line, f.fault)).collect()
    }

    #[test]
    fn a_dependency_without_a_reason_is_refused() {
        let bad = "[workspace.dependencies]\nskopos-shm = { path = \"crates/shm\" }\n\n\
                   # Numbers.\na = \"1\"\nb = \"1\"\n\nc = { version = \"1\" }\n[lints]\nd = \"x\"\n";
        assert_eq!(faults("Cargo.toml", bad), [(8, "`c` has no reason".to_owned())]);
    }

    #[test]
    fn a_version_outside_of_the_workspace_table_is_refused() {
        let bad = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\n\
                   b = { workspace = true, optional = true }\n\
                   [target.'cfg(loom)'.dependencies]\nloom = \"0.7\"\n";
        assert_eq!(
            faults("crates/x/Cargo.toml", bad),
            [(7, "`loom` has a version of its own".to_owned())]
        );
        assert!(faults("fuzz/Cargo.toml", bad).is_empty());
    }
}
