//! Any bytes as a question about a node's history.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_wire::Question;

fuzz_target!(|bytes: &[u8]| {
    let Ok(question) = Question::decode(bytes) else { return };
    let texts = question.topics.iter().chain(&question.starts);
    assert!(texts.map(|text| text.len() + 1).sum::<usize>() <= bytes.len());
    let again = Question::decode(&question.encode()).expect("an encoded question decodes");
    assert_eq!(again, question);
});
