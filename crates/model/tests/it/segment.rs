//! Names of devices, mount points and control groups as segments of topics.

use std::collections::HashMap;

use proptest::prelude::*;
use skopos_model::{Error, Topic, escape_segment, schema};

use crate::topic::SEGMENT_CHARACTERS;

fn escaped(name: &[u8]) -> String {
    let mut segment = String::from("kept");
    escape_segment(name, &mut segment);
    segment.strip_prefix("kept").expect("it appends").to_owned()
}

/// Undoes the escape, as documented. The family tells whether names are absolute.
fn unescaped(segment: &str, absolute: bool) -> Vec<u8> {
    match segment {
        "%" => return Vec::new(),
        "-" => return b"/".to_vec(),
        _ => {}
    }
    let mut name = if absolute { vec![b'/'] } else { Vec::new() };
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b':' => b'/',
            b'%' => {
                let digits = [bytes.next(), bytes.next()].map(|d| d.expect("two digits") as char);
                let digits: String = digits.iter().collect();
                u8::from_str_radix(&digits, 16).expect("hexadecimal")
            }
            byte => byte,
        });
    }
    name
}

/// Bytes that are likely to collide: separators, the escape characters themselves, digits.
fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(prop::sample::select(b"/-:%2da.A ".to_vec()), 0..6),
    ]
}

proptest! {
    #![proptest_config(crate::cases(5_000))]

    #[test]
    fn any_name_becomes_one_segment_and_back(name in names()) {
        let segment = escaped(&name);
        prop_assert!(!segment.is_empty());
        prop_assert!(segment.chars().all(|c| SEGMENT_CHARACTERS.contains(c)), "{segment}");
        prop_assert!(Topic::new(&segment).is_ok(), "{segment}");
        prop_assert_eq!(unescaped(&segment, name.starts_with(b"/")), name);
    }
}

/// Tries all names of up to four of the special characters: no two absolute names and no two relative
/// names give the same segment.
#[test]
fn names_of_one_kind_never_share_a_segment() {
    let letters = b"/-:%2d";
    let mut names: Vec<Vec<u8>> = vec![Vec::new()];
    for length in 0..4 {
        let longest: Vec<_> = names.iter().filter(|n| n.len() == length).cloned().collect();
        for name in longest {
            names.extend(letters.iter().map(|&letter| [&name[..], &[letter]].concat()));
        }
    }
    let mut by_segment: HashMap<(bool, String), Vec<u8>> = HashMap::new();
    for name in names {
        let key = (name.starts_with(b"/"), escaped(&name));
        if let Some(other) = by_segment.insert(key, name.clone()) {
            panic!("{:?} and {:?}", name.escape_ascii(), other.escape_ascii());
        }
    }
}

#[test]
fn names_as_people_see_them() {
    for (name, segment) in [
        ("nvme0n1", "nvme0n1"),
        ("/", "-"),
        ("-", "%2d"),
        ("", "%"),
        ("%", "%25"),
        ("//", ":"),
        ("/mnt/data", "mnt:data"),
        ("/mnt/data/", "mnt:data:"),
        ("mnt/data", "mnt:data"),
        ("a/b", "a:b"),
        ("a:b", "a%3ab"),
        ("eth0.100@bond0", "eth0.100@bond0"),
        ("/sys/fs/My Disk", "sys:fs:%4dy%20%44isk"),
        ("é", "%c3%a9"),
        ("a-b", "a-b"),
        ("/-", "%2d"),
    ] {
        assert_eq!(escaped(name.as_bytes()), segment, "{name}");
    }
}

/// Escaping trebles a byte, so a long name of special bytes is too long for a topic. It is refused, not cut.
#[test]
fn a_name_that_is_too_long_is_refused_by_the_topic() {
    let topic = |name: &[u8]| schema::netdev::FAMILY.metrics[0].topic("n01", &escaped(name));
    assert!(topic(&[b'a'; 200]).is_ok());
    assert!(matches!(topic(&[b'A'; 200]), Err(Error::TopicTooLong(_))));
}
