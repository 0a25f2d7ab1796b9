use std::collections::{HashMap, HashSet};

use super::walk::Index;

/// Returns the names of rows, each of its own: names that several rows have get the index of the row. So the name of a row
/// does not depend on the order of the rows, and no two rows share a counter or a fact.
pub(super) fn distinct<'a>(rows: impl Iterator<Item = (&'a Index, String)>) -> Vec<String> {
    let mut rows: Vec<(&Index, String)> = rows.collect();
    // Names that got an index differ from each other, so each further round needs a row that has such a name from the
    // device. A name of the device has at most 255 characters and an index takes two, hence 128 rounds at most.
    loop {
        let mut uses: HashMap<&str, usize> = HashMap::new();
        rows.iter().for_each(|(_, name)| *uses.entry(name).or_default() += 1);
        let shared: HashSet<String> = uses
            .into_iter()
            .filter(|(_, count)| *count > 1)
            .map(|(name, _)| name.to_owned())
            .collect();
        if shared.is_empty() {
            return rows.into_iter().map(|(_, name)| name).collect();
        }
        for (index, name) in rows.iter_mut().filter(|(_, name)| shared.contains(name)) {
            let parts: Vec<String> = index.iter().map(u32::to_string).collect();
            *name += "~";
            *name += &parts.join(".");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &[(&[u32], &str)], expected: &[&str]) {
        let rows: Vec<(Index, &str)> =
            rows.iter().map(|(row, name)| (row.to_vec(), *name)).collect();
        let names = distinct(rows.iter().map(|(row, name)| (row, (*name).to_owned())));
        assert_eq!(names, expected);
    }

    #[test]
    fn each_row_has_a_name_of_its_own_in_any_order() {
        check(&[(&[1], "a"), (&[2], "b")], &["a", "b"]);
        check(&[(&[1], "a"), (&[2], "a"), (&[3], "b")], &["a~1", "a~2", "b"]);
        check(&[(&[2], "a"), (&[3], "b"), (&[1], "a")], &["a~2", "b", "a~1"]);
        // A device that has such a name itself.
        check(&[(&[1], "a"), (&[2], "a"), (&[3], "a~2")], &["a~1", "a~2~2", "a~2~3"]);
        check(&[(&[1, 1], ""), (&[1, 2], "")], &["~1.1", "~1.2"]);
        check(&[], &[]);
    }
}
