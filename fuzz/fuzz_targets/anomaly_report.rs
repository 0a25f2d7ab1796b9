//! Any bytes as an anomaly report: as a packet, and as the body of a packet with a right tag. A packet that decodes survives
//! encoding, and a receiver takes it in.

#![no_main]

use libfuzzer_sys::fuzz_target;
use skopos_net::anomaly::{NodeKey, Packet, Receiver, SiteKey};

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::decode_unverified(bytes) else { return };
    let key = NodeKey::new(&[1; 32]);
    let mut again = Vec::new();
    packet.encode(&key, &mut again);
    assert_eq!(Packet::decode(&again, &key).expect("an encoded packet decodes"), packet);
    let mut receiver = Receiver::new(SiteKey::new(&[2; 16]).expect("long enough"));
    let from = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    assert!(receiver.take(from, bytes, packet.header.at).is_err(), "nobody made its tag");
});
