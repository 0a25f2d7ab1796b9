//! The names of measurements while the records of a job are read in their order.

use std::collections::HashMap;

/// The most lists of names that are kept at once: those of 65,536 nodes with a list each. A further list is not kept, and
/// its measurements stay without names.
const MAX_LISTS: usize = 65_536;

/// The lists of names that hold at one place among the records of a job.
///
/// A list of names (a record of the kind `metrics`) is about measurements that come after it, in the order of arrival. A
/// measurement has the names of the last list before it that has its schema and is about its node or about the whole job.
/// So a later list of the same schema does not rename earlier measurements.
///
/// `T` is what a reader keeps of a list.
///
/// ```
/// use skopos_model::job::NamesInForce;
///
/// let mut names = NamesInForce::default();
/// names.set("node", "", "a");
/// names.set("node", "n01", "b");
/// assert_eq!(names.of("node", "n01"), Some(&"b"));
/// assert_eq!(names.of("node", "n02"), Some(&"a"));
/// names.set("node", "", "c");
/// assert_eq!(names.of("node", "n01"), Some(&"c"));
/// assert_eq!(names.of("task", "n01"), None);
/// ```
#[derive(Debug)]
pub struct NamesInForce<T> {
    by_schema: HashMap<String, OfSchema<T>>,
    lists: usize,
}

/// The lists of one schema.
#[derive(Debug)]
struct OfSchema<T> {
    /// The list of the whole job.
    of_job: Option<T>,
    /// The lists of nodes, of which each is later than that of the whole job.
    of_nodes: HashMap<String, T>,
}

impl<T> Default for NamesInForce<T> {
    fn default() -> Self {
        Self { by_schema: HashMap::new(), lists: 0 }
    }
}

impl<T> NamesInForce<T> {
    /// Notes a list, which is about a node, or about the whole job if `node` is empty.
    pub fn set(&mut self, schema: &str, node: &str, list: T) {
        let is_known = self.by_schema.get(schema).is_some_and(|all| match node {
            "" => all.of_job.is_some() || !all.of_nodes.is_empty(),
            node => all.of_nodes.contains_key(node),
        });
        if !is_known && self.lists >= MAX_LISTS {
            // An earlier list does not hold any more.
            self.by_schema.remove(schema).iter().for_each(|all| self.lists -= all.len());
            return;
        }
        let new = || OfSchema { of_job: None, of_nodes: HashMap::new() };
        let all = self.by_schema.entry(schema.to_owned()).or_insert_with(new);
        let before = all.len();
        if node.is_empty() {
            all.of_nodes.clear();
            all.of_job = Some(list);
        } else {
            all.of_nodes.insert(node.to_owned(), list);
        }
        self.lists = self.lists + all.len() - before;
    }

    /// Returns the list that holds for the next measurement of a node.
    pub fn of(&self, schema: &str, node: &str) -> Option<&T> {
        let all = self.by_schema.get(schema)?;
        all.of_nodes.get(node).or(all.of_job.as_ref())
    }
}

impl<T> OfSchema<T> {
    fn len(&self) -> usize {
        self.of_nodes.len() + usize::from(self.of_job.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_bounded_and_an_old_one_does_not_stay_in_force() {
        let mut names = NamesInForce::default();
        (0..MAX_LISTS).for_each(|at| names.set("node", &format!("n{at}"), 1));
        names.set("node", "n0", 2);
        assert_eq!((names.of("node", "n0"), names.lists), (Some(&2), MAX_LISTS));
        names.set("node", "more", 3);
        assert_eq!((names.of("node", "more"), names.of("node", "n0")), (None, None));
        names.set("node", "more", 4);
        assert_eq!((names.of("node", "more"), names.lists), (Some(&4), 1));
        names.set("node", "", 5);
        assert_eq!((names.of("node", "more"), names.lists), (Some(&5), 1));
    }
}
