//! Packets as the specifications show them: "INT Dataplane Specification 2.1", section "Examples", and "Telemetry
//! Report Format Specification 2.0", section "Examples of Telemetry Reports".

use proptest::prelude::*;
use skopos_net::Error;
use skopos_net::int::{
    DOMAIN, Embedded, Field, Group, Header, Hop, INSTRUCTION_SEQUENCE, Inner, Instructions, Kind,
    Next, Packet, Report, Reports, Shim, write_group, write_report,
};

const INT_PORT: u16 = 5000;

/// Bytes of words, as the tables of the specifications have them.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// "Example with new UDP header and INT inserted before TCP", from the shim on: two hops with node and queue.
fn example() -> Vec<u8> {
    words(&[0x1807_0006, 0x2000_0206, 0x9000_0000, 0x0000_0000, 2, 0x0000_0200, 1, 0x0000_0100])
}

fn hop(node: u32, queue_bytes: u32) -> Hop {
    Hop { node: Some(node), queue: Some(0), queue_bytes: Some(queue_bytes), ..Hop::default() }
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(20 + payload.len()).expect("small").to_be_bytes();
    let mut packet = vec![0x45, 0, bytes[0], bytes[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(payload);
    packet
}

fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(payload.len()).expect("small").to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, bytes[0], bytes[1], protocol, 64];
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend(payload);
    packet
}

fn udp(destination: u16, payload: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(8 + payload.len()).expect("small");
    let mut packet = Vec::new();
    for field in [40_000, destination, bytes, 0] {
        packet.extend(u16::to_be_bytes(field));
    }
    packet.extend(payload);
    packet
}

#[test]
fn the_examples_of_the_specification_are_read() {
    let bytes = example();
    let (int, rest) = Embedded::read(&bytes, DOMAIN).expect("the example");
    assert!(rest.is_empty());
    let next = Next::Transport { protocol: 6 };
    assert_eq!(int.shim, Shim { kind: Kind::EmbedData, words: 7, next });
    let instructions = Instructions::of(&[Field::Node, Field::Queue]);
    let expected = Header { hop_words: 2, remaining: 6, instructions, ..Header::default() };
    assert_eq!(int.header, expected);
    assert_eq!(int.hops().collect::<Vec<_>>(), [hop(1, 0x100), hop(2, 0x200)]);
    let mut written = Vec::new();
    let hops = [hop(1, 0x100), hop(2, 0x200)];
    Embedded::write(Kind::EmbedData, next, &expected, &hops, None, &mut written).expect("fits");
    assert_eq!(written, bytes);
    // Next protocol type 1: the original port is in the shim. Type 0: the DSCP is.
    let shim = |word: u32| {
        let mut bytes = example();
        bytes[..4].copy_from_slice(&word.to_be_bytes());
        Embedded::read(&bytes, DOMAIN).expect("as before").0.shim.next
    };
    assert_eq!(shim(0x1407_1234), Next::UdpPayload { port: 0x1234 });
    assert_eq!(shim(0x1007_002c), Next::Payload { dscp: 11 });
    // INT-MX has no stack.
    let mx = words(&[0x3403_0035, 0x2000_0000, 0x9000_0000, 0]);
    let (int, _) = Embedded::read(&mx, DOMAIN).expect("MX");
    assert_eq!((int.shim.kind, int.hops_count()), (Kind::EmbedInstructions, 0));
    assert_eq!(int.header.instructions, instructions);
}

