//! Follows a path to the module that defines its item, as the compiler does.

use std::collections::BTreeMap;

use crate::rust::{Import, Scope};

/// Most imports that one path leads through; a longer chain goes round in a circle of its own.
const MAX_STEPS: usize = 32;

/// All modules of one crate. The first is its root.
pub(super) struct Names<'a> {
    pub(super) modules: Vec<Module<'a>>,
}

/// One module, with a file of its own or inline.
pub(super) struct Module<'a> {
    pub(super) parent: usize,
    pub(super) children: BTreeMap<String, usize>,
    pub(super) scope: &'a Scope,
}

/// The end of a path inside the crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The module itself.
    Module(usize),
    /// An item that this module defines.
    Item(usize),
}

impl Target {
    pub(super) fn module(self) -> usize {
        match self {
            Self::Module(at) | Self::Item(at) => at,
        }
    }
}

impl Names<'_> {
    /// Follows `path` from module `from`; nothing if it leads out of the crate.
    pub(super) fn resolve(&self, from: usize, path: &[String]) -> Option<Target> {
        self.resolve_within(from, path, MAX_STEPS)
    }

    /// The import by which `name` is known in module `at`.
    pub(super) fn import(&self, at: usize, name: &str) -> Option<&Import> {
        self.modules[at].scope.imports.iter().find(|import| import.name == name)
    }

    fn resolve_within(&self, from: usize, path: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => self.modules[from].parent,
            name => {
                let module = &self.modules[from];
                if let Some(child) = module.children.get(name) {
                    return self.walk(*child, rest, steps);
                }
                if module.scope.items.contains(name) {
                    return Some(Target::Item(from));
                }
                return self.imported(from, name, rest, steps);
            }
        };
        self.walk(start, rest, steps)
    }

    /// Follows `path` down from module `at`.
    fn walk(&self, at: usize, path: &[String], steps: usize) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else { return Some(Target::Module(at)) };
        let module = &self.modules[at];
        match name.as_str() {
            "self" => return self.walk(at, rest, steps),
            "super" => return self.walk(module.parent, rest, steps),
            _ => {}
        }
        let is_item = module.scope.items.contains(name);
        match module.children.get(name) {
            Some(child) if !(rest.is_empty() && is_item) => self.walk(*child, rest, steps),
            _ if is_item => Some(Target::Item(at)),
            _ if self.import(at, name).is_some() => self.imported(at, name, rest, steps),
            // If no glob brings it, a macro or the build script writes it here.
            _ => self.imported(at, name, rest, steps).or(Some(Target::Item(at))),
        }
    }

    /// Follows `name` through an import of module `at`, then the rest of the path.
    fn imported(&self, at: usize, name: &str, rest: &[String], steps: usize) -> Option<Target> {
        let steps = steps.checked_sub(1)?;
        if let Some(import) = self.import(at, name) {
            // `use serde;` names a crate.
            if import.path.len() == 1 && import.path[0] == name {
                return None;
            }
            return match self.resolve_within(at, &import.path, steps)? {
                Target::Module(module) => self.walk(module, rest, steps),
                item => Some(item),
            };
        }
        let globs = self.modules[at].scope.imports.iter().filter(|import| import.name == "*");
        for glob in globs {
            let Some(Target::Module(module)) = self.resolve_within(at, &glob.path, steps) else {
                continue;
            };
            if module != at && self.has(module, name) {
                let mut path = vec![name.to_owned()];
                path.extend_from_slice(rest);
                return self.walk(module, &path, steps);
            }
        }
        None
    }

    fn has(&self, at: usize, name: &str) -> bool {
        let module = &self.modules[at];
        module.scope.items.contains(name)
            || module.children.contains_key(name)
            || self.import(at, name).is_some_and(|import| import.public)
    }
}
