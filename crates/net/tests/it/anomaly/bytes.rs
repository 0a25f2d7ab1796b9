//! Packets beside bytes that were made by hand from `docs/reference/anomaly-report.md`.

use proptest::prelude::*;
use skopos_model::Timestamp;
use skopos_net::anomaly::{Entry, Header, Name, NodeKey, Packet, Severity};

fn key() -> NodeKey {
    NodeKey::new(&[7; 32])
}

fn entry(id: u32, severity: Severity, numbers: [f64; 3], age_tenths: u64) -> Entry {
    let [seen, low, high] = numbers;
    Entry { id, severity, seen, low, high, age_tenths }
}

fn encoded(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&key(), &mut bytes);
    bytes
}

#[test]
fn a_packet_is_these_bytes() {
    let packet = Packet {
        header: Header {
            node: 0x0102_0304_0506_0708,
            session: 0x1112_1314_1516_1718,
            sequence: 9,
            at: Timestamp::from_nanos(0x2122_2324_2526_2728),
        },
        held: 200,
        names: vec![
            Name { id: 0, name: "n01".into() },
            Name { id: 3, name: "block/vda/in_flight".into() },
            Name { id: 5, name: "block/vdb/in_flight".into() },
        ],
        entries: vec![
            entry(3, Severity::High, [60.0, 0.0, 12.5], 15),
            entry(4, Severity::High, [0.25, -1.0, 0.1], 300),
            entry(7, Severity::Usual, [3.0, 0.0, 0.0], 0),
        ],
    };
    let expected = [
        &b"SA"[..],
        // Version, and the flag of names.
        &[1, 1],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
        &[0, 0, 0, 9],
        &[0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28],
        // The length of the body (2 + 43 + 5 + 4 + 19), and 8 bits of bitmap.
        &[0, 73, 0, 8],
        // 200 findings are held back.
        &[0xc8, 0x01],
        // Three names; the third has "block/vd" in common with the second.
        &[3, 0, 0, 3],
        b"n01",
        &[3, 0, 19],
        b"block/vda/in_flight",
        &[2, 8, 11],
        b"b/in_flight",
        // Two runs: two ids after three absent ones, and one after two.
        &[2, 3, 2, 2, 1],
        // Severities: two are high, one is usual.
        &[2, 2, 1, 0],
        // 60 = 6 * 10, 0, 12.5 = 125 / 10, 1.5 s.
        &[1, 12, 0, 0, 0xff, 0xfa, 0x01, 15],
        // 0.25 = 25 / 100, -1, 0.1 = 1 / 10, 30 s.
        &[0xfe, 50, 0, 1, 0xff, 2, 0xac, 0x02],
        // 3, now.
        &[0, 6, 0],
    ]
    .concat();
    let found = encoded(&packet);
    assert_eq!(found[..found.len() - 16], expected);
    assert_eq!(Packet::decode(&found, &key()).expect("ours"), packet);
}

#[test]
fn a_packet_without_findings_is_54_bytes_and_a_usual_one_is_small() {
    let header = Header { node: 1, session: 2, sequence: 3, at: Timestamp::from_nanos(4) };
    let mut packet = Packet { header, held: 0, names: Vec::new(), entries: Vec::new() };
    assert_eq!(encoded(&packet).len(), 54);
    packet.entries = (40..60).map(|id| entry(id, Severity::Usual, [1.0, 0.0, 0.0], 1)).collect();
    assert_eq!(encoded(&packet).len(), 54 + 4 + 20 * 3);
    assert_eq!(Packet::decode(&encoded(&packet), &key()).expect("ours"), packet);
}

prop_compose! {
    /// A number that a decimal holds exactly.
    fn decimal()(mantissa in -999_i32..=999, exponent in -20_i32..20, odd in 0..20) -> f64 {
        let mantissa = f64::from(mantissa);
        match odd {
            0 => f64::INFINITY,
            1 => f64::NEG_INFINITY,
            _ if exponent < 0 => mantissa / 10_f64.powi(-exponent),
            _ => mantissa * 10_f64.powi(exponent),
        }
    }
}

prop_compose! {
    fn any_entry()(severity in 0_usize..5, seen in decimal(), low in decimal(), high in decimal(), age: u64) -> Entry {
        let severity = Severity::ALL[severity];
        let bounds = if severity == Severity::Usual { (0.0, 0.0) } else { (low, high) };
        entry(0, severity, [seen, bounds.0, bounds.1], age)
    }
}

prop_compose! {
    fn any_packet()(
        (node, session, sequence, time) in any::<(u64, u64, u32, i64)>(),
        held: u64,
        names in prop::collection::btree_map(0_u32..=16_383, "[a-c/é]{1,9}", 0..6),
        entries in prop::collection::btree_map(1_u32..=16_383, any_entry(), 0..20),
        near in prop::collection::btree_map(1_u32..20, any_entry(), 0..10),
    ) -> Packet {
        let entries = entries.into_iter().chain(near).collect::<std::collections::BTreeMap<_, _>>();
        Packet {
            header: Header { node, session, sequence, at: Timestamp::from_nanos(time) },
            held,
            names: names.into_iter().map(|(id, name)| Name { id, name }).collect(),
            entries: entries.into_iter().map(|(id, entry)| Entry { id, ..entry }).collect(),
        }
    }
}

proptest! {
    #[test]
    fn every_packet_comes_back(packet in any_packet()) {
        let bytes = encoded(&packet);
        prop_assert_eq!(Packet::decode(&bytes, &key()).expect("ours"), packet.clone());
        prop_assert_eq!(Packet::decode_unverified(&bytes).expect("ours"), packet);
        prop_assert!(Packet::decode(&bytes, &NodeKey::new(&[8; 32])).is_err());
    }
}
