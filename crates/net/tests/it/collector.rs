//! The collector, fed with datagrams.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured};
use skopos_net::Key;
use skopos_net::collector::{Collector, CollectorSettings, FactSink, MAX_PATHS};
use skopos_net::int::{
    DOMAIN, Embedded, Group, Header, Hop, INSTRUCTION_SEQUENCE, Inner, Instructions, Kind, Next,
    Report, write_group, write_report,
};
use skopos_net::plane::INT_PORT;

const FROM: &str = "10.0.0.9";

/// A time of the day, in nanoseconds.
const BEGIN: u64 = 1_800_000_000_000_000_000;

/// The facts, by family, instance and metric.
#[derive(Default)]
pub(crate) struct Facts(BTreeMap<String, String>);

impl Facts {
    pub(crate) fn get(&self, topic: &str) -> Option<&str> {
        self.0.get(topic).map(String::as_str)
    }
}

fn shown(value: Scalar) -> String {
    match value {
        Scalar::F64(number) => number.to_string(),
        Scalar::I64(number) => number.to_string(),
        Scalar::U64(number) => number.to_string(),
    }
}

fn topic(metric: &Metric, instance: &str) -> String {
    let between = if instance.is_empty() { "" } else { "/" };
    format!("{}{between}{instance}/{}", metric.path, metric.name)
}

impl FactSink for Facts {
    fn set(&mut self, metric: &'static Metric, instance: &str, value: Scalar) {
        assert_eq!(value.value_type(), metric.value_type, "{}", metric.name);
        assert!(skopos_model::Topic::new(&format!("n01/{}", topic(metric, instance))).is_ok());
        self.0.insert(topic(metric, instance), shown(value));
    }

    fn set_structured(&mut self, metric: &'static Metric, instance: &str, value: &Structured) {
        self.0.insert(topic(metric, instance), value.as_json().to_string());
    }

    fn remove(&mut self, family: &'static Family, instance: &str) {
        let prefix = format!("{}/{instance}/", family.name);
        self.0.retain(|topic, _| !topic.starts_with(&prefix));
    }
}

/// A datagram of sink 9 with one report about a packet.
struct Datagram {
    number: u32,
    sequence: u32,
    nodes: &'static [u32],
    destination: [u8; 4],
    /// Milliseconds after [`BEGIN`] at which the packet begins.
    at_ms: u64,
    mtu_exceeded: bool,
    /// The domain of the sink, and that of the source of the packet.
    domains: [u16; 2],
}

impl Datagram {
    fn new(number: u32) -> Self {
        Self {
            number,
            sequence: number,
            nodes: &[1, 2],
            destination: [10, 9, 0, 2],
            at_ms: u64::from(number) * 10,
            mtu_exceeded: false,
            domains: [DOMAIN; 2],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let begin = BEGIN + self.at_ms * 1_000_000;
        let hops: Vec<Hop> = (0..)
            .zip(self.nodes)
            .map(|(at, node)| Hop {
                node: Some(*node),
                ingress_port: Some(1),
                egress_port: Some(2),
                latency_ns: Some(1_000_000 * node),
                queue: Some(0),
                queue_bytes: Some(1000 * node),
                ingress_ns: Some(begin + at * 2_000_000),
                egress_ns: Some(begin + at * 2_000_000 + 1_000_000),
                utilisation_ppm: Some(250_000),
                drop_reason: None,
            })
            .collect();
        let header = Header {
            hop_words: 9,
            remaining: 8,
            instructions: Instructions::ALL_OF_PLANE,
            domain: self.domains[1],
            domain_instructions: INSTRUCTION_SEQUENCE,
            mtu_exceeded: self.mtu_exceeded,
            ..Header::default()
        };
        let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1];
        packet.extend(self.destination);
        packet.extend([0xc0, 0]);
        packet.extend(INT_PORT.to_be_bytes());
        packet.extend([0; 4]);
        let next = Next::Transport { protocol: 6 };
        Embedded::write(Kind::EmbedData, next, &header, &hops, Some(self.sequence), &mut packet)
            .expect("fits");
        packet.extend([0x30, 0x39, 0, 80, 0, 0, 0, 1]);
        let own =
            Hop { ingress_ns: Some(begin + 5_000_000), ingress_port: Some(1), ..Hop::default() };
        let report = Report {
            dropped: false,
            congested: false,
            tracked: true,
            intermediate: false,
            domain: self.domains[0],
            hop: own,
            inner: Inner::Ip(&packet),
        };
        let mut datagram = Vec::new();
        write_group(&Group { hardware: 0, sequence: self.number, node: 9 }, &mut datagram);
        let fields = [skopos_net::int::Field::Ports, skopos_net::int::Field::IngressTime];
        write_report(&report, Instructions::of(&fields), &mut datagram);
        datagram
    }
}

