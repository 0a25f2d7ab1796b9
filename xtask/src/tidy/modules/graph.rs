//! The modules of a crate and the arrows between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::names::{Module, Names, Target};
use crate::rust::{Outline, Scope};
use crate::tree::Tree;

/// The modules of one crate.
pub(super) struct Graph {
    /// The folder of the crate, with the root file if the crate has several.
    pub(super) krate: String,
    /// Path of each module with a file of its own, `crate` for the root.
    names: Vec<String>,
    /// By user and used.
    edges: BTreeMap<(usize, usize), Edge>,
}

/// One arrow, where it is first drawn.
#[derive(Clone)]
pub(super) struct Edge {
    from: String,
    to: String,
    pub(super) file: String,
    /// Counted from 0.
    pub(super) line: usize,
    path: String,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, file, line, path } = self;
        write!(f, "{from} -> {to}: {file}:{} ({path})", line + 1)
    }
}

/// A module with a file of its own.
struct Node<'a> {
    /// `a::b`, or `crate`.
    name: String,
    file: &'a str,
}

/// The modules of a crate while its files are read.
struct Crate<'a> {
    tree: &'a Tree,
    names: Names<'a>,
    nodes: Vec<Node<'a>>,
    /// The node of each module of `names`.
    owners: Vec<usize>,
}

type Edges = BTreeMap<(usize, usize), Edge>;

impl Graph {
    /// The graph of every library and binary.
    pub(super) fn all(tree: &Tree) -> Vec<Self> {
        let roots: Vec<(&str, &str)> =
            tree.rust_files().filter_map(|(file, _)| root(&file.path)).collect();
        let graph = |(krate, file): &(&str, &str)| {
            let alone = roots.iter().filter(|(other, _)| other == krate).count() == 1;
            let in_source = file.split_once("src/").map_or(*file, |(_, rest)| rest);
            let name = if alone { (*krate).to_owned() } else { format!("{krate}/{in_source}") };
            Self::of(tree, name, file)
        };
        roots.iter().map(graph).collect()
    }

    fn of(tree: &Tree, krate: String, file: &str) -> Self {
        let names = Names { modules: Vec::new() };
        let mut read = Crate { tree, names, nodes: Vec::new(), owners: Vec::new() };
        read.file(file, "crate", 0);
        let edges = read.edges();
        Self { krate, names: read.nodes.into_iter().map(|node| node.name).collect(), edges }
    }

    pub(super) fn name(&self, node: usize) -> &str {
        &self.names[node]
    }

    /// Arrows between `nodes`.
    pub(super) fn edges_within(&self, nodes: &BTreeSet<usize>) -> Vec<Edge> {
        let inside = |(from, to): &(usize, usize)| nodes.contains(from) && nodes.contains(to);
        self.edges.iter().filter(|(ends, _)| inside(ends)).map(|(_, edge)| edge.clone()).collect()
    }

    /// Sets of more than one node in which each leads to every other.
    pub(super) fn circles(&self) -> Vec<BTreeSet<usize>> {
        let forward: Vec<BTreeSet<usize>> =
            (0..self.names.len()).map(|node| self.reachable(node)).collect();
        let mut circles: Vec<BTreeSet<usize>> = Vec::new();
        for (node, reached) in forward.iter().enumerate() {
            if circles.iter().any(|circle| circle.contains(&node)) {
                continue;
            }
            let back = reached.iter().copied().filter(|other| forward[*other].contains(&node));
            let circle: BTreeSet<usize> = back.chain([node]).collect();
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles
    }

    fn reachable(&self, node: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = vec![node];
        while let Some(user) = open.pop() {
            for (_, used) in self.edges.range((user, 0)..(user + 1, 0)).map(|(ends, _)| ends) {
                if found.insert(*used) {
                    open.push(*used);
                }
            }
        }
        found
    }
}

/// The crate and its file if `path` is the root of a library or a binary.
fn root(path: &str) -> Option<(&str, &str)> {
    let (krate, in_source) = match path.strip_prefix("crates/") {
        Some(rest) => rest.split_once("/src/")?,
        None => ("xtask", path.strip_prefix("xtask/src/")?),
    };
    let in_bin = in_source.strip_prefix("bin/").is_some_and(|name| !name.contains('/'));
    (matches!(in_source, "lib.rs" | "main.rs") || in_bin).then_some((krate, path))
}

impl<'a> Crate<'a> {
    /// Reads the file of a module and those of the modules below it. Returns the module's place.
    fn file(&mut self, file: &str, name: &str, parent: usize) -> Option<usize> {
        let file = self.tree.file(file)?;
        let outline: &'a Outline = file.rust.as_ref()?.outline();
        let node = self.nodes.len();
        self.nodes.push(Node { name: name.to_owned(), file: &file.path });
        let top = self.names.modules.len();
        for scope in &outline.scopes {
            let place = self.add(scope, node, top, parent);
            for (child, path) in &scope.files {
                let mut parts = vec![name.to_owned()];
                parts.extend(scope.path.iter().cloned());
                parts.push(child.clone());
                let name = parts[usize::from(node == 0)..].join("::");
                if let Some(found) = self.find(&file.path, node == 0, scope, child, path.as_deref())
                    && let Some(module) = self.file(&found, &name, place)
                {
                    self.names.modules[place].children.insert(child.clone(), module);
                }
            }
        }
        Some(top)
    }

