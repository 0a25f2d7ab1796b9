//! Topics: any text is a topic or an error, and a topic keeps its text.

use proptest::prelude::*;
use skopos_model::{Error, MAX_TOPIC_BYTES, MAX_TOPIC_SEGMENTS, Topic};

/// The characters that a segment may hold, as documented.
pub(crate) const SEGMENT_CHARACTERS: &str = "abcdefghijklmnopqrstuvwxyz0123456789_-.:@+=%";

/// Checks the rules of [`Topic`] in the order of its documentation.
pub(crate) fn is_topic(text: &str) -> bool {
    let segments: Vec<&str> = text.split('/').collect();
    text.len() <= MAX_TOPIC_BYTES
        && segments.len() <= MAX_TOPIC_SEGMENTS
        && segments
            .iter()
            .all(|s| !s.is_empty() && s.chars().all(|c| SEGMENT_CHARACTERS.contains(c)))
}

/// Makes texts that are topics, nearly topics, or not topics at all.
pub(crate) fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z0-9_.:@+=%/-]{0,40}",
        "[a-c*/A é]{0,12}",
        "([a-z]{1,20}/){0,20}[a-z]{1,30}",
        (200usize..300).prop_map(|n| "n".repeat(n)),
    ]
}

proptest! {
    #![proptest_config(crate::cases(1_000))]

    #[test]
    fn any_text_is_a_topic_or_an_error(text in texts()) {
        match Topic::new(&text) {
            Ok(topic) => {
                prop_assert!(is_topic(&text));
                prop_assert_eq!(topic.as_str(), &text);
                prop_assert_eq!(topic.to_string().parse::<Topic>().unwrap(), topic.clone());
                let segments: Vec<&str> = topic.segments().collect();
                prop_assert_eq!(segments.join("/"), text);
                prop_assert_eq!(topic.node(), segments[0]);
                prop_assert_eq!(topic.metric(), segments[segments.len() - 1]);
            }
            Err(e) => {
                prop_assert!(!is_topic(&text), "{text:?}: {e}");
                prop_assert!(!e.to_string().is_empty());
            }
        }
    }
}

#[test]
fn each_fault_has_its_own_error() {
    let error = |text: &str| Topic::new(text).expect_err(text);
    assert_eq!(error(""), Error::TopicEmpty);
    assert_eq!(error(&"a".repeat(256)), Error::TopicTooLong(256));
    assert_eq!(error(&["a"; 17].join("/")), Error::TopicTooDeep(17));
    for text in ["/", "/a", "a/", "a//b", "//"] {
        assert_eq!(error(text), Error::SegmentEmpty(text.into()));
    }
    for (text, found, at) in
        [("a b", ' ', 1), ("ab/Cd", 'C', 3), ("x/é", 'é', 2), ("a*", '*', 1), ("a\0", '\0', 1)]
    {
        assert_eq!(error(text), Error::SegmentCharacter { topic: text.into(), found, at });
    }
    for text in [&"a".repeat(255), &["a"; 16].join("/"), "%", "-", "n01/a:b@c+d=e%2f_g-h.i"] {
        assert_eq!(Topic::new(text).expect("a topic").as_str(), text);
    }
}

/// Tries every single character, alone and between others.
#[test]
fn exactly_the_documented_characters_are_allowed() {
    for c in (0..=0x2ff).filter_map(char::from_u32) {
        for text in [c.to_string(), format!("a{c}b")] {
            assert_eq!(Topic::new(&text).is_ok(), is_topic(&text), "{text:?}");
        }
    }
}
