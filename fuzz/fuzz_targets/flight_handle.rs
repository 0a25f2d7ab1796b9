//! Any bytes as the handle of a Flight SQL ticket or prepared statement. Encoding an accepted handle gives
//! the same bytes, so nothing can be hidden in a handle.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/serve/src/flight/handle.rs"]
#[allow(dead_code, reason = "the hub uses all of it")]
mod handle;

fuzz_target!(|bytes: &[u8]| {
    if let Some(handle) = handle::Handle::decode(bytes) {
        assert_eq!(handle.encode(), bytes);
        assert!(bytes.len() <= handle::MAX_HANDLE_BYTES);
    }
});
