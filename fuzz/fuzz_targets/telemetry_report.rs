//! Any bytes as a datagram with telemetry reports, and as a packet with in-band telemetry: no panic, and no more hops and
//! reports than the bytes have room for.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_net::int::{DOMAIN, Inner, Packet, Reports};
use skopos_net::plane::INT_PORT;

fn read(packet: &[u8]) {
    let Ok(Packet { embedded: Some(int), .. }) = Packet::read(packet, INT_PORT, DOMAIN) else { return };
    assert_eq!(int.hops().count(), int.hops_count());
    assert!(int.hops_count() * 4 <= packet.len());
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let Ok(reports) = Reports::read(bytes) else { return };
    assert!(reports.clone().count() <= bytes.len());
    for report in reports.flatten() {
        if let Inner::Ip(packet) = report.inner {
            read(packet);
        }
    }
});
