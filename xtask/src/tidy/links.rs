//! Checks that every relative link and anchor of a Markdown page leads somewhere, that a page which code
//! or another file names exists, and that the index lists every page of `docs`.

use std::collections::{BTreeSet, HashMap};

use crate::tidy::finding::Finding;
use crate::tree::{TextFile, Tree};

/// The page from which a reader finds all others.
const INDEX: &str = "docs/README.md";

/// Endings of files that other files name by their path from the root: `docs/start.md`.
const NAMED: &[&str] = &[".md", ".json", ".svg"];

/// Folders whose files may name pages that do not exist: tests of these very checks, and raw results.
const NOT_READ: &[&str] = &["xtask/", "bench/runs/"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let paths = paths(tree);
    let anchors: HashMap<&str, Vec<String>> =
        pages(tree).map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    let mut findings = Vec::new();
    let mut from_index = BTreeSet::new();
    for page in pages(tree) {
        for (line, target) in links(&page.text) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match path {
                "" => page.path.clone(),
                path => resolve(&page.path, path),
            };
            if page.path == INDEX {
                from_index.insert(path.clone());
            }
            findings.extend(link(page, line, &target, &path, anchor, &paths, &anchors));
        }
    }
    findings.extend(unlisted(tree, &from_index));
    findings.extend(tree.files.iter().flat_map(|file| named(file, &paths)));
    findings
}

/// Reports one link that leads nowhere.
fn link(
    page: &TextFile,
    line: usize,
    target: &str,
    path: &str,
    anchor: &str,
    paths: &BTreeSet<String>,
    anchors: &HashMap<&str, Vec<String>>,
) -> Option<Finding> {
    if !paths.contains(path) {
        return Some(Finding::at(
            &page.path,
            line,
            format!("the link `{target}` leads to no file"),
            "links are relative to the page that they stand in; mend the path",
        ));
    }
    let of_page = anchors.get(path)?;
    if anchor.is_empty() || of_page.iter().any(|known| known == anchor) {
        return None;
    }
    Some(Finding::at(
        &page.path,
        line,
        format!("the link `{target}` names a heading that {path} does not have"),
        format!("its headings are {}", of_page.join(", ")),
    ))
}

/// Reports pages of `docs` that the index does not list.
fn unlisted(tree: &Tree, listed: &BTreeSet<String>) -> Vec<Finding> {
    let is_page = |path: &str| path.starts_with("docs/") && path != INDEX;
    pages(tree)
        .filter(|page| is_page(&page.path) && !listed.contains(&page.path))
        .map(|page| {
            Finding::in_file(
                &page.path,
                format!("{INDEX} does not list this page"),
                "add a line for it to the index, in the part for its readers",
            )
        })
        .collect()
}

/// Reports pages that a file names by their path from the root and that do not exist.
fn named(file: &TextFile, paths: &BTreeSet<String>) -> Vec<Finding> {
    if NOT_READ.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.');
    let mut findings = Vec::new();
    for (line, text) in file.text.lines().enumerate() {
        for word in text.split(|c| !is_part(c)) {
            let word = word.trim_end_matches('.');
            let is_named = word.starts_with("docs/") && NAMED.iter().any(|end| word.ends_with(end));
            if is_named && !paths.contains(word) {
                findings.push(Finding::at(
                    &file.path,
                    line,
                    format!("`{word}` does not exist"),
                    format!("{INDEX} lists the pages; name the one that is meant"),
                ));
            }
        }
    }
    findings
}

fn pages(tree: &Tree) -> impl Iterator<Item = &TextFile> {
    tree.files.iter().filter(|file| file.path.ends_with(".md"))
}

/// Files, and the folders that they are in.
fn paths(tree: &Tree) -> BTreeSet<String> {
    let mut paths = BTreeSet::from([".".to_owned()]);
    for file in &tree.files {
        let ends = file.path.match_indices('/').map(|(at, _)| at);
        paths.extend(ends.map(|end| file.path[..end].to_owned()));
        paths.insert(file.path.clone());
    }
    paths
}

/// The path from the root that `target` means in `page`.
fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// Lines outside of fenced blocks, with their numbers from 0.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    })
}

/// Targets of the relative links of a page, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (line, text) in prose(text) {
        let text = without_code(text);
        for (at, opening) in text.match_indices("](") {
            let rest = &text[at + opening.len()..];
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            let is_relative = !target.contains("://") && !target.starts_with("mailto:");
            if is_relative && !target.is_empty() {
                links.push((line, target.to_owned()));
            }
        }
    }
    links
}

/// A line without its spans of code, which may hold anything.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The anchors that headings of a page get, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len() && title.starts_with(' ')).then(|| title.trim())
    });
    headings
        .map(|title| {
            let kept =
                title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let anchor: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEXED: (&str, &str) = ("docs/README.md", "[a](a.md) [b](b/c.md)\n");

    fn whats(files: &[(&str, &str)]) -> Vec<String> {
        let findings = check(&Tree::of(files)).into_iter();
        findings.map(|f| format!("{}:{}: {}", f.path, f.line, f.fault)).collect()
    }

    #[test]
    fn links_to_files_folders_and_headings_are_followed() {
        let a = "# A page\n\n[c](b/c.md#two-words) [up](../src/x.rs) [here](#a-page) [f](b)\n";
        let c = "## Two words\n\n[a](../a.md) `[no](link.md)` [web](https://example.com/x)\n";
        let files = [INDEXED, ("docs/a.md", a), ("docs/b/c.md", c), ("src/x.rs", "")];
        assert!(whats(&files).is_empty(), "{:?}", whats(&files));
    }

    #[test]
    fn a_link_to_a_missing_file_or_heading_is_refused() {
        let a = "[gone](gone.md)\n```\n[not](read.md)\n```\n[c](b/c.md#three)\n";
        assert_eq!(
            whats(&[INDEXED, ("docs/a.md", a), ("docs/b/c.md", "# Two\n")]),
            [
                "docs/a.md:1: the link `gone.md` leads to no file",
                "docs/a.md:5: the link `b/c.md#three` names a heading that docs/b/c.md does not have",
            ]
        );
    }

    #[test]
    fn a_page_that_the_index_does_not_list_is_refused() {
        let files = [("docs/README.md", "# Index\n"), ("docs/a.md", "")];
        assert_eq!(whats(&files), ["docs/a.md:0: docs/README.md does not list this page"]);
    }

    #[test]
    fn a_page_that_code_names_must_exist() {
        let code = "// `docs/a.md` and docs/old.md.\n";
        assert_eq!(
            whats(&[("docs/README.md", "[a](a.md)"), ("docs/a.md", ""), ("src/x.rs", code)]),
            ["src/x.rs:1: `docs/old.md` does not exist"]
        );
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# `[[insight]]`\n## A & B: `c_d`!\n## Same\n## Same\n";
        assert_eq!(anchors(text), ["insight", "a--b-c_d", "same", "same-1"]);
    }
}
