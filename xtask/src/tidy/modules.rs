//! Arrows between the modules of a crate make no circle, unless `circles.toml` lists it with a reason.
//!
//! A node is a module with a file of its own; an inline module counts as part of its file. An arrow
//! leads from the module that names an item to the module that defines it, through re-exports. A
//! parent's `pub use` of an item below it is not an arrow, and neither is anything under
//! `#[cfg(test)]`.

mod graph;
mod names;

use std::collections::BTreeSet;

use serde::Deserialize;

use self::graph::{Edge, Graph};
use crate::tidy::finding::Finding;
use crate::tree::Tree;

const LIST: &str = "xtask/src/tidy/circles.toml";

/// Most steps that a finding shows; `cargo xtask circles` prints all.
const MAX_STEPS: usize = 12;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    circle: Vec<Listed>,
}

/// A circle that may stay.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    /// `shm`, or `skopos/main.rs` where a crate has several roots.
    #[serde(rename = "crate")]
    krate: String,
    /// The modules of one circle; without them the entry stands for every circle of the crate.
    modules: Option<BTreeSet<String>>,
    reason: String,
}

impl Listed {
    fn is(&self, circle: &Circle) -> bool {
        let same = self.modules.as_ref().is_none_or(|modules| *modules == circle.modules);
        self.krate == circle.krate && same
    }
}

/// Modules of one crate, each of which leads to every other.
struct Circle {
    krate: String,
    modules: BTreeSet<String>,
    /// One for each pair of modules, in the order of their names.
    edges: Vec<Edge>,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let text = tree.file(LIST).map_or("", |file| &file.text);
    let list: List = match toml::from_str(text) {
        Ok(list) => list,
        Err(e) => {
            let mend = "a circle has `crate`, `modules` and `reason`";
            return vec![Finding::in_file(LIST, e.message(), mend)];
        }
    };
    let circles = circles(tree);
    let new = circles.iter().filter(|circle| !list.circle.iter().any(|l| l.is(circle)));
    let mut findings: Vec<Finding> = new.map(refused).collect();
    for listed in &list.circle {
        findings.extend(stale(listed, circles.iter().any(|circle| listed.is(circle))));
    }
    findings
}

fn refused(circle: &Circle) -> Finding {
    let names: Vec<&str> = circle.modules.iter().map(String::as_str).collect();
    let mut fault = format!("modules of `{}` form a circle: {}", circle.krate, names.join(", "));
    for edge in circle.edges.iter().take(MAX_STEPS) {
        fault.push_str(&format!("\n  {edge}"));
    }
    if circle.edges.len() > MAX_STEPS {
        let more = circle.edges.len() - MAX_STEPS;
        fault.push_str(&format!("\n  and {more} more: `cargo xtask circles` prints them"));
    }
    let first = circle.edges.first();
    Finding {
        path: first.map_or(LIST.to_owned(), |edge| edge.file.clone()),
        line: first.map_or(0, |edge| edge.line + 1),
        fault,
        mend: format!(
            "move the shared item below both, into a module that imports neither; if the circle \
             must stay, list it with its reason in {LIST}"
        ),
    }
}

fn stale(listed: &Listed, exists: bool) -> Option<Finding> {
    let circle = match &listed.modules {
        Some(modules) => {
            let names: Vec<&str> = modules.iter().map(String::as_str).collect();
            format!("the circle of `{}` ({})", listed.krate, names.join(", "))
        }
        None => format!("any circle of `{}`", listed.krate),
    };
    if !exists {
        let fault = format!("{circle} does not exist any more");
        return Some(Finding::in_file(LIST, fault, "delete it from the list"));
    }
    listed.reason.trim().is_empty().then(|| {
        let mend = "say in one sentence why the modules need each other";
        Finding::in_file(LIST, format!("{circle} has no reason"), mend)
    })
}

/// All circles of all crates, listed or not.
fn circles(tree: &Tree) -> Vec<Circle> {
    let mut found = Vec::new();
    for graph in Graph::all(tree) {
        for modules in graph.circles() {
            let edges = graph.edges_within(&modules);
            let modules = modules.iter().map(|at| graph.name(*at).to_owned()).collect();
            found.push(Circle { krate: graph.krate.clone(), modules, edges });
        }
    }
    found
}