fn collector(change: impl FnOnce(&mut CollectorSettings)) -> Collector {
    let mut settings = CollectorSettings::new(vec![("10.0.0.0".parse().expect("good"), 8)]);
    change(&mut settings);
    Collector::new(([127, 0, 0, 1], 0).into(), settings).expect("a free port")
}

fn from() -> IpAddr {
    FROM.parse().expect("an address")
}

fn give(collector: &mut Collector, datagrams: &[Datagram]) -> Facts {
    for datagram in datagrams {
        collector.handle(from(), &datagram.bytes(), Duration::from_secs(1));
    }
    let mut facts = Facts::default();
    collector.publish(&mut facts);
    facts
}

#[test]
fn reports_of_another_domain_are_refused_and_counted() {
    let mut collector = collector(|_| ());
    let of = |number, domains| Datagram { domains, ..Datagram::new(number) };
    let facts = give(&mut collector, &[of(1, [DOMAIN; 2]), of(2, [0, DOMAIN]), of(3, [DOMAIN, 0])]);
    assert_eq!(facts.get("telemetry/foreign_domains_total"), Some("0"));
    assert_eq!(facts.get("int_node/9/reports_total"), Some("3"));
    // A sink of another domain has the number of ours, and a packet may come from a source of another one.
    let others = [of(900, [7, DOMAIN]), of(4, [DOMAIN, 7]), of(5, [DOMAIN; 2])];
    let facts = give(&mut collector, &others);
    assert_eq!(facts.get("telemetry/foreign_domains_total"), Some("2"));
    assert_eq!(facts.get("int_node/9/reports_total"), Some("4"));
    assert_eq!(facts.get("int_node/9/lost_total"), Some("0"));
    assert_eq!(collector.counts().malformed, 0);
}

#[test]
fn reports_become_facts_of_paths_ports_and_nodes() {
    let mut collector = collector(|_| {});
    let facts = give(&mut collector, &[Datagram::new(0), Datagram::new(1)]);
    let path = "path/10.9.0.1-10.9.0.2";
    for (topic, expected) in [
        ("packets_total", "2"),
        ("lost_total", "0"),
        ("changes_total", "0"),
        ("latency_seconds", "0.005"),
        ("hops_latency_seconds", "0.003"),
        ("queue_bytes_max", "2000"),
    ] {
        assert_eq!(facts.get(&format!("{path}/{topic}")), Some(expected), "{topic}");
    }
    let hops: serde_json::Value =
        serde_json::from_str(facts.get(&format!("{path}/hops")).expect("hops")).expect("JSON");
    assert_eq!(hops[1]["node"], 2);
    assert_eq!(hops[1]["queue_bytes"], 2000);
    assert_eq!(facts.get("port/2-2/queue_bytes"), Some("2000"));
    assert_eq!(facts.get("port/2-2/latency_seconds"), Some("0.002"));
    assert_eq!(facts.get("port/2-2/used_ratio"), Some("0.25"));
    assert_eq!(facts.get("int_node/9/reports_total"), Some("2"));
    assert_eq!(facts.get("telemetry/reports_total"), Some("2"));
    assert_eq!(facts.get("telemetry/malformed_total"), Some("0"));
    // Nothing new: the facts of the present are not set again.
    let facts = give(&mut collector, &[]);
    assert_eq!(facts.get(&format!("{path}/latency_seconds")), None);
    assert_eq!(facts.get(&format!("{path}/packets_total")), Some("2"));
}

#[test]
fn loss_and_changes_of_a_path_are_counted_at_the_packet_that_shows_them() {
    let mut collector = collector(|_| {});
    let numbers = |facts: &Facts| {
        ["packets_total", "lost_total", "changes_total"].map(|name| {
            facts
                .get(&format!("path/10.9.0.1-10.9.0.2/{name}"))
                .expect("set")
                .parse::<u64>()
                .expect("a number")
        })
    };
    let facts = give(&mut collector, &[Datagram::new(0), Datagram::new(4)]);
    assert_eq!(numbers(&facts), [2, 3, 0]);
    let facts = give(&mut collector, &[Datagram::new(2)]);
    assert_eq!(numbers(&facts), [3, 2, 0]);
    let facts = give(&mut collector, &[Datagram { nodes: &[1, 3, 2], ..Datagram::new(5) }]);
    assert_eq!(numbers(&facts), [4, 2, 1]);
    // A hop that left its data out is not another path.
    let without = Datagram { nodes: &[1, 2], mtu_exceeded: true, ..Datagram::new(6) };
    let facts =
        give(&mut collector, &[without, Datagram { nodes: &[1, 3, 2], ..Datagram::new(7) }]);
    assert_eq!(numbers(&facts), [6, 2, 1]);
    // The source began anew: it says so by its time.
    let anew = Datagram { sequence: 0, at_ms: 1000, nodes: &[1, 3, 2], ..Datagram::new(8) };
    let next = Datagram { sequence: 2, at_ms: 1010, nodes: &[1, 3, 2], ..Datagram::new(9) };
    assert_eq!(numbers(&give(&mut collector, &[anew, next])), [8, 3, 1]);
}

