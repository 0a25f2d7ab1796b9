//! Any bytes as the answer of a device, in version 2c and in version 3: no panic, and nothing without a tag is believed.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = skopos_net::snmp::read_response(bytes);
});
