//! The data plane on chains of network namespaces.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use skopos_bpf::Direction;
use skopos_net::Key;
use skopos_net::int::{DOMAIN, Inner, Instructions, Packet, Report, Reports};
use skopos_net::netns::Namespace;
use skopos_net::plane::{INT_PORT, Mode, Plane, PlaneSettings, Port, Reporter, Watch};

use crate::chain::{Chain, cannot};

/// The destination port that the sources watch.
const WATCHED: u16 = 7000;

/// A frame of UDP or TCP with `payload` bytes. Its checksums are right but for that of the transport header, which
/// is arbitrary: the data plane carries it as it is.
fn frame(version: u8, protocol: u8, port: u16, payload: usize) -> Vec<u8> {
    let mut transport = Vec::new();
    transport.extend(1234u16.to_be_bytes());
    transport.extend(port.to_be_bytes());
    if protocol == 17 {
        transport.extend(u16::try_from(8 + payload).expect("small").to_be_bytes());
        transport.extend([0xab, 0xcd]);
    } else {
        transport.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x20, 0, 0xab, 0xcd, 0, 0]);
    }
    transport.extend((0..payload).map(|at| (at * 7) as u8));
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1]);
    let total = u16::try_from(transport.len()).expect("small");
    if version == 4 {
        frame.extend([8, 0]);
        let mut head = vec![0x45, 0];
        head.extend((total + 20).to_be_bytes());
        head.extend([0, 9, 0x40, 0, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
        let sum: u32 = head.chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("folded");
        head[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(head);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([protocol, 64]);
        for last in [1, 2] {
            frame.extend([0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
    }
    frame.extend(transport);
    frame
}

/// The settings of switch `node` of a chain with two: the first is the source, the second the sink.
fn settings(node: u32, change: impl FnOnce(&mut PlaneSettings)) -> PlaneSettings {
    let mut settings = PlaneSettings::new(node);
    settings.watches = vec![Watch { destination_port: Some(WATCHED), ..Watch::default() }];
    let port =
        |interface: &str, id| Port { interface: interface.to_owned(), id, ..Port::default() };
    let (mut left, mut right) = (port("p1", 1), port("p2", 2));
    (left.transit, right.transit) = (true, true);
    match node {
        1 => left.source = Some(Direction::Ingress),
        _ => right.sink = Some(Direction::Egress),
    }
    settings.ports = vec![left, right];
    change(&mut settings);
    settings
}

fn planes(chain: &Chain, change: impl Fn(&mut PlaneSettings)) -> [Plane; 2] {
    [1, 2].map(|node| {
        let settings = settings(node, &change);
        Plane::open(&chain.switch(node as usize), settings)
            .unwrap_or_else(|e| panic!("{}", causes(&e)))
    })
}

fn causes(error: &dyn std::error::Error) -> String {
    let next = error.source().map(|source| format!(": {}", causes(source)));
    format!("{error}{}", next.unwrap_or_default())
}

/// The packets that a plane has reported.
fn reported(plane: &mut Plane) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    plane.events(|event| packets.push(event.packet.to_vec()));
    packets
}

#[test]
fn a_packet_leaves_the_sink_as_it_came_to_the_source() {
    if cannot() {
        return;
    }
    let chain = Chain::new(2);
    let [source, mut sink] = planes(&chain, |_| {});
    let mut frames = Vec::new();
    for version in [4, 6] {
        for protocol in [6, 17] {
            for payload in [0, 1, 17, 64, 700, 1301] {
                frames.push(frame(version, protocol, WATCHED, payload));
                frames.push(frame(version, protocol, WATCHED + 1, payload));
            }
        }
    }
    let arrived = chain.pass(&frames);
    assert_eq!(arrived.len(), frames.len());
    for (sent, arrived) in frames.iter().zip(&arrived) {
        assert_eq!(sent, arrived);
    }
    let watched = frames.len() as u64 / 2;
    let (first, last) = (source.counts().expect("counts"), sink.counts().expect("counts"));
    assert_eq!((first.sourced, first.transited), (watched, watched), "{first:?}");
    assert_eq!((last.transited, last.sunk, last.events_lost), (watched, watched, 0), "{last:?}");
    let packets = reported(&mut sink);
    assert_eq!(packets.len() as u64, watched);
    let mut sequences = Vec::new();
    for bytes in &packets {
        let packet = Packet::read(bytes, INT_PORT, DOMAIN).expect("INT");
        assert_eq!(packet.flow.destination_port, WATCHED);
        let int = packet.embedded.expect("INT");
        let hops: Vec<_> = int.hops().collect();
        let path: Vec<_> =
            hops.iter().map(|hop| (hop.node, hop.ingress_port, hop.egress_port)).collect();
        assert_eq!(path, [(Some(1), Some(1), Some(2)), (Some(2), Some(1), Some(2))]);
        for pair in hops.windows(2) {
            assert!(pair[0].ingress_ns < pair[1].ingress_ns);
        }
        assert!(hops.iter().all(|hop| hop.latency_ns.is_some() && hop.egress_ns > hop.ingress_ns));
        sequences.push((packet.flow.destination, int.sequence));
    }
    // Numbers count the packets to one address.
    for version in [true, false] {
        let own = sequences.iter().filter(|(address, _)| address.is_ipv4() == version);
        let numbers: Vec<_> = own.map(|(_, number)| number.expect("a number")).collect();
        assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn packets_that_would_not_fit_a_link_are_left_alone_and_counted() {
    if cannot() {
        return;
    }
    let chain = Chain::new(2);
    let [source, mut sink] = planes(&chain, |_| {});
    // 28 bytes for INT, 36 for a hop; headers of IPv4 and UDP take 28.
    let frames =
        [1472, 1445, 1444, 1409, 1408, 1373, 1372].map(|payload| frame(4, 17, WATCHED, payload));
    let arrived = chain.pass(&frames);
    assert_eq!(arrived, frames);
    let (first, last) = (source.counts().expect("counts"), sink.counts().expect("counts"));
    assert_eq!((first.sourced, first.transited), (5, 3), "{first:?}");
    assert_eq!(first.mtu_exceeded, 2 + 2);
    assert_eq!((last.transited, last.mtu_exceeded), (1, 4), "{last:?}");
    let found: Vec<_> = reported(&mut sink)
        .iter()
        .map(|bytes| {
            let int = Packet::read(bytes, INT_PORT, DOMAIN).expect("INT").embedded.expect("INT");
            (int.header.mtu_exceeded, int.hops_count())
        })
        .collect();
    assert_eq!(found, [(true, 0), (true, 0), (true, 1), (true, 1), (false, 2)]);
}

#[test]
fn a_hop_beyond_the_limit_adds_no_data_and_says_so() {
    if cannot() {
        return;
    }
    let chain = Chain::new(2);
    let [_source, mut sink] = planes(&chain, |settings| settings.hops = 1);
    let frames = [frame(4, 17, WATCHED, 100), frame(6, 6, WATCHED, 100)];
    assert_eq!(chain.pass(&frames), frames);
    assert_eq!(sink.counts().expect("counts").hops_exceeded, 2);
    for bytes in reported(&mut sink) {
        let int = Packet::read(&bytes, INT_PORT, DOMAIN).expect("INT").embedded.expect("INT");
        assert!(int.header.hops_exceeded);
        assert_eq!((int.hops_count(), int.header.remaining), (1, 0));
    }
}

#[test]
fn instructions_of_packets_decide_what_hops_add() {
    if cannot() {
        return;
    }
    let chain = Chain::new(2);
    // Node, ports, a value that this plane does not have, and a reserved bit.
    let bits = Instructions(0b1100_0010_0100_0000);
    let [_source, mut sink] = planes(&chain, |settings| settings.instructions = bits);
    let frames = [frame(4, 17, WATCHED, 100)];
    assert_eq!(chain.pass(&frames), frames);
    let packets = reported(&mut sink);
    let int = Packet::read(&packets[0], INT_PORT, DOMAIN).expect("INT").embedded.expect("INT");
    assert_eq!((int.header.instructions, int.header.hop_words), (bits, 5));
    let nodes: Vec<_> = int.hops().map(|hop| (hop.node, hop.egress_port, hop.latency_ns)).collect();
    assert_eq!(nodes, [(Some(1), Some(2), None), (Some(2), Some(2), None)]);
}

#[test]
fn hops_of_packets_with_instructions_report_by_themselves() {
    if cannot() {
        return;
    }
    for mode in [Mode::EmbedInstructions, Mode::Export] {
        let chain = Chain::new(2);
        let [mut source, mut sink] = planes(&chain, |settings| settings.mode = mode);
        if mode == Mode::Export {
            drop((source, sink));
            [source, sink] = planes(&chain, |settings| {
                settings.mode = mode;
                settings.ports.iter_mut().for_each(|port| (port.source, port.sink) = (None, None));
            });
        }
        let frames = [frame(4, 6, WATCHED, 100), frame(6, 17, WATCHED, 100)];
        assert_eq!(chain.pass(&frames), frames);
        let mut hops = Vec::new();
        source.events(|event| {
            hops.push((event.kind, event.hop.ingress_port, event.hop.latency_ns.is_some()))
        });
        assert_eq!(hops.len(), 2, "{mode:?}");
        assert!(hops.iter().all(|hop| hop.1 == Some(1) && hop.2), "{hops:?}");
        let expected = if mode == Mode::Export { 2 } else { 4 };
        let mut flows = Vec::new();
        let count = sink.events(|event| {
            flows.push(
                Packet::read(event.packet, INT_PORT, DOMAIN).expect("good").flow.destination_port,
            );
        });
        assert_eq!((count, flows), (expected, vec![WATCHED; expected]));
    }
}

#[test]
fn a_queue_shows_in_the_packets_that_wait_in_it() {
    if cannot() {
        return;
    }
    let chain = Chain::new(2);
    let shaped =
        ["tc", "qdisc", "add", "dev", "p2", "root", "tbf", "rate", "2mbit", "burst", "3000"];
    chain.run(1, &[&shaped[..], &["limit", "1000000"]].concat());
    let [_source, mut sink] = planes(&chain, |settings| {
        settings.ports[1].rate_bytes_per_second = Some(250_000);
    });
    let frames = vec![frame(4, 17, WATCHED, 1000); 40];
    assert_eq!(chain.pass(&frames).len(), 40);
    let mut queues = Vec::new();
    for bytes in reported(&mut sink) {
        let int = Packet::read(&bytes, INT_PORT, DOMAIN).expect("INT").embedded.expect("INT");
        let first = int.hops().next().expect("a hop");
        queues.push((first.queue_bytes.expect("followed"), first.latency_ns.expect("known")));
    }
    let (bytes, wait) = queues[queues.len() - 1];
    assert!(bytes > 20_000, "{queues:?}");
    // 4 ns a byte at 250 kB/s would be 4 us; the wait is that of the bytes before the packet.
    assert!(wait > 1_000_000, "{queues:?}");
    assert_eq!(queues[0].0, 0, "{queues:?}");
}

#[test]
fn a_reporter_sends_reports_that_are_read_and_tagged() {
    if cannot() {
        return;
    }
    let chain = Chain::new(2);
    let [_source, mut sink] = planes(&chain, |_| {});
    let here = Namespace::current().expect("procfs");
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
    collector.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let key = Key::new(b"a key of the site").expect("long enough");
    let address = collector.local_addr().expect("bound");
    let mut reporter =
        Reporter::open(&here, (2, DOMAIN), address, Some(key.clone())).expect("a socket");
    let frames = vec![frame(4, 17, WATCHED, 10); 30];
    assert_eq!(chain.pass(&frames).len(), 30);
    assert_eq!(reporter.poll(&mut sink).expect("polled"), 30);
    let counts = reporter.counts();
    assert_eq!((counts.reports, counts.failed), (30, 0));
    assert!(counts.datagrams < 30, "several reports share a datagram");
    let (mut reports, mut buffer) = (0, [0; 2000]);
    for number in 0..counts.datagrams {
        let bytes = collector.recv(&mut buffer).expect("a datagram");
        assert!(bytes <= 1400);
        let content = key.verified(&buffer[..bytes]).expect("a good tag");
        let group = Reports::read(content).expect("good");
        assert_eq!((u64::from(group.group.sequence), group.group.node), (number, 2));
        // A collector without the key reads the tag as a report without a packet.
        assert_eq!(
            Reports::read(&buffer[..bytes]).expect("good").count(),
            group.clone().count() + 1
        );
        for report in group {
            let report: Report<'_> = report.expect("good");
            let Inner::Ip(packet) = report.inner else { panic!("no packet") };
            assert_eq!(
                Packet::read(packet, INT_PORT, DOMAIN)
                    .expect("INT")
                    .embedded
                    .expect("INT")
                    .hops_count(),
                2
            );
            assert_eq!(
                report.hop.ingress_ns.map(|time| time / 1_000_000_000_000),
                Some(now() / 1000)
            );
            reports += 1;
        }
    }
    assert_eq!(reports, 30);
}

/// Seconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

#[test]
fn an_interface_that_does_not_exist_is_an_error_with_its_name() {
    if cannot() {
        return;
    }
    let here = Namespace::current().expect("procfs");
    let mut settings = PlaneSettings::new(1);
    settings.ports = vec![Port { interface: "nothere0".to_owned(), ..Port::default() }];
    let why = Plane::open(&here, settings).err().expect("no such interface").to_string();
    assert!(why.contains("there is no interface `nothere0`"), "{why}");
}

#[test]
fn the_committed_object_is_compiled_from_these_sources() {
    let checked = Command::new("sh")
        .args(["../../scripts/bpf", "--check", "crates/net/bpf"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("a shell");
    print!("{}", String::from_utf8_lossy(&checked.stdout));
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