#[test]
fn a_first_packet_without_all_hops_is_not_another_path() {
    let mut collector = collector(|_| {});
    let without = Datagram { nodes: &[1], mtu_exceeded: true, ..Datagram::new(0) };
    let facts = give(&mut collector, &[without, Datagram::new(1)]);
    assert_eq!(facts.get("path/10.9.0.1-10.9.0.2/changes_total"), Some("0"));
}

#[test]
fn a_forger_is_refused_before_its_datagrams_are_parsed() {
    let key = Key::new(b"a key of the site").expect("long enough");
    let own = key.clone();
    let mut collector = collector(|settings| {
        settings.key = Some(own);
        settings.datagrams_per_second = 10;
    });
    let now = Duration::from_secs(1);
    let tagged = |number| {
        let mut bytes = Datagram::new(number).bytes();
        key.append(&mut bytes);
        bytes
    };
    collector.handle("192.0.2.1".parse().expect("good"), &tagged(0), now);
    assert_eq!(collector.counts().refused_sources, 1);
    collector.handle(from(), &Datagram::new(0).bytes(), now);
    assert_eq!(collector.counts().bad_tags, 1);
    collector.handle(from(), &tagged(0), now);
    collector.handle(from(), &tagged(1), now);
    assert_eq!((collector.counts().reports, collector.counts().replays), (2, 0));
    // A datagram that was recorded on the network is not new.
    collector.handle(from(), &tagged(0), now);
    collector.handle(from(), &tagged(1), now);
    assert_eq!((collector.counts().reports, collector.counts().replays), (2, 2));
    for _ in 0..100 {
        collector.handle(from(), &tagged(2), now);
    }
    let counts = collector.counts();
    assert_eq!(counts.over_quota, 100 - 5);
    assert_eq!(counts.datagrams, 106);
    // After a second it may send again.
    collector.handle(from(), &tagged(3), now + Duration::from_secs(1));
    assert_eq!(collector.counts().over_quota, 95);
}

#[test]
fn a_packet_that_comes_late_is_in_the_maxima_and_not_in_the_present() {
    let mut collector = collector(|_| {});
    let path = |name: &str| format!("path/10.9.0.1-10.9.0.2/{name}");
    let late = || Datagram { nodes: &[1, 9], ..Datagram::new(2) };
    let facts = give(&mut collector, &[Datagram::new(0), Datagram::new(4), late()]);
    assert_eq!(facts.get(&path("queue_bytes_max")), Some("9000"));
    assert_eq!(facts.get(&path("hops_latency_seconds")), Some("0.003"), "of the newest packet");
    let another = Datagram { number: 5, sequence: 3, ..late() };
    let facts = give(&mut collector, &[another]);
    assert_eq!(facts.get(&path("queue_bytes_max")), Some("9000"));
    assert_eq!(facts.get(&path("latency_seconds")), None, "nothing new is known");
}

#[test]
fn a_recorded_datagram_is_refused_after_its_number_came_again() {
    let key = Key::new(b"a key of the site").expect("long enough");
    let own = key.clone();
    let mut collector = collector(|settings| settings.key = Some(own));
    // The second and the third have numbers that datagrams had hours ago, which the numbers have not reached again.
    for (number, at_ms) in [(10, 7_200_000), (500_000, 0), (11, 0), (11, 7_200_010)] {
        let mut bytes = Datagram { at_ms, ..Datagram::new(number) }.bytes();
        key.append(&mut bytes);
        collector.handle(from(), &bytes, Duration::from_secs(1));
    }
    assert_eq!((collector.counts().reports, collector.counts().replays), (2, 2));
    let mut facts = Facts::default();
    collector.publish(&mut facts);
    assert_eq!(facts.get("int_node/9/lost_total"), Some("0"));
    // A node whose clock was set back is heard again after a minute.
    for (number, at_ms, second) in [(12, 0, 30), (500, 10, 62), (501, 20, 62)] {
        let mut bytes = Datagram { at_ms, ..Datagram::new(number) }.bytes();
        key.append(&mut bytes);
        collector.handle(from(), &bytes, Duration::from_secs(second));
    }
    assert_eq!((collector.counts().reports, collector.counts().replays), (4, 3));
}

