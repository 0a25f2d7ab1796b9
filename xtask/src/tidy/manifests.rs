//! A direct dependency has its version in one place and a reason beside it.

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

/// Each paragraph of the workspace's dependencies begins with a comment, which is the reason of
/// all in it up to the next comment. Our own crates need none.
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
                format!("`{name}` is here without a reason"),
                "write a comment line above it: what it does for us that ten lines would not",
            )),
            Some(_) => {}
        }
    }
    findings
}

/// Crates take every version from the workspace, so that there is one of each.
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

/// The lines of the tables that `wanted` chooses: number, the key if it has one, and the text.
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

    fn whats(path: &str, text: &str) -> Vec<(usize, String)> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|f| (f.line, f.what)).collect()
    }

    #[test]
    fn a_dependency_without_a_reason_is_refused() {
        let bad = "[workspace.dependencies]\nskopos-shm = { path = \"crates/shm\" }\n\n\
                   # Numbers.\na = \"1\"\nb = \"1\"\n\nc = { version = \"1\" }\n[lints]\nd = \"x\"\n";
        assert_eq!(whats("Cargo.toml", bad), [(8, "`c` is here without a reason".to_owned())]);
    }

    #[test]
    fn a_version_outside_of_the_workspace_table_is_refused() {
        let bad = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\n\
                   b = { workspace = true, optional = true }\n\
                   [target.'cfg(loom)'.dependencies]\nloom = \"0.7\"\n";
        assert_eq!(
            whats("crates/x/Cargo.toml", bad),
            [(7, "`loom` has a version of its own".to_owned())]
        );
        assert!(whats("fuzz/Cargo.toml", bad).is_empty());
    }
}