#[test]
fn flags_and_values_that_are_not_known_are_read() {
    let flags = |first: u32| {
        let mut bytes = example();
        bytes[4..8].copy_from_slice(&first.to_be_bytes());
        let header = Embedded::read(&bytes, DOMAIN).expect("as before").0.header;
        (header.discard, header.hops_exceeded, header.mtu_exceeded)
    };
    assert_eq!(flags(0x2000_0206), (false, false, false));
    assert_eq!(flags(0x2800_0206), (true, false, false));
    assert_eq!(flags(0x2400_0200), (false, true, false));
    assert_eq!(flags(0x2200_0206), (false, false, true));
    // Reserved bits are ignored.
    assert_eq!(flags(0x21ff_e206), (false, false, false));
    let all = Instructions::ALL_OF_PLANE;
    let header = Header { hop_words: 9, instructions: all, ..Header::default() };
    let mut bytes = Vec::new();
    let next = Next::Transport { protocol: 17 };
    Embedded::write(Kind::EmbedData, next, &header, &[Hop::default()], None, &mut bytes)
        .expect("fits");
    assert_eq!(bytes[16..], [0xff; 36]);
    let (int, _) = Embedded::read(&bytes, DOMAIN).expect("good");
    assert_eq!(int.hops().collect::<Vec<_>>(), [Hop::default()]);
}

#[test]
fn the_sequence_of_the_source_is_below_the_stack() {
    let header = Header {
        hop_words: 2,
        instructions: Instructions::of(&[Field::Node, Field::Queue]),
        domain: DOMAIN,
        domain_instructions: INSTRUCTION_SEQUENCE,
        ..Header::default()
    };
    let mut bytes = Vec::new();
    let next = Next::Transport { protocol: 6 };
    let hops = [hop(1, 5), hop(2, 6)];
    Embedded::write(Kind::EmbedData, next, &header, &hops, Some(77), &mut bytes).expect("fits");
    let (int, _) = Embedded::read(&bytes, DOMAIN).expect("good");
    assert_eq!((int.sequence, int.hops_count()), (Some(77), 2));
    assert_eq!(int.hops().collect::<Vec<_>>(), hops);
    // The words that the source of another domain has below its hop are skipped.
    bytes[10..12].copy_from_slice(&7u16.to_be_bytes());
    let (int, _) = Embedded::read(&bytes, DOMAIN).expect("good");
    assert_eq!((int.sequence, int.hops_count()), (None, 2));
    // They are the number for a reader of that domain.
    assert_eq!(Embedded::read(&bytes, 7).expect("good").0.sequence, Some(77));
}

#[test]
fn lengths_that_lie_and_other_versions_are_errors() {
    let check = |at: usize, byte: u8, expected: &str| {
        let mut bytes = example();
        bytes[at] = byte;
        let why = Embedded::read(&bytes, DOMAIN).expect_err(expected).to_string();
        assert!(why.contains(expected), "{why}");
    };
    check(0, 0x28, "the shim has type 2");
    check(0, 0x1c, "next protocol type 3");
    check(1, 8, "needs 32 bytes, and 28 are left");
    check(1, 255, "needs 1020 bytes, and 28 are left");
    check(1, 6, "not a whole number of hops");
    check(1, 2, "an INT header needs 2 bytes, and 0 are left");
    check(4, 0x30, "version 3; this build reads version 2");
    check(6, 0x03, "not a whole number of hops of 12 bytes");
    check(6, 0x00, "not a whole number of hops of 0 bytes");
    check(8, 0xff, "its instructions need 11");
    for end in 0..example().len() {
        assert!(Embedded::read(&example()[..end], DOMAIN).is_err(), "{end}");
    }
}

#[test]
fn int_is_found_over_both_versions_of_ip() {
    for packet in [ipv4, ipv6] {
        let tcp = [&example()[..], &[0x30, 0x39, 0x00, 0x50]].concat();
        let bytes = packet(17, &udp(INT_PORT, &tcp));
        let read = Packet::read(&bytes, INT_PORT, DOMAIN).expect("good");
        let flow = read.flow;
        assert_eq!((flow.protocol, flow.source_port, flow.destination_port), (6, 12345, 80));
        assert_eq!(read.embedded.expect("INT").hops_count(), 2);
        assert_eq!(flow.source.is_ipv4(), flow.destination.is_ipv4());
        // Another port is another program's.
        assert!(Packet::read(&bytes, INT_PORT + 1, DOMAIN).expect("good").embedded.is_none());
        // Cut off after the stack: the ports of the original packet are missing.
        assert!(Packet::read(&bytes[..bytes.len() - 1], INT_PORT, DOMAIN).is_err());
        let mut shim = example();
        shim[..4].copy_from_slice(&[0x14, 7, 0, 53]);
        let bytes = packet(17, &udp(INT_PORT, &shim));
        let flow = Packet::read(&bytes, INT_PORT, DOMAIN).expect("good").flow;
        assert_eq!((flow.protocol, flow.source_port, flow.destination_port), (17, 40_000, 53));
    }
    let why = |bytes: &[u8]| Packet::read(bytes, INT_PORT, DOMAIN).expect_err("odd").to_string();
    assert!(why(&[]).contains("needs 1 bytes"));
    assert!(why(&[0x50; 40]).contains("IP version 5"));
    assert!(why(&[0x44; 40]).contains("16 bytes"));
    let mut fragment = ipv4(17, &udp(INT_PORT, &example()));
    fragment[7] = 9;
    assert!(why(&fragment).contains("fragment"));
}