#[test]
fn a_reporter_that_began_anew_is_heard() {
    let key = Key::new(b"a key of the site").expect("long enough");
    let own = key.clone();
    let mut collector = collector(|settings| settings.key = Some(own));
    for (number, at_ms) in [(500, 0), (501, 10), (0, 2000), (1, 2010)] {
        let mut bytes = Datagram { at_ms, ..Datagram::new(number) }.bytes();
        key.append(&mut bytes);
        collector.handle(from(), &bytes, Duration::from_secs(1));
    }
    assert_eq!((collector.counts().reports, collector.counts().replays), (4, 0));
}

#[test]
fn paths_beyond_the_bound_are_counted() {
    let mut collector = collector(|_| {});
    for number in 0..MAX_PATHS as u32 + 5 {
        let [_, _, high, low] = number.to_be_bytes();
        let datagram = Datagram { destination: [10, 200, high, low], ..Datagram::new(number) };
        collector.handle(from(), &datagram.bytes(), Duration::from_secs(u64::from(number) / 1000));
    }
    assert_eq!(collector.sizes().0, MAX_PATHS);
    assert_eq!(collector.counts().beyond_bounds, 5);
}

#[test]
fn damaged_datagrams_are_counted_and_change_nothing_else() {
    let mut collector = collector(|_| {});
    let good = Datagram::new(0).bytes();
    for end in 0..good.len() {
        collector.handle(from(), &good[..end], Duration::from_secs(1));
    }
    let counts = collector.counts();
    // A header of a group without a report is good.
    assert_eq!((counts.malformed, counts.reports), (good.len() as u64 - 1, 0));
    assert_eq!(collector.sizes().0, 0);
}

#[test]
fn datagrams_come_through_a_socket() {
    let mut collector =
        collector(|settings| settings.sources = vec![("127.0.0.0".parse().expect("good"), 8)]);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = collector.address().expect("bound");
    for number in 0..100 {
        sender.send_to(&Datagram::new(number).bytes(), address).expect("sent");
    }
    let mut facts = Facts::default();
    // The loopback hands datagrams over at once.
    assert_eq!(collector.poll(Duration::from_secs(1), &mut facts).expect("received"), 100);
    assert_eq!(facts.get("path/10.9.0.1-10.9.0.2/packets_total"), Some("100"));
    assert_eq!(facts.get("telemetry/kernel_drops_total"), Some("0"));
}

#[test]
fn a_flood_from_other_addresses_is_dropped_by_the_kernel_and_counted() {
    let mut collector = collector(|settings| {
        settings.sources = vec![
            ("fd00::".parse().expect("good"), 20),
            ("10.0.0.0".parse().expect("good"), 8),
            ("127.0.0.1".parse().expect("good"), 32),
        ];
    });
    let address = collector.address().expect("bound");
    let flood = UdpSocket::bind("127.0.0.2:0").expect("the loopback has it");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
    // More than the buffer holds, so that a flood in it would displace reports.
    for number in 0..50_000 {
        flood.send_to(&[7; 1000], address).expect("sent");
        if number % 1000 == 0 {
            sender.send_to(&Datagram::new(number / 1000).bytes(), address).expect("sent");
        }
    }
    let mut facts = Facts::default();
    assert_eq!(collector.poll(Duration::from_secs(1), &mut facts).expect("received"), 50);
    let counts = collector.counts();
    assert_eq!((counts.reports, counts.refused_sources), (50, 0));
    assert_eq!(counts.kernel_drops, 50_000);
    assert_eq!(facts.get("telemetry/kernel_drops_total"), Some("50000"));
}

#[test]
fn the_filter_of_the_kernel_knows_networks_of_both_versions() {
    let check = |network: &str, bits, bind: &str, passes: bool| {
        let mut settings = CollectorSettings::new(vec![(network.parse().expect("good"), bits)]);
        settings.datagrams_per_second = u32::MAX;
        let own: IpAddr =
            if bind.contains('.') { [127, 0, 0, 1].into() } else { IpAddr::V6(1u128.into()) };
        let mut collector = Collector::new((own, 0).into(), settings).expect("a free port");
        let Ok(sender) = UdpSocket::bind((bind, 0)) else {
            return println!("skipped: {bind} is not an address of this machine");
        };
        sender.send_to(&[7], collector.address().expect("bound")).expect("sent");
        let taken = collector.receive(Duration::from_secs(1)).expect("received");
        assert_eq!(taken, usize::from(passes), "{network}/{bits} {bind}");
    };
    check("127.0.0.0", 8, "127.1.2.3", true);
    check("127.1.0.0", 16, "127.1.2.3", true);
    check("127.1.0.0", 17, "127.1.200.3", false);
    check("127.1.2.3", 32, "127.1.2.4", false);
    check("0.0.0.0", 0, "127.1.2.4", true);
    check("::", 0, "127.1.2.4", false);
    check("::1", 128, "::1", true);
    check("::2", 128, "::1", false);
    check("::", 64, "::1", true);
    check("fd00::", 8, "::1", false);
    check("0.0.0.0", 0, "::1", false);
}
