//! Callpaths and other names of a whole trace: every process has its own numbers, and an analysis has one number for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Serialize;

/// Number of a callpath in one [`Callpaths`].
pub type PathId = u32;

/// The callpath of records whose node is not defined, and of paths beyond [`MAX_PATHS`].
pub const OTHER: PathId = 0;

/// The most callpaths of an analysis: 64 Ki of them with their histograms fit into 1 GiB. A service with more puts
/// arguments into the names of its RPCs; the rest is one callpath, and its definitions are counted.
pub const MAX_PATHS: usize = 1 << 16;

/// The deepest callpath that is spelled out. A longer one is a recursion, and its text would be unreadable.
const MAX_DEPTH: usize = 64;

/// A callpath: the name of an RPC and the path of its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Callpath {
    /// The chained hash.
    pub hash: u64,
    /// The hash of the caller's callpath; 0 without a caller.
    pub parent_hash: u64,
    /// The name of the RPC.
    pub name: String,
}

/// The callpaths of all processes.
#[derive(Debug)]
pub struct Callpaths {
    paths: Vec<Callpath>,
    by_hash: HashMap<u64, PathId>,
    /// Paths whose hash belongs to another path too.
    colliding: HashMap<Callpath, PathId>,
    refused: u64,
}

impl Default for Callpaths {
    fn default() -> Self {
        let other = Callpath { hash: 0, parent_hash: 0, name: "(other)".to_owned() };
        Self { paths: vec![other], by_hash: HashMap::new(), colliding: HashMap::new(), refused: 0 }
    }
}

impl Callpaths {
    /// Returns the number of a callpath, the same for the same hash, parent and name. A second path with the hash of
    /// another one gets a number of its own and is counted as a collision.
    pub fn intern(&mut self, hash: u64, parent_hash: u64, name: &str) -> PathId {
        if let Some(known) = self.by_hash.get(&hash) {
            let path = &self.paths[*known as usize];
            if path.parent_hash == parent_hash && path.name == name {
                return *known;
            }
        }
        let path = Callpath { hash, parent_hash, name: name.to_owned() };
        if let Some(known) = self.colliding.get(&path) {
            return *known;
        }
        if self.paths.len() >= MAX_PATHS {
            self.refused += 1;
            return OTHER;
        }
        let id = self.paths.len() as PathId;
        self.paths.push(path.clone());
        match self.by_hash.entry(hash) {
            Entry::Occupied(_) => {
                self.colliding.insert(path, id);
            }
            Entry::Vacant(place) => {
                place.insert(id);
            }
        }
        id
    }

    /// The callpath with this number.
    pub fn get(&self, id: PathId) -> &Callpath {
        self.paths.get(id as usize).unwrap_or(&self.paths[0])
    }

    /// Returns true if `path` is that of a call that handlers of `above` make.
    pub fn is_below(&self, path: PathId, above: PathId) -> bool {
        path != above && above != OTHER && self.get(path).parent_hash == self.get(above).hash
    }

    /// The number of the first callpath with this hash.
    pub fn by_hash(&self, hash: u64) -> Option<PathId> {
        self.by_hash.get(&hash).copied()
    }

    /// The names along the callpath, outermost first. A caller that no process defined is `?`.
    pub fn names(&self, id: PathId) -> Vec<&str> {
        let mut names = vec![self.get(id).name.as_str()];
        let mut parent = self.get(id).parent_hash;
        while parent != 0 && names.len() < MAX_DEPTH {
            match self.by_hash(parent) {
                Some(caller) => {
                    names.push(&self.get(caller).name);
                    parent = self.get(caller).parent_hash;
                }
                None => {
                    names.push("?");
                    parent = 0;
                }
            }
        }
        if parent != 0 {
            names.push("...");
        }
        names.reverse();
        names
    }

    /// The callpath as text: `mobject_read_op → sdskv_list_keyvals_rpc`.
    pub fn text(&self, id: PathId) -> String {
        self.names(id).join(" → ")
    }

    /// Number of callpaths, with the one for all others.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns true if no process defined a callpath.
    pub fn is_empty(&self) -> bool {
        self.paths.len() == 1
    }

    /// The hashes that belong to more than one callpath, with the names of the paths.
    pub fn collisions(&self) -> Vec<Collision> {
        let mut found: Vec<Collision> = Vec::new();
        for path in self.colliding.keys() {
            let first = self.by_hash(path.hash).map(|id| self.get(id).name.clone());
            match found.iter_mut().find(|c| c.hash == path.hash) {
                Some(collision) => collision.names.push(path.name.clone()),
                None => found.push(Collision {
                    hash: path.hash,
                    names: first.into_iter().chain([path.name.clone()]).collect(),
                }),
            }
        }
        found.iter_mut().for_each(|collision| collision.names.sort());
        found.sort_by_key(|collision| collision.hash);
        found
    }

    /// Definitions beyond [`MAX_PATHS`], whose records count for `(other)`.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// Callpaths that share a hash. Their records in other processes cannot be told apart by the hash alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Collision {
    /// The shared hash.
    pub hash: u64,
    /// The names of the last RPC of each path.
    pub names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callpaths_of_two_processes_join_by_hash_and_collisions_are_seen() {
        let mut paths = Callpaths::default();
        let read = paths.intern(7, 0, "read");
        let list = paths.intern(8, 7, "list");
        assert_eq!(paths.intern(7, 0, "read"), read);
        assert_eq!(paths.text(list), "read → list");
        let stranger = paths.intern(9, 1000, "scan");
        assert_eq!(paths.text(stranger), "? → scan");
        let other = paths.intern(7, 0, "write");
        assert_ne!(other, read);
        assert_eq!(paths.intern(7, 0, "write"), other);
        let names = vec!["read".to_owned(), "write".to_owned()];
        assert_eq!(paths.collisions(), [Collision { hash: 7, names }]);
    }

    #[test]
    fn a_recursion_of_hashes_ends() {
        let mut paths = Callpaths::default();
        let a = paths.intern(1, 2, "a");
        paths.intern(2, 1, "b");
        assert_eq!(paths.names(a).len(), MAX_DEPTH + 1);
    }

    #[test]
    fn a_million_names_are_bounded_and_counted() {
        let mut paths = Callpaths::default();
        for hash in 1..=70_000 {
            paths.intern(hash, 0, "x");
        }
        assert_eq!(paths.len(), MAX_PATHS);
        assert_eq!(paths.refused(), 70_000 - (MAX_PATHS as u64 - 1));
    }
}
