//! Patterns of the topics for which a condition can be true: more topics than it selects, never fewer.

use skopos_model::TopicPattern;

use crate::expression::Condition;
use crate::like::Piece;
use crate::limits::MAX_PATTERNS;
use crate::program::{Test, TextColumn, TextTest};

/// Returns patterns of the topics that `condition` selects; only `**` if nothing narrower is known, and an
/// empty list if it selects nothing.
pub(crate) fn of(condition: &Condition, texts: &[TextTest]) -> Vec<TopicPattern> {
    let mut found = narrow(condition, texts).unwrap_or_else(|| vec![EVERYTHING.to_owned()]);
    found.sort_unstable();
    found.dedup();
    let patterns: Option<Vec<_>> = found.iter().map(|text| TopicPattern::new(text).ok()).collect();
    match patterns {
        Some(patterns) if patterns.len() <= MAX_PATTERNS => patterns,
        // Too many, too long or too deep: `**` is always correct.
        _ => TopicPattern::new(EVERYTHING).into_iter().collect(),
    }
}

const EVERYTHING: &str = "**";

fn narrow(condition: &Condition, texts: &[TextTest]) -> Option<Vec<String>> {
    match condition {
        Condition::Always(false) => Some(Vec::new()),
        Condition::Text(test) => of_test(&texts[*test]),
        Condition::All(parts) => {
            // Each part alone is correct; the one with the longest literal text excludes most topics.
            parts.iter().filter_map(|part| narrow(part, texts)).max_by_key(|patterns| {
                patterns.iter().map(|p| literal_bytes(p)).min().unwrap_or(usize::MAX)
            })
        }
        Condition::Any(parts) => {
            let each: Option<Vec<_>> = parts.iter().map(|part| narrow(part, texts)).collect();
            each.map(|lists| lists.concat())
        }
        Condition::Always(true)
        | Condition::Compare(..)
        | Condition::IsNull(_)
        | Condition::Not(_) => None,
    }
}

fn literal_bytes(pattern: &str) -> usize {
    pattern.bytes().filter(|byte| *byte != b'*').count()
}

fn of_test(test: &TextTest) -> Option<Vec<String>> {
    let below = |node: String| format!("{node}/{EVERYTHING}");
    match (test.column, &test.test) {
        (TextColumn::Topic, Test::In(list)) => Some(list.iter().map(|t| t.to_string()).collect()),
        (TextColumn::Topic, Test::Like(like)) => Some(vec![of_like(like.pieces())]),
        (TextColumn::Node, Test::In(list)) => {
            Some(list.iter().map(|node| below(node.to_string())).collect())
        }
        (TextColumn::Node, Test::Like(like)) => Some(vec![below(glob(like.pieces()))]),
        (TextColumn::Unit | TextColumn::Kind, _) => None,
    }
}

/// Turns a pattern of `LIKE` into a topic pattern. `%` may stand for slashes and `*` may not, so a segment
/// with `%` becomes up to two: its fixed beginning or end, and any number of segments beside it.
fn of_like(pieces: &[Piece]) -> String {
    let mut segments: Vec<String> = Vec::new();
    for segment in pieces.split(|piece| *piece == Piece::Character('/')) {
        let first = segment.iter().position(|piece| *piece == Piece::Any);
        let last = segment.iter().rposition(|piece| *piece == Piece::Any);
        let (Some(first), Some(last)) = (first, last) else {
            segments.push(glob(segment));
            continue;
        };
        let (before, after) = (&segment[..first], &segment[last + 1..]);
        if !before.is_empty() && after.is_empty() {
            segments.push(glob(&segment[..=first]));
        }
        segments.push(EVERYTHING.to_owned());
        if before.is_empty() && !after.is_empty() {
            segments.push(glob(&segment[last..]));
        }
    }
    segments.dedup_by(|a, b| a == EVERYTHING && b == EVERYTHING);
    segments.join("/")
}

/// Turns one segment into a glob: `*` for each wildcard.
fn glob(pieces: &[Piece]) -> String {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Character(character) => text.push(*character),
            Piece::One | Piece::Any if text.ends_with('*') => {}
            Piece::One | Piece::Any => text.push('*'),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::like::Like;

    #[test]
    fn patterns_of_like() {
        let check = |like: &str, expected: &str| {
            let like = Like::new(like, None).expect("no escape");
            assert_eq!(of_like(like.pieces()), expected);
        };
        check("n01/mem/free", "n01/mem/free");
        check("%/fs/nvme%/available_bytes", "**/fs/nvme*/**/available*bytes");
        check("%", "**");
        check("%%/x", "**/x");
        check("n01/%", "n01/**");
        check("%bytes", "**/*bytes");
        check("a%b/c", "**/c");
        check("a/b%c%", "a/b*/**");
        check("%/%/x", "**/x");
        check("a__b", "a*b");
        check("_%", "*/**");
    }
}
