//! Patterns compared with a slow and plain matcher.

use proptest::prelude::*;
use skopos_model::{Error, Topic, TopicPattern};

use crate::topic::{is_topic, texts};

/// Matches `*` in one segment by trying each length that it can take.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|taken| glob(rest, &text[taken..])),
        Some((byte, rest)) => text.split_first().is_some_and(|(t, ts)| t == byte && glob(rest, ts)),
    }
}

/// Matches `**` over segments by trying each number that it can take.
fn matches(pattern: &[&str], topic: &[&str]) -> bool {
    match pattern.split_first() {
        None => topic.is_empty(),
        Some((&"**", rest)) => (0..=topic.len()).any(|taken| matches(rest, &topic[taken..])),
        Some((segment, rest)) => topic
            .split_first()
            .is_some_and(|(t, ts)| glob(segment.as_bytes(), t.as_bytes()) && matches(rest, ts)),
    }
}

fn expected(pattern: &str, topic: &str) -> bool {
    let split = |text| str::split(text, '/').collect::<Vec<&str>>();
    matches(&split(pattern), &split(topic))
}

/// Few letters and short segments, so that patterns and topics meet.
fn pattern_text() -> impl Strategy<Value = String> {
    let segment = prop_oneof![2 => Just("**".to_owned()), 3 => "[ab]{1,3}", 3 => "[ab]{0,2}\\*([ab]{1,2}\\*)?[ab]{0,2}"];
    prop::collection::vec(segment, 1..6).prop_map(|segments| segments.join("/"))
}

fn topic_text() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab]{1,4}", 1..7).prop_map(|segments| segments.join("/"))
}

proptest! {
    #![proptest_config(crate::cases(5_000))]

    #[test]
    fn patterns_match_like_the_plain_matcher(p in pattern_text(), t in topic_text()) {
        let pattern: TopicPattern = p.parse().unwrap();
        let topic: Topic = t.parse().unwrap();
        prop_assert_eq!(pattern.matches(&topic), expected(&p, &t));
        prop_assert_eq!(pattern.matches_str(&t), expected(&p, &t));
    }

    #[test]
    fn any_text_is_a_pattern_or_an_error(text in texts()) {
        // A pattern is a topic whose segments may hold stars, two only if alone.
        let stars = text.split('/').all(|s| s == "**" || !s.contains("**"));
        let without = text.replace('*', "s");
        match TopicPattern::new(&text) {
            Ok(pattern) => {
                prop_assert!(stars && is_topic(&without));
                prop_assert_eq!(pattern.as_str(), &text);
                prop_assert_eq!(pattern.to_string().parse::<TopicPattern>().unwrap(), pattern.clone());
                prop_assert_eq!(pattern.as_topic().is_some(), !text.contains('*'));
            }
            Err(_) => prop_assert!(!stars || !is_topic(&without), "{text:?}"),
        }
    }

    #[test]
    fn a_topic_is_a_pattern_that_matches_itself_alone(a in topic_text(), b in topic_text()) {
        let (a, b): (Topic, Topic) = (a.parse().unwrap(), b.parse().unwrap());
        let pattern = TopicPattern::from(&a);
        prop_assert!(pattern.matches(&a));
        prop_assert_eq!(pattern.matches(&b), a == b);
        prop_assert_eq!(pattern.as_topic(), Some(a.clone()));
        prop_assert!(TopicPattern::new("**").unwrap().matches(&a));
    }
}

#[test]
fn stars_match_as_documented() {
    let check = |pattern: &str, topics: &[&str], others: &[&str]| {
        let pattern: TopicPattern = pattern.parse().expect("a pattern");
        for topic in topics {
            assert!(pattern.matches(&topic.parse().expect("a topic")), "{pattern} and {topic}");
        }
        for topic in others {
            assert!(!pattern.matches(&topic.parse().expect("a topic")), "{pattern} and {topic}");
        }
    };
    check("**", &["a", "a/b/c"], &[]);
    check("*", &["a", "abc"], &["a/b"]);
    check("*/b", &["a/b"], &["b", "a/a/b", "a/bb"]);
    check("**/b", &["b", "a/b", "a/a/b", "b/b"], &["bb", "b/a"]);
    check("a/**", &["a", "a/b", "a/b/c"], &["b", "aa", "aa/b"]);
    check("a/**/b", &["a/b", "a/x/b", "a/b/b"], &["a", "b", "a/b/x"]);
    check("**/a/**", &["a", "x/a", "a/x", "x/a/y"], &["x", "aa"]);
    check("**/**", &["a", "a/b"], &[]);
    check("n*/mem", &["n/mem", "n01/mem"], &["m/mem", "n01/mem/x"]);
    check("*1*1*", &["11", "0110", "1x1"], &["1", "x1x"]);
    for bad in ["***", "a**", "**a", "a/b**/c", "a/***"] {
        let error = TopicPattern::new(bad).expect_err(bad);
        assert!(matches!(error, Error::PatternDoubleStar(_)), "{bad}: {error}");
    }
}

/// The most expensive pattern within the limits matches at once; the plain matcher would not end.
#[test]
fn matching_work_is_bounded() {
    let stars = ["*a*"; 2].join("/**/") + &"/**/*b".repeat(6);
    let topic: Topic = ["aaaaaaaaaaaaaa"; 16].join("/").parse().expect("a topic");
    let pattern: TopicPattern = stars.parse().expect("a pattern");
    assert!(!pattern.matches(&topic));
    let glob: TopicPattern = ("*a".repeat(100) + "b").parse().expect("a pattern");
    let long: Topic = "a".repeat(255).parse().expect("a topic");
    assert!(!glob.matches(&long));
}