    /// Adds a module below the one that the path of its scope says; `top` is that of the file.
    fn add(&mut self, scope: &'a Scope, node: usize, top: usize, parent: usize) -> usize {
        let place = self.names.modules.len();
        let mut above = parent;
        if let Some((last, around)) = scope.path.split_last() {
            let inside = |at: usize, name| self.names.modules[at].children.get(name).copied();
            above = around.iter().try_fold(top, inside).unwrap_or(top);
            self.names.modules[above].children.insert(last.clone(), place);
        }
        self.names.modules.push(Module { parent: above, children: BTreeMap::new(), scope });
        self.owners.push(node);
        place
    }

    /// The file of a module that `file` declares.
    fn find(
        &self,
        file: &str,
        is_root: bool,
        scope: &Scope,
        name: &str,
        path: Option<&str>,
    ) -> Option<String> {
        let (folder, stem) = file.strip_suffix(".rs")?.rsplit_once('/')?;
        if let Some(path) = path {
            return Some(format!("{folder}/{path}")).filter(|file| self.tree.file(file).is_some());
        }
        let own = (!is_root && stem != "mod").then(|| stem.to_owned());
        let mut folder = folder.to_owned();
        for part in own.iter().chain(&scope.path) {
            folder = format!("{folder}/{part}");
        }
        [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]
            .into_iter()
            .find(|file| self.tree.file(file).is_some())
    }

    /// Every arrow between two files.
    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (at, module) in self.names.modules.iter().enumerate() {
            for import in &module.scope.imports {
                if let Some(target) = self.names.resolve(at, &import.path)
                    && !self.is_by_path(at, &import.name, target)
                    && !(import.public && self.is_below(target.module(), at))
                {
                    let star = if import.name == "*" { "::*" } else { "" };
                    let path = import.path.join("::") + star;
                    self.draw(&mut edges, at, target, import.line, path);
                }
            }
            for (path, line) in &module.scope.paths {
                // A name alone is a local variable, or an import, which has its own arrow. Only a
                // re-export has none, and needs one when its own module uses it.
                let alone = path.len() == 1;
                if alone && !self.names.import(at, &path[0]).is_some_and(|import| import.public) {
                    continue;
                }
                if let Some(target) = self.names.resolve(at, path) {
                    self.draw(&mut edges, at, target, *line, path.join("::"));
                }
            }
        }
        edges
    }

    /// Whether the import brings a module, whose items then count where paths name them.
    fn is_by_path(&self, at: usize, name: &str, target: Target) -> bool {
        let mut paths = self.names.modules[at].scope.paths.keys();
        matches!(target, Target::Module(_)) && paths.any(|path| path.len() > 1 && path[0] == name)
    }

    fn is_below(&self, below: usize, above: usize) -> bool {
        let name = |at: usize| self.nodes[self.owners[at]].name.as_str();
        let inner = name(below).strip_prefix(name(above));
        name(above) == "crate" || inner.is_some_and(|rest| rest.starts_with("::"))
    }

    fn draw(&self, edges: &mut Edges, at: usize, target: Target, line: usize, path: String) {
        let (from, to) = (self.owners[at], self.owners[target.module()]);
        if from == to {
            return;
        }
        let (user, used) = (&self.nodes[from], &self.nodes[to]);
        let edge = Edge {
            from: user.name.clone(),
            to: used.name.clone(),
            file: user.file.to_owned(),
            line,
            path,
        };
        let first = edges.entry((from, to)).or_insert_with(|| edge.clone());
        if edge.line < first.line {
            *first = edge;
        }
    }
}
