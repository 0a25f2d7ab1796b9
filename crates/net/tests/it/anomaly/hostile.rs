//! Packets that are cut off, changed, or that claim more than they have.

use proptest::prelude::*;
use skopos_net::anomaly::{NodeKey, Packet, Receiver};

use super::{Host, from, site, take};

fn packet() -> (Vec<u8>, Host) {
    let mut host = Host::ready("n01", 30);
    (host.packet(12), host)
}

/// Replaces the body of a valid packet by `body`.
fn with_body(flags: u8, bits: u16, body: &[u8]) -> Vec<u8> {
    let (whole, _) = packet();
    let mut bytes = whole[..36].to_vec();
    bytes[3] = flags;
    bytes[32..34].copy_from_slice(&(body.len() as u16).to_be_bytes());
    bytes[34..36].copy_from_slice(&bits.to_be_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&[0; 16]);
    bytes
}

#[test]
fn a_packet_that_is_cut_off_or_has_one_wrong_bit_is_refused() {
    let (bytes, host) = packet();
    let mut receiver = Receiver::new(site());
    for length in 0..bytes.len() {
        assert!(take(&mut receiver, &bytes[..length], &host).is_err(), "{length} bytes");
    }
    for bit in 0..bytes.len() * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(take(&mut receiver, &wrong, &host).is_err(), "bit {bit}");
    }
    assert_eq!(receiver.nodes(), 0);
    // Each wrong packet was a malformed or a forged one, or came too soon after others.
    let counts = receiver.refusals();
    let all = counts.malformed + counts.forged + counts.busy;
    assert_eq!(all, (bytes.len() * 9) as u64, "{counts:?}");
    let later = skopos_model::Timestamp::from_nanos(host.now().as_nanos() + 1_000_000_000);
    assert!(receiver.take(from(1), &bytes, later).is_ok());
}

#[test]
fn a_body_that_lies_is_refused_with_its_reason() {
    let refused = |flags, bits, body: &[u8]| {
        Packet::decode_unverified(&with_body(flags, bits, body)).expect_err("it lies").to_string()
    };
    let check = |found: String, expected: &str| assert!(found.contains(expected), "{found}");
    check(refused(2, 0, &[0, 0]), "its flags 0x02 are not known");
    check(refused(0, 16_385, &[0, 0]), "its bitmap has 16385 bits");
    check(refused(0, 0, &[0]), "needs 1 bytes, and 0 are left");
    check(refused(0, 0, &[0, 0, 5]), "1 bytes follow its last finding");
    // A run of 2^32 findings in a body of 10 bytes.
    check(
        refused(0, 16_384, &[0, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x10]),
        "a run of 4294967296 findings",
    );
    // A run beyond the bitmap, an empty one, and one without a gap.
    check(refused(0, 5, &[0, 1, 4, 2, 2, 0, 0, 0, 0, 0, 0, 0]), "a run of 2 findings");
    check(refused(0, 5, &[0, 1, 1, 0, 0, 0, 0, 0]), "a run of 0 findings");
    check(refused(0, 9, &[0, 2, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0]), "a run of 1 findings after 0 ids");
    check(refused(0, 9, &[0, 1, 0, 1, 1, 0, 0, 0, 0]), "the id 0, which is the node");
    check(refused(0, 9, &[0, 1, 1, 1, 1, 5, 0, 0, 0]), "a run of severities");
    check(refused(0, 9, &[0, 1, 1, 1, 2, 1, 0, 0, 0]), "a run of severities");
    // Names: an id that does not ascend, a common begin without a name before, an empty name, and one that is not UTF-8.
    check(refused(1, 0, &[0, 2, 3, 0, 1, b'a', 0, 0, 1, b'b', 0]), "the id 3 of a name");
    check(refused(1, 0, &[0, 1, 0xff, 0xff, 1, 0, 1, b'a', 0]), "the id 32767 of a name");
    check(refused(1, 0, &[0, 1, 3, 1, 1, b'a', 0]), "a name has 1 bytes of the name before");
    check(refused(1, 0, &[0, 1, 3, 0, 0, 0]), "a name has 0 bytes");
    check(refused(1, 0, &[0, 1, 3, 0, 1, 0xff, 0]), "the name of id 3 is not UTF-8");
    // 2^64 - 1 names in a body of 12 bytes.
    let many = [&[0][..], &[0xff; 9], &[1, 0]].concat();
    check(refused(1, 0, &many), "needs 1 bytes");
    let mut long = with_body(0, 0, &[0, 0]);
    long.resize(1101, 0);
    let found = Packet::decode_unverified(&long).expect_err("too long").to_string();
    check(found, "it has 1101 bytes; at most 1100 are sent");
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read_and_written_again(bytes in prop::collection::vec(any::<u8>(), 0..200), flags in 0_u8..2, bits in 0_u16..300) {
        let _ = Packet::decode_unverified(&bytes);
        let mut whole = b"SA\x01".to_vec();
        whole.push(flags);
        whole.extend_from_slice(&[0; 28]);
        whole.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        whole.extend_from_slice(&bits.to_be_bytes());
        whole.extend_from_slice(&bytes);
        whole.extend_from_slice(&[0; 16]);
        if let Ok(packet) = Packet::decode_unverified(&whole) {
            let key = NodeKey::new(&[1; 32]);
            let mut again = Vec::new();
            packet.encode(&key, &mut again);
            prop_assert_eq!(Packet::decode(&again, &key).expect("it was read"), packet);
        }
    }

    #[test]
    fn a_changed_body_never_stops_a_receiver(changes in prop::collection::vec((36_usize..400, any::<u8>()), 1..8)) {
        let (mut bytes, _) = packet();
        for (place, byte) in changes {
            let end = bytes.len() - 16;
            bytes[36 + place % (end - 36)] = byte;
        }
        let _ = Packet::decode_unverified(&bytes);
    }
}