/// "Example with Baseline Metadata and Truncated IPv4".
fn report_example() -> Vec<u8> {
    let mut bytes =
        words(&[0x2080_0007, 42, 0x140e_0220, 0x5000_0000, 0, 0x0003_0004, 0x0100_1000]);
    bytes.extend(ipv4(6, &[0; 20]));
    bytes
}

#[test]
fn the_examples_of_reports_are_read() {
    let bytes = report_example();
    let mut reports = Reports::read(&bytes).expect("good");
    assert_eq!(reports.group, Group { hardware: 2, sequence: 7, node: 42 });
    let report = reports.next().expect("one").expect("good");
    let expected = Hop {
        ingress_port: Some(3),
        egress_port: Some(4),
        queue: Some(1),
        queue_bytes: Some(0x1000),
        ..Hop::default()
    };
    assert_eq!(report.hop, expected);
    assert_eq!(report.inner, Inner::Ip(&bytes[28..]));
    let flags = (report.dropped, report.congested, report.tracked, report.intermediate);
    assert_eq!(flags, (false, false, true, false));
    assert!(reports.next().is_none());
    let mut written = Vec::new();
    write_group(&reports.group, &mut written);
    write_report(&report, Instructions::of(&[Field::Ports, Field::Queue]), &mut written);
    assert_eq!(written, bytes);
    // "Example with Baseline Metadata, Domain Specific Metadata, DS Extension Data and Truncated IPv4".
    let mut bytes = words(&[0x2000_0001, 42, 0x110d_0320, 0x5000_0001, 0x8000_0000, 1, 2, 3]);
    bytes.extend(words(&[0x0001_0001, 9, 0x2005_0000]));
    bytes.extend(ipv4(6, &[]));
    let report = Reports::read(&bytes).expect("good").next().expect("one").expect("good");
    assert_eq!((report.domain, report.inner), (1, Inner::Ip(&bytes[44..])));
}

#[test]
fn a_report_of_a_drop_has_its_reason() {
    let bytes = words(&[0x2000_0001, 42, 0x1004_0280, 0x4001_0000, 0, 0x0001_0002, 0x0705_0000]);
    let report = Reports::read(&bytes).expect("good").next().expect("one").expect("good");
    assert!(report.dropped);
    assert_eq!((report.hop.drop_reason, report.hop.queue), (Some(5), Some(7)));
    let mut written = bytes[..8].to_vec();
    write_report(&report, Instructions::of(&[Field::Ports]), &mut written);
    assert_eq!(written, bytes);
}

