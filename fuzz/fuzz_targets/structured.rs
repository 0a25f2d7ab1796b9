//! Any text as a structured value: an accepted value survives its own encoding.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_model::{MAX_STRUCTURED_BYTES, Structured, ValueType};

fuzz_target!(|text: &str| {
    if let Ok(value) = Structured::from_json(text) {
        let encoded = value.to_string();
        assert!(encoded.len() <= MAX_STRUCTURED_BYTES);
        let back = Structured::from_json(&encoded).expect("an encoded value decodes");
        assert_eq!(back, value);
        assert_eq!(back.to_string(), encoded);
    }
    for value_type in [ValueType::F64, ValueType::I64, ValueType::U64] {
        if let Ok(value) = value_type.parse_value(text) {
            assert_eq!(value.value_type(), value_type);
        }
    }
});