/// Every circle with all its arrows, in the form of an entry of the list.
pub(crate) fn describe(tree: &Tree) -> String {
    let circles = circles(tree);
    let mut text = format!("# {} circles\n", circles.len());
    for circle in circles {
        let names: Vec<String> = circle.modules.iter().map(|name| format!("{name:?}")).collect();
        text.push_str(&format!("\n[[circle]]\ncrate = {:?}\n", circle.krate));
        text.push_str(&format!("modules = [{}]\nreason = \"\"\n", names.join(", ")));
        for edge in circle.edges {
            text.push_str(&format!("# {edge}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|f| f.fault).collect()
    }

    const ROOT: (&str, &str) = ("crates/x/src/lib.rs", "mod a;\nmod b;\n");

    #[test]
    fn a_circle_of_two_modules_is_refused() {
        let a = ("crates/x/src/a.rs", "use crate::b::B;\npub(crate) const A: u8 = 1;\n");
        let b = ("crates/x/src/b.rs", "pub(crate) struct B;\nfn f() { crate::a::A; }\n");
        assert_eq!(
            faults(&[ROOT, a, b]),
            ["modules of `x` form a circle: a, b\n  a -> b: crates/x/src/a.rs:1 (crate::b::B)\n  \
              b -> a: crates/x/src/b.rs:2 (crate::a::A)"]
        );
        let only_tests =
            "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\npub(crate) struct B;\n";
        assert!(faults(&[ROOT, a, ("crates/x/src/b.rs", only_tests)]).is_empty());
    }

    #[test]
    fn a_listed_circle_passes_while_it_exists() {
        let a = ("crates/x/src/a.rs", "use crate::b::B;\npub struct A;\n");
        let b = ("crates/x/src/b.rs", "use crate::a::A;\npub struct B;\n");
        let list =
            "[[circle]]\ncrate = \"x\"\nmodules = [\"a\", \"b\"]\nreason = \"they are one\"\n";
        assert!(faults(&[ROOT, a, b, (LIST, list)]).is_empty());
        let without = list.replace("they are one", "");
        assert_eq!(
            faults(&[ROOT, a, b, (LIST, &without)]),
            ["the circle of `x` (a, b) has no reason"]
        );
        let mended = ("crates/x/src/b.rs", "pub struct B;\n");
        assert_eq!(
            faults(&[ROOT, a, mended, (LIST, list)]),
            ["the circle of `x` (a, b) does not exist any more"]
        );
    }

    #[test]
    fn an_entry_without_modules_stands_for_its_crate() {
        let a = ("crates/x/src/a.rs", "use crate::b::B;\npub struct A;\n");
        let b = ("crates/x/src/b.rs", "use crate::a::A;\npub struct B;\n");
        let list = "[[circle]]\ncrate = \"x\"\nreason = \"to be mended\"\n";
        assert!(faults(&[ROOT, a, b, (LIST, list)]).is_empty());
        assert_eq!(faults(&[ROOT, a, (LIST, list)]), ["any circle of `x` does not exist any more"]);
    }

    /// The modules of each circle of crate `x`.
    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> =
            files.iter().map(|(path, text)| (format!("crates/x/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let found = circles(&Tree::of(&files));
        let names = |c: Circle| c.modules.into_iter().collect::<Vec<_>>().join(" ");
        found.into_iter().map(names).collect()
    }

    #[test]
    fn an_item_belongs_to_the_module_that_defines_it() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use self::b::B;\n");
        let through_root = ("b.rs", "use crate::A;\npub struct B;\n");
        assert_eq!(circles_of(&[lib, ("a.rs", "pub struct A;\n"), through_root]), [""; 0]);
        let both = ("a.rs", "pub struct A(super::B);\n");
        assert_eq!(circles_of(&[lib, both, through_root]), ["a b"]);
    }

    #[test]
    fn a_child_that_uses_its_parent_closes_a_circle_if_the_parent_uses_it() {
        let child = ("a/c.rs", "use super::LIMIT;\npub struct C;\n");
        let lib = ("lib.rs", "mod a;\n");
        for (parent, expected) in [
            ("mod c;\npub use c::C;\npub const LIMIT: u8 = 1;\n", vec![]),
            ("mod c;\nuse c::C;\npub const LIMIT: u8 = 1;\n", vec!["a a::c"]),
            ("mod c;\npub const LIMIT: u8 = 1;\nfn f() { c::C; }\n", vec!["a a::c"]),
            ("mod c;\npub use c::C;\npub const LIMIT: u8 = 1;\nfn f(c: C) {}\n", vec!["a a::c"]),
            ("mod c;\npub const LIMIT: u8 = 1;\nfn f() { vec![c::C] }\n", vec!["a a::c"]),
        ] {
            assert_eq!(circles_of(&[lib, ("a/mod.rs", parent), child]), expected, "{parent}");
            assert_eq!(circles_of(&[lib, ("a.rs", parent), child]), expected, "{parent}");
        }
    }

    #[test]
    fn modules_that_are_imported_whole_count_by_their_paths() {
        let lib = ("lib.rs", "mod a;\nmod b;\n");
        let below = ("b/c.rs", "pub fn f() {}\n");
        let parent = ("b.rs", "pub mod c;\nuse crate::a::A;\n");
        let user = ("a.rs", "use crate::b;\npub struct A;\nfn g() { b::c::f() }\n");
        assert_eq!(circles_of(&[lib, below, parent, user]), [""; 0]);
        let own = ("b.rs", "pub mod c;\nuse crate::a::A;\npub fn f() {}\n");
        let user = ("a.rs", "use crate::b;\npub struct A;\nfn g() { b::f() }\n");
        assert_eq!(circles_of(&[lib, below, own, user]), ["a b"]);
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        let lib = ("lib.rs", "mod a;\nmod b;\n");
        let a = ("a.rs", "pub mod inner {\n    use super::super::b::B;\n    pub struct A;\n}\n");
        let b = ("b.rs", "use crate::a::inner::A;\npub struct B;\n");
        assert_eq!(circles_of(&[lib, a, b]), ["a b"]);
    }
}
