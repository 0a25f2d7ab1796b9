//! Any text as a topic, as a unit and as a name to escape.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_model::{MAX_TOPIC_BYTES, Topic, Unit, escape_segment};

fuzz_target!(|data: &[u8]| {
    let mut segment = String::new();
    escape_segment(data, &mut segment);
    assert!(segment.len() > MAX_TOPIC_BYTES || Topic::new(&segment).is_ok(), "{segment:?}");
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(topic) = Topic::new(text) {
        assert_eq!(topic.as_str(), text);
        assert!(topic.segments().all(|segment| !segment.is_empty()));
        assert_eq!(topic.to_string().parse::<Topic>().as_ref(), Ok(&topic));
        let _ = skopos_model::schema::lookup(&topic);
    }
    if let Ok(unit) = Unit::new(text) {
        assert_eq!(unit.as_str(), text);
    }
});
