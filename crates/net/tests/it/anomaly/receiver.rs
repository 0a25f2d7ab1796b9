//! The receiving side.

use skopos_model::Timestamp;
use skopos_net::anomaly::{NodeKey, Packet, Receiver, Refused, Reporter, SiteKey};

use super::{Host, at, from, site, take};

fn seconds_after(host: &Host, seconds: i64) -> Timestamp {
    Timestamp::from_nanos(host.now().as_nanos() + seconds * 1_000_000_000)
}

#[test]
fn a_packet_is_taken_once_and_lost_ones_are_counted() {
    let mut host = Host::ready("n01", 10);
    let mut receiver = Receiver::new(site());
    let packets: Vec<_> = (0..5).map(|_| host.packet(1)).collect();
    let mut lost = |n: usize| take(&mut receiver, &packets[n], &host).map(|report| report.lost);
    assert!(matches!(lost(0), Ok(0)));
    assert!(matches!(lost(0), Err(Refused::Replayed { sequence: 1 })));
    assert!(matches!(lost(3), Ok(2)));
    assert!(matches!(lost(2), Ok(1)), "it was late, and is not lost");
    assert!(matches!(lost(2), Err(Refused::Replayed { .. })));
    assert_eq!((receiver.refusals().taken, receiver.refusals().replayed), (3, 2));
}

#[test]
fn a_receiver_that_starts_later_learns_the_names_within_a_minute() {
    let mut host = Host::ready("n01", 10);
    (0..2).for_each(|_| drop(host.packet(1)));
    let mut receiver = Receiver::new(site());
    let packet = host.packet(1);
    let report = take(&mut receiver, &packet, &host).expect("ours");
    assert_eq!((report.node, report.findings[0].name.clone(), report.lost), (None, None, 0));
    assert_eq!(receiver.refusals().unnamed, 1);
    let packet = host.packet(1);
    let report = take(&mut receiver, &packet, &host).expect("ours");
    assert_eq!(report.node.as_deref(), Some("n01"));
    assert_eq!(report.findings[0].name.as_deref(), Some("queue/0/depth"));
}

#[test]
fn a_restarted_node_begins_anew_and_its_earlier_packets_are_replays() {
    let mut host = Host::ready("n01", 2);
    let mut receiver = Receiver::new(site());
    let (first, second) = (host.packet(1), host.packet(1));
    take(&mut receiver, &first, &host).expect("ours");
    // The same name, a later start: ids have other meanings.
    let mut again = Host::ready("n01", 2);
    again.reporter = Reporter::new(&site().node_secret("n01"), "n01", at(100)).expect("a name");
    let names = ["other/b", "other/a"];
    let join = |name: &&str| {
        again.reporter.join(name, skopos_model::Kind::Gauge, skopos_model::Unit::NONE)
    };
    again.handles = names.iter().filter_map(join).collect();
    (0..300).for_each(|_| drop(again.tick(0)));
    let new = again.packet(1);
    let report = take(&mut receiver, &new, &again).expect("ours");
    assert_eq!(report.findings[0].name.as_deref(), Some("other/b"));
    assert!(matches!(
        take(&mut receiver, &second, &host),
        Err(Refused::Stale { .. } | Refused::Replayed { .. })
    ));
    let soon = receiver.take(from(1), &second, host.now());
    assert!(matches!(soon, Err(Refused::Replayed { sequence: 2 })), "{soon:?}");
}

#[test]
fn a_packet_that_is_old_or_ahead_is_refused_with_a_hint() {
    let mut host = Host::ready("n01", 2);
    let packet = host.packet(1);
    let mut receiver = Receiver::new(site());
    for (seconds, expected) in [
        (121, "the report is 121 s old; at most 120 s are allowed: compare the clocks"),
        (-121, "the report is 121 s ahead of the clock; at most 120 s"),
    ] {
        let refused = receiver.take(from(1), &packet, seconds_after(&host, seconds));
        let text = refused.expect_err("far from now").to_string();
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(receiver.refusals().stale, 2);
    assert!(receiver.take(from(1), &packet, seconds_after(&host, 119)).is_ok());
}

#[test]
fn another_site_and_another_node_cannot_report() {
    let mut receiver = Receiver::new(SiteKey::new(b"a secret of another site").expect("long"));
    let mut host = Host::ready("n01", 2);
    let packet = host.packet(1);
    assert!(matches!(take(&mut receiver, &packet, &host), Err(Refused::Forged { .. })));
    // The secret of n02 does not make reports of n01.
    let mut receiver = Receiver::new(site());
    let mut thief = Host::ready("n01", 1);
    thief.reporter = Reporter::new(&site().node_secret("n02"), "n01", at(0)).expect("a name");
    let join = thief.reporter.join("a", skopos_model::Kind::Gauge, skopos_model::Unit::NONE);
    thief.handles = vec![join.expect("room")];
    (0..200).for_each(|_| drop(thief.tick(0)));
    let packet = thief.packet(1);
    assert!(matches!(take(&mut receiver, &packet, &thief), Err(Refused::Forged { .. })));
}

#[test]
fn a_node_cannot_report_under_the_name_of_another() {
    let mut host = Host::ready("n02", 2);
    let mut packet = Packet::decode_unverified(&host.packet(1)).expect("ours");
    assert_eq!((packet.names[0].id, &*packet.names[0].name), (0, "n02"));
    packet.names[0].name = "n01".to_owned();
    let mut bytes = Vec::new();
    packet.encode(&NodeKey::new(&site().node_secret("n02")), &mut bytes);
    let mut receiver = Receiver::new(site());
    assert!(matches!(take(&mut receiver, &bytes, &host), Err(Refused::Forged { .. })));
    assert_eq!((receiver.refusals().forged, receiver.refusals().taken), (1, 0));
}

#[test]
fn a_flood_of_forged_packets_is_not_verified_and_known_nodes_still_report() {
    let mut host = Host::ready("n01", 2);
    let mut receiver = Receiver::new(site());
    let (first, second) = (host.packet(1), host.packet(1));
    receiver.take(from(1), &first, host.now()).expect("ours");
    let mut forged = first.clone();
    for n in 0..5000_u32 {
        forged[4..8].copy_from_slice(&n.to_be_bytes());
        assert!(receiver.take(from(2), &forged, host.now()).is_err());
    }
    let counts = receiver.refusals();
    assert_eq!((counts.forged, counts.busy), (2000, 3000));
    receiver.take(from(1), &second, host.now()).expect("its address is known");
    // A second later strangers are verified again.
    let mut other = Host::ready("n02", 2);
    let packet = other.packet(1);
    receiver.take(from(3), &packet, seconds_after(&host, 1)).expect("ours");
    assert_eq!(receiver.nodes(), 2);
}