#[test]
fn odd_reports_are_errors() {
    let check = |at: usize, byte: u8, expected: &str| {
        let mut bytes = report_example();
        bytes[at] = byte;
        let first = Reports::read(&bytes).and_then(|mut reports| reports.next().expect("one"));
        let why = first.expect_err(expected).to_string();
        assert!(why.contains(expected), "{why}");
    };
    check(0, 0x10, "version 1");
    check(0, 0x30, "version 3; this build reads version 2");
    check(8, 0x24, "type 2");
    check(8, 0x17, "inner type is 7");
    check(9, 15, "needs 60 bytes, and 56 are left");
    check(9, 3, "needs 8 bytes, and 4 are left");
    check(10, 13, "needs 52 bytes");
    check(10, 1, "need 2 words");
    // Reports behind a damaged report cannot be found.
    let mut bytes = report_example();
    let whole = bytes.clone();
    bytes.extend(&whole[8..]);
    assert_eq!(Reports::read(&bytes).expect("good").filter(Result::is_ok).count(), 2);
    bytes[8] = 0xf4;
    let all: Vec<_> = Reports::read(&bytes).expect("good").collect();
    assert_eq!((all.len(), all[0].is_err()), (1, true));
    assert!(matches!(Reports::read(&bytes[..7]), Err(Error::Short { .. })));
}

prop_compose! {
    fn any_hop()(
        node in proptest::option::of(0..u32::MAX),
        ports in proptest::option::of((0..u16::MAX, 0..u16::MAX)),
        latency_ns in proptest::option::of(0..u32::MAX),
        queue in proptest::option::of((0..u8::MAX, 0..0xff_ffffu32)),
        times in proptest::option::of((0..u64::MAX, 0..u64::MAX)),
        utilisation_ppm in proptest::option::of(0..u32::MAX),
    ) -> Hop {
        Hop {
            node,
            ingress_port: ports.map(|p| p.0),
            egress_port: ports.map(|p| p.1),
            latency_ns,
            queue: queue.map(|q| q.0),
            queue_bytes: queue.map(|q| q.1),
            ingress_ns: times.map(|t| t.0),
            egress_ns: times.map(|t| t.1),
            utilisation_ppm,
            drop_reason: None,
        }
    }
}

proptest! {
    #[test]
    fn written_packets_are_read(
        hops in proptest::collection::vec(any_hop(), 0..8),
        sequence in any::<u32>(),
        remaining in any::<u8>(),
    ) {
        let header = Header {
            hop_words: 9,
            remaining,
            instructions: Instructions::ALL_OF_PLANE,
            domain: DOMAIN,
            domain_instructions: INSTRUCTION_SEQUENCE,
            ..Header::default()
        };
        let mut bytes = Vec::new();
        let next = Next::UdpPayload { port: 9 };
        Embedded::write(Kind::EmbedData, next, &header, &hops, Some(sequence), &mut bytes).expect("fits");
        let (int, rest) = Embedded::read(&bytes, DOMAIN).expect("was written");
        prop_assert!(rest.is_empty());
        prop_assert_eq!(int.header, header);
        prop_assert_eq!(int.sequence, Some(sequence));
        prop_assert_eq!(int.hops().collect::<Vec<_>>(), hops);
    }

    #[test]
    fn reports_that_are_written_are_read(hop in any_hop(), flags in any::<[bool; 4]>(), domain in any::<u16>(), packet in 0..200usize) {
        let packet = ipv4(17, &vec![7; packet * 4]);
        let hop = Hop { node: None, ..hop };
        let [dropped, congested, tracked, intermediate] = flags;
        let report = Report { dropped, congested, tracked, intermediate, domain, hop, inner: Inner::Ip(&packet) };
        let group = Group { hardware: 1, sequence: 3, node: 5 };
        let mut bytes = Vec::new();
        write_group(&group, &mut bytes);
        write_report(&report, Instructions::ALL_OF_PLANE, &mut bytes);
        let mut reports = Reports::read(&bytes).expect("was written");
        prop_assert_eq!(reports.group, group);
        let read = reports.next().expect("one").expect("good");
        prop_assert_eq!((read.domain, read.hop), (domain, hop));
        prop_assert_eq!([read.dropped, read.congested, read.tracked, read.intermediate], flags);
        prop_assert!(reports.next().is_none());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Packet::read(&bytes, INT_PORT, DOMAIN);
        if let Ok((int, _)) = Embedded::read(&bytes, DOMAIN) {
            prop_assert_eq!(int.hops().count(), int.hops_count());
        }
        if let Ok(reports) = Reports::read(&bytes) {
            prop_assert!(reports.count() <= bytes.len());
        }
    }
}
