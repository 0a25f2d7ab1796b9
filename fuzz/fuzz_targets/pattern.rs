//! A pattern and a topic, one a line, against a simple matcher.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_model::{Topic, TopicPattern};

/// Matches `pattern` with `text` by dynamic programming, as in textbooks; an item with `is_star` matches
/// any number of items. Slow, but the work is bounded by the product of both lengths.
fn table<P, T>(
    pattern: &[P],
    text: &[T],
    is_star: impl Fn(&P) -> bool,
    matches: impl Fn(&P, &T) -> bool,
) -> bool {
    let mut row = vec![false; text.len() + 1];
    row[0] = true;
    for item in pattern {
        let mut next = vec![false; text.len() + 1];
        next[0] = row[0] && is_star(item);
        for (n, t) in text.iter().enumerate() {
            next[n + 1] =
                if is_star(item) { row[n + 1] || next[n] } else { row[n] && matches(item, t) };
        }
        row = next;
    }
    row[text.len()]
}

fn expected(pattern: &str, topic: &str) -> bool {
    let (pattern, topic): (Vec<_>, Vec<_>) =
        (pattern.split('/').collect(), topic.split('/').collect());
    let glob =
        |p: &&str, t: &&str| table(p.as_bytes(), t.as_bytes(), |byte| *byte == b'*', |a, b| a == b);
    table(&pattern, &topic, |segment| *segment == "**", glob)
}

fuzz_target!(|text: &str| {
    let (pattern, topic) = text.split_once('\n').unwrap_or((text, "a/b"));
    let Ok(parsed) = TopicPattern::new(pattern) else { return };
    assert_eq!(parsed.as_str(), pattern);
    if let Ok(topic) = Topic::new(topic) {
        assert_eq!(parsed.matches(&topic), expected(pattern, topic.as_str()), "{pattern} {topic}");
    }
});
