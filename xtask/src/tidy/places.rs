//! No file names a path or a host that only one machine has.

use crate::tidy::finding::Finding;
use crate::tree::{TextFile, Tree};

// In pieces, because this file would otherwise be its own first finding.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Use", "rs/")];

/// Hosts of package registries. Clients (cargo, pip, apt) know them; a file that names one breaks
/// behind a mirror.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("//crates", ".io"),
    concat!("py", "pi.org"),
    concat!("files.python", "hosted.org"),
    concat!("registry.npm", "js.org"),
    concat!("proxy.go", "lang.org"),
    concat!("repo.maven", ".apache.org"),
    concat!("repo1.maven", ".org"),
    concat!("deb.deb", "ian.org"),
];

const SHARED_TEMPORARY: &str = concat!("/t", "mp/");

/// Files that tools write, with the names of registries.
const WRITTEN_BY_TOOLS: &[&str] = &["Cargo.lock", "package-lock.json", "uv.lock"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if WRITTEN_BY_TOOLS.contains(&name) {
            continue;
        }
        // Nearly no file has any of them, so few are read line by line.
        let mut all = MACHINE_PATHS.iter().chain(REGISTRY_HOSTS);
        if all.any(|place| file.text.contains(place)) {
            for (line, text) in file.text.lines().enumerate() {
                findings.extend(place(&file.path, line, text));
            }
        }
        findings.extend(shared_temporary(file));
    }
    findings
}

fn place(path: &str, line: usize, text: &str) -> Option<Finding> {
    if let Some(found) = MACHINE_PATHS.iter().find(|p| has_absolute(text, p)) {
        return Some(Finding::at(
            path,
            line,
            format!("`{found}` is a path of one machine"),
            "write it relative to the repository, or take it from the environment",
        ));
    }
    let found = REGISTRY_HOSTS.iter().find(|host| text.contains(**host))?;
    Some(Finding::at(
        path,
        line,
        format!("`{found}` is a package registry"),
        "name the package and let the user's own client find it",
    ))
}

/// Whether `path` begins a path in `text`. In `docs/work/` it continues another.
fn has_absolute(text: &str, path: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | ')' | '*');
    text.match_indices(path).any(|(at, _)| !text[..at].ends_with(goes_on))
}

/// Programs ask the system where temporary files go. Tests are exempt.
fn shared_temporary(file: &TextFile) -> Vec<Finding> {
    if file.is_test() {
        return Vec::new();
    }
    let found: Vec<usize> = match &file.rust {
        Some(rust) => {
            let lines = rust.uncommented().iter().enumerate();
            lines
                .filter(|(line, text)| {
                    !rust.in_test_module(*line) && has_absolute(text, SHARED_TEMPORARY)
                })
                .map(|(line, _)| line)
                .collect()
        }
        None if is_script(&file.path) => {
            let lines = file.text.lines().enumerate();
            lines.filter(|(_, t)| has_absolute(t, SHARED_TEMPORARY)).map(|(line, _)| line).collect()
        }
        None => Vec::new(),
    };
    found
        .into_iter()
        .map(|line| {
            Finding::at(
                &file.path,
                line,
                format!("`{SHARED_TEMPORARY}` is shared and may be elsewhere"),
                "use `std::env::temp_dir()` or `tempfile`, in a script `mktemp`",
            )
        })
        .collect()
}

fn is_script(path: &str) -> bool {
    path == "Makefile"
        || path.starts_with("scripts/")
        || [".sh", ".py"].iter().any(|end| path.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|f| f.line).collect()
    }

    #[test]
    fn paths_of_one_machine_are_refused() {
        let bad = format!(
            "see {}x\nsee docs{}x\nsee `{}.cargo`\n",
            MACHINE_PATHS[0], MACHINE_PATHS[0], MACHINE_PATHS[1]
        );
        assert_eq!(lines("docs/a.md", &bad), [1, 3]);
    }

    #[test]
    fn registries_are_refused_outside_of_lock_files() {
        let bad = format!("curl https://{}/x\n", REGISTRY_HOSTS[0]);
        assert_eq!(lines("scripts/setup", &bad), [1]);
        assert!(lines("Cargo.lock", &bad).is_empty());
    }

    #[test]
    fn the_shared_temporary_folder_is_for_tests() {
        let bad = format!(
            "// {0}x\nlet a = \"{0}x\";\n#[cfg(test)]\nmod tests {{\n    \"{0}y\"\n}}\n",
            SHARED_TEMPORARY
        );
        assert_eq!(lines("crates/a/src/a.rs", &bad), [2]);
        assert!(lines("crates/a/tests/a.rs", &bad).is_empty());
        assert_eq!(lines("scripts/test", &format!("cat {SHARED_TEMPORARY}x\n")), [1]);
    }
}
