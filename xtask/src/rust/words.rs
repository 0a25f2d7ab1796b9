//! Whole words in a line, and conditions of `cfg`.

use proc_macro2::TokenStream;

/// Byte offsets in `line` at which `word` stands as a whole word.
pub(crate) fn words<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !line[..at].ends_with(part_of_word) && !line[at + word.len()..].starts_with(part_of_word)
    })
}

/// Whether the condition of a `cfg` names `test` and does not negate anything.
pub(super) fn has_test(condition: TokenStream) -> bool {
    let text = condition.to_string();
    words(&text, "test").next().is_some() && words(&text, "not").next().is_none()
}
