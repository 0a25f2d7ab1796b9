//! Lists of nodes as Slurm abbreviates them: `n[01-03,7],login` and `rack[0-1]n[0-3]`.

use std::collections::BTreeSet;

/// Expands a list to at most `most` nodes. Returns the nodes, and true if there are more; `None` if the text is not a list.
pub(super) fn expand(text: &str, most: usize) -> Option<(BTreeSet<String>, bool)> {
    let mut nodes = BTreeSet::new();
    for item in split(text)? {
        if !expand_item(String::new(), item, most, &mut nodes)? {
            return Some((nodes, true));
        }
    }
    Some((nodes, false))
}

/// Splits at the commas that are not within brackets.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut items, mut is_inside, mut start) = (Vec::new(), false, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if !is_inside => is_inside = true,
            ']' if is_inside => is_inside = false,
            '[' | ']' => return None,
            ',' if !is_inside => {
                items.push(text.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(text.get(start..)?);
    (!is_inside && items.iter().all(|item| !item.is_empty())).then_some(items)
}

/// Adds the nodes of `prefix` and `rest`; `Some(false)` if there are too many.
fn expand_item(
    prefix: String,
    rest: &str,
    most: usize,
    nodes: &mut BTreeSet<String>,
) -> Option<bool> {
    let Some((before, after)) = rest.split_once('[') else {
        if nodes.len() >= most {
            return Some(false);
        }
        nodes.insert(prefix + rest);
        return Some(true);
    };
    let (ranges, after) = after.split_once(']')?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(first) || !is_number(last) {
            return None;
        }
        let (from, to): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let width = first.len();
        for number in from..=to {
            let prefix = format!("{prefix}{before}{number:0width$}");
            if !expand_item(prefix, after, most, nodes)? {
                return Some(false);
            }
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded() {
        let check = |text: &str, expected: &[&str]| {
            let expected = expected.iter().map(|node| (*node).to_owned()).collect();
            assert_eq!(expand(text, 100), Some((expected, false)), "{text}");
        };
        check("vm", &["vm"]);
        check("n[01-03,7],login", &["login", "n01", "n02", "n03", "n7"]);
        check("n[9-11]-ib", &["n10-ib", "n11-ib", "n9-ib"]);
        check("r[0-1]n[2-3]", &["r0n2", "r0n3", "r1n2", "r1n3"]);
        check("n[3-2],a", &["a"]);
    }

    #[test]
    fn other_texts_are_not_lists_and_long_ones_end() {
        for text in [
            "",
            "a,",
            "n[1",
            "n1]",
            "n[a-b]",
            "n[1-]",
            "n[[1]]",
            "n[-1]",
            "n[1-99999999999999999999]",
        ] {
            assert_eq!(expand(text, 100), None, "{text}");
        }
        let (nodes, is_more) = expand("n[0-18446744073709551615]", 3).expect("a list");
        assert_eq!((nodes.len(), is_more), (3, true));
        assert_eq!(
            expand("n[0-2]", 3).map(|(nodes, is_more)| (nodes.len(), is_more)),
            Some((3, false))
        );
    }
}
