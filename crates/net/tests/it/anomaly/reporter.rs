//! The sending side.

use skopos_model::{Kind, Unit};
use skopos_net::anomaly::{MAX_PACKET_BYTES, Packet, Receiver, Severity};

use super::{Host, at, reporter, site, take};

#[test]
fn a_report_says_what_was_seen_and_expected_and_when_it_is_over() {
    let mut host = Host::ready("n01", 10);
    let mut receiver = Receiver::new(site());
    let packet = host.packet(2);
    let report = take(&mut receiver, &packet, &host).expect("ours");
    assert_eq!((report.node.as_deref(), report.sequence, report.held), (Some("n01"), 1, 0));
    let names: Vec<_> = report.findings.iter().map(|f| f.name.as_deref()).collect();
    assert_eq!(names, [Some("queue/0/depth"), Some("queue/1/depth")]);
    for finding in &report.findings {
        let (low, high) = finding.expected.expect("it is unusual");
        assert!((80.0..98.0).contains(&low) && (102.0..120.0).contains(&high), "{finding:?}");
        assert!((495.0..505.0).contains(&finding.seen), "{finding:?}");
        assert_eq!(finding.severity, Severity::Extreme);
        assert!((0.9..3.0).contains(&report.at.since(finding.since).as_secs_f64()), "{finding:?}");
    }
    assert_eq!(host.reporter.unusual(), 2);
    let packet = host.packet(0);
    let report = take(&mut receiver, &packet, &host).expect("ours");
    let over = report.findings.iter().filter(|f| f.severity == Severity::Usual);
    assert_eq!((over.count(), report.findings.len(), report.lost), (2, 2, 0));
    assert!(report.findings.iter().all(|f| f.expected.is_none()));
    assert!((0..200).all(|_| host.tick(0).is_none()), "after that there is nothing to say");
}

#[test]
fn a_lasting_anomaly_is_repeated_twice_a_minute_until_it_is_a_level() {
    let mut host = Host::ready("n01", 10);
    let packets: Vec<_> = (0..110).filter_map(|_| host.tick(1)).collect();
    assert_eq!(packets.len(), 4, "once, and after 30, 60 and 90 s");
    // The first two packets with a name carry it, and those a minute after the last one with it.
    let named: Vec<_> =
        packets.iter().map(|p| Packet::decode_unverified(p).expect("ours").names.len()).collect();
    assert_eq!(named, [2, 2, 0, 2]);
    assert_eq!(host.reporter.counts().packets, 4);
    assert_eq!(host.reporter.counts().bytes, packets.iter().map(|p| p.len() as u64).sum::<u64>());
}

#[test]
fn a_storm_is_cut_into_packets_and_every_metric_arrives() {
    let mut host = Host::ready("n01", 400);
    let mut receiver = Receiver::new(site());
    let mut seen = std::collections::BTreeSet::new();
    let mut held = Vec::new();
    for _ in 0..25 {
        let Some(packet) = host.tick(400) else { continue };
        assert!(packet.len() <= MAX_PACKET_BYTES, "{} bytes", packet.len());
        let report = take(&mut receiver, &packet, &host).expect("ours");
        held.push(report.held);
        seen.extend(report.findings.into_iter().filter_map(|f| f.name));
    }
    assert_eq!(seen.len(), 400);
    assert!(held[0] > 300 && held.contains(&0), "{held:?}");
    assert!(host.reporter.counts().held > 300);
}

#[test]
fn a_metric_that_swings_is_reported_at_most_each_five_seconds() {
    let mut host = Host::ready("n01", 10);
    let packets = (0..120).filter(|n| host.tick(usize::from(n / 4 % 2 == 0)).is_some()).count();
    assert!((10..=24).contains(&packets), "{packets} packets");
}

#[test]
fn a_counter_is_judged_by_its_rate_and_a_restart_is_not_an_anomaly() {
    let mut reporter = reporter("n01", 0);
    let handle = reporter.join("tcp/timeouts_total", Kind::Counter, Unit::NONE).expect("room");
    let mut total = 1e6;
    for second in 1..1000 {
        total = if second == 500 { 0.0 } else { total + 3.0 + f64::from(second % 3) };
        assert_eq!(reporter.tick(at(second.into()), &[(handle, total)]), None, "{second}");
    }
    assert_eq!(reporter.counts().samples.resets, 1);
    for second in 1000..1003 {
        total += 100.0;
        let packet = reporter.tick(at(second), &[(handle, total)]).map(<[u8]>::to_vec);
        assert_eq!(packet.is_some(), second == 1001, "{second}");
        if let Some(packet) = packet {
            assert_eq!(Packet::decode_unverified(&packet).expect("ours").entries[0].seen, 100.0);
        }
    }
}

