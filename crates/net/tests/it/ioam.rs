//! IOAM through the kernel of this machine: a host, a router and a host.

use std::net::{Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skopos_net::Key;
use skopos_net::collector::{Collector, CollectorSettings};
use skopos_net::int::DOMAIN;
use skopos_net::ioam::{ProbeSink, Prober, TraceRequest, receive, receive_options, set_trace};
use skopos_net::netns::Namespace;

use crate::chain::{Chain, cannot};
use crate::collector::Facts;

const NAMESPACE: u16 = 123;

/// Makes the switch of a chain a router, and all nodes know the namespace.
fn configured() -> Chain {
    let chain = Chain::new(1);
    for (node, words) in [
        (1, "link set p1 nomaster"),
        (1, "link set p2 nomaster"),
        (1, "address add fd0a::1/64 dev p1 nodad"),
        (1, "address add fd0b::1/64 dev p2 nodad"),
        // A router asks for its neighbours from its link-local address.
        (1, "address add fe80::1/64 dev p1 nodad"),
        (1, "address add fe80::2/64 dev p2 nodad"),
        (0, "address add fd0a::2/64 dev eth0 nodad"),
        (2, "address add fd0b::2/64 dev eth0 nodad"),
        (0, "route add fd0b::/64 via fd0a::1"),
        (2, "route add fd0a::/64 via fd0b::1"),
        (1, "ioam namespace add 123 data 0x17"),
        (2, "ioam namespace add 123 data 0xbad"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        chain.run(node, &[&["ip", "-6"][..], &words].concat());
    }
    let set = |node: usize, key: &str, value: &str| {
        chain.run(node, &["sh", "-c", &format!("echo {value} >/proc/sys/net/ipv6/{key}")]);
    };
    set(1, "conf/all/forwarding", "1");
    for (node, interface) in [(1, "p1"), (1, "p2"), (2, "eth0")] {
        set(node, &format!("conf/{interface}/ioam6_enabled"), "1");
    }
    set(1, "ioam6_id", "11");
    set(2, "ioam6_id", "12");
    set(1, "conf/p1/ioam6_id", "1");
    set(1, "conf/p2/ioam6_id", "2");
    chain
}

fn socket(chain: &Chain, node: usize, port: u16) -> UdpSocket {
    let namespace: Namespace = chain.switch(node);
    let socket =
        namespace.run(|| Ok(UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)))).expect("runs");
    let socket = socket.expect("a port");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    socket
}

/// Returns true, and says it, if the kernel has no IOAM.
fn has_no_ioam() -> bool {
    let is_absent = !std::path::Path::new("/proc/sys/net/ipv6/ioam6_id").exists();
    if is_absent {
        println!("skipped: this kernel has no IOAM (Linux 5.15)");
    }
    is_absent
}

#[test]
fn kernels_on_the_way_fill_a_trace() {
    if cannot() || has_no_ioam() {
        return;
    }
    let chain = configured();
    let (sender, receiver) = (socket(&chain, 0, 0), socket(&chain, 2, 7000));
    receive_options(&receiver).expect("IPv6");
    let to = ("fd0b::2".parse::<Ipv6Addr>().expect("an address"), 7000);
    let mut buffer = [0; 64];
    sender.send_to(b"without", to).expect("sent");
    let received = receive(&receiver, &mut buffer).expect("arrived");
    assert_eq!((received.bytes, received.trace), (7, Ok(None)));
    assert_eq!(received.from.to_string(), "fd0a::2");
    set_trace(&sender, TraceRequest { namespace: NAMESPACE, nodes: 4 }).expect("root");
    sender.send_to(b"with a trace", to).expect("sent");
    let received = receive(&receiver, &mut buffer).expect("arrived");
    assert_eq!(&buffer[..received.bytes], b"with a trace");
    let trace = received.trace.expect("well-formed").expect("a trace");
    assert_eq!((trace.namespace, trace.overflow), (NAMESPACE, false));
    let nodes: Vec<_> =
        trace.nodes.iter().map(|node| (node.node, node.ingress, node.data)).collect();
    assert_eq!(nodes[0], (Some(11), Some(1), Some(0x17)));
    assert_eq!(trace.nodes[0].egress, Some(2));
    assert_eq!((nodes[1].0, nodes[1].2), (Some(12), Some(0xbad)), "the anomaly code of the host");
    let times: Vec<_> = trace.nodes.iter().map(|node| (node.seconds, node.microseconds)).collect();
    assert!(times[0] <= times[1] && times[0].0.is_some(), "{times:?}");
    // Room for one node only.
    set_trace(&sender, TraceRequest { namespace: NAMESPACE, nodes: 1 }).expect("root");
    sender.send_to(b"short", to).expect("sent");
    let trace = receive(&receiver, &mut buffer).expect("arrived").trace;
    let trace = trace.expect("well-formed").expect("a trace");
    assert_eq!((trace.overflow, trace.nodes.len(), trace.nodes[0].node), (true, 1, Some(11)));
}

#[test]
fn a_probe_becomes_a_report_of_its_path() {
    if cannot() || has_no_ioam() {
        return;
    }
    let chain = configured();
    let key = Key::new(b"a key of the site").expect("long enough");
    let mut settings = CollectorSettings::new(vec![("::1".parse().expect("an address"), 128)]);
    settings.key = Some(key.clone());
    let at = |node: usize| chain.switch(node);
    let listen = "[::1]:0".parse().expect("an address");
    let mut collector = at(2).run(|| Collector::new(listen, settings)).expect("runs");
    let to = collector.address().expect("an address");
    let request = TraceRequest { namespace: NAMESPACE, nodes: 4 };
    let listen = "[fd0b::2]:7365".parse().expect("an address");
    let open = || ProbeSink::open(listen, (40, DOMAIN), to, key.clone());
    let mut sink = at(2).run(open).expect("runs").of_namespace(NAMESPACE);
    let peer = "[fd0b::2]:7365".parse().expect("an address");
    let open = || Prober::open(&[peer], request, key.clone());
    let mut prober = at(0).run(open).expect("runs");
    let other = Key::new(b"a key of another site").expect("long enough");
    let open = || Prober::open(&[peer], request, other);
    let mut forger = at(0).run(open).expect("runs");
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("now").as_nanos() as u64;
    let mut facts = Facts::default();
    let begin = Instant::now();
    for round in 0..3 {
        prober.send(now());
        forger.send(now());
        // Of another hour.
        prober.send(now() - 3_600_000_000_000);
        let taken = 3 * (round + 1);
        while sink.counts().taken + sink.counts().forged + sink.counts().stale < taken {
            sink.receive(now()).expect("received");
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", sink.counts());
        }
    }
    while collector.counts().reports < 3 {
        collector.receive(begin.elapsed()).expect("received");
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", collector.counts());
    }
    assert_eq!((sink.counts().forged, sink.counts().stale, sink.counts().taken), (3, 3, 3));
    collector.publish(&mut facts);
    let of = |metric: &str| facts.get(&format!("path/fd0a__2-fd0b__2/{metric}"));
    assert_eq!(of("packets_total"), Some("3"));
    // The stale ones between them.
    assert_eq!((of("lost_total"), of("changes_total")), (Some("2"), Some("0")));
    let latency = of("latency_seconds").and_then(|text| text.parse::<f64>().ok());
    assert!(latency.is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{latency:?}");
    assert_eq!(facts.get("port/11-2/packets_total"), Some("3"), "the router");
    let data: Vec<_> = sink.nodes(now()).iter().map(|(node, data)| (*node, *data)).collect();
    assert_eq!(data, [(11, 0x17), (12, 0xbad)]);
}
