//! Any bytes as a request about records of jobs, and as the answer of a hub.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_wire::{Delivered, Delivery};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((node, request)) = Delivery::decode(bytes) {
        let again = Delivery::decode(&request.encode(&node)).expect("an encoded request decodes");
        assert_eq!(again, (node, request));
    }
    if let Ok(answer) = Delivered::decode(bytes) {
        assert_eq!(Delivered::decode(&answer.encode()).expect("an encoded answer decodes"), answer);
    }
});