#[test]
fn polls_between_two_reports_keep_their_times() {
    let mut reporter = reporter("n01", 0);
    let handle = reporter.join("tcp/timeouts_total", Kind::Counter, Unit::NONE).expect("room");
    let (mut total, mut seen) = (1e6, Vec::new());
    for second in 1..1000 {
        total += if second < 990 { 4.0 } else { 100.0 };
        reporter.observe(at(second), &[(handle, total)]);
        if second % 3 == 0
            && let Some(packet) = reporter.report(at(second))
        {
            seen.push(Packet::decode_unverified(packet).expect("ours").entries[0].seen);
        }
    }
    assert_eq!(seen, [100.0], "the rate of each second");
    assert_eq!(reporter.counts().samples.backwards, 0, "each sample is judged");
}

#[test]
fn small_changes_of_a_constant_are_not_worth_a_report() {
    for (unit, kind, change, is_worth) in [
        ("", Kind::Gauge, 4.0, false),
        ("", Kind::Gauge, 6.0, true),
        ("ratio", Kind::Gauge, 0.009, false),
        ("ratio", Kind::Gauge, 0.012, true),
        ("seconds", Kind::Gauge, 0.0009, false),
        ("seconds", Kind::Gauge, 0.0012, true),
        ("celsius", Kind::Gauge, 4.0, true),
        ("bytes", Kind::Gauge, 1e6, false),
        ("bytes", Kind::Gauge, 1.1e6, true),
    ] {
        let mut reporter = reporter("n01", 0);
        let unit = Unit::new(unit).expect("a unit");
        let handle = reporter.join("a/b", kind, unit).expect("room");
        let reported = (1..700).any(|second| {
            let value = if second > 600 { change } else { 0.0 };
            reporter.tick(at(second), &[(handle, value)]).is_some()
        });
        assert_eq!(reported, is_worth, "{change} {unit}");
    }
}

#[test]
fn a_metric_that_left_is_silent_and_ids_are_not_used_again_in_a_session() {
    let mut host = Host::ready("n01", 2);
    let packet = host.packet(2);
    let session = Packet::decode_unverified(&packet).expect("ours").header.session;
    host.reporter.leave(host.handles[0]);
    host.reporter.leave(host.handles[0]);
    assert_eq!(host.reporter.unusual(), 1);
    let new = host.reporter.join("queue/new/depth", Kind::Gauge, Unit::NONE).expect("room");
    host.handles[0] = new;
    let report = Packet::decode_unverified(&host.packet(2)).expect("ours");
    assert_eq!(report.entries.iter().map(|e| e.id).collect::<Vec<_>>(), [2]);
    // When all ids were used, a session with new ones starts.
    for n in 0..16_400 {
        let handle = host.reporter.join(&format!("s/{n}"), Kind::Gauge, Unit::NONE);
        host.reporter.leave(handle.expect("room"));
    }
    let report = Packet::decode_unverified(&host.packet(2)).expect("ours");
    assert_eq!((report.header.session, report.header.sequence), (session + 1, 1));
    assert_eq!(report.names.iter().map(|n| n.id).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn metrics_and_names_are_bounded_and_refusals_are_counted() {
    let mut reporter = reporter("n01", 0);
    assert_eq!(reporter.join(&"x".repeat(256), Kind::Gauge, Unit::NONE), None);
    assert_eq!(reporter.join("", Kind::Gauge, Unit::NONE), None);
    let joined = (0..4100).filter_map(|n| reporter.join(&n.to_string(), Kind::Gauge, Unit::NONE));
    assert_eq!(joined.count(), 4096);
    assert_eq!(reporter.counts().refused, 6);
    let nameless = skopos_net::anomaly::Reporter::new(&[0; 32], "", at(0));
    assert!(nameless.is_err());
}
