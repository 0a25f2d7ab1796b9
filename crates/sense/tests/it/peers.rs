//! Nodes that probe each other: several in this process, on loopback and in network namespaces, and
//! strangers that send arbitrary datagrams.

use std::fs::File;
use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use skopos_model::Timestamp;
use skopos_sense::{PeerSettings, open_peers};

use crate::support::{Host, Table};

/// Ends a test that would wait for ever. A working test never takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The length of every datagram.
const DATAGRAM_BYTES: usize = 112;

/// Ahead of this machine's clock by more than any network delays: a day and a bit.
const SHIFT_NANOS: i64 = 86_401_250_000_000;

fn skipped(reason: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

fn shifted_clock() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos();
    Timestamp::from_nanos(i64::try_from(since).expect("before 2262") + SHIFT_NANOS)
}

/// Returns free ports. They are below the range from which the kernel gives out ports, so that it
/// gives none of them away before the test uses them. Each is tried once in this process.
fn free_addresses<const N: usize>(ip: &str) -> [SocketAddr; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let ip = ip.parse().expect("an address");
    [(); N].map(|()| {
        loop {
            let port = 20_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000;
            let address = SocketAddr::new(ip, port);
            if UdpSocket::bind(address).is_ok() {
                return address;
            }
        }
    })
}

fn settings(node: &str, listen: Option<SocketAddr>, peers: &[(&str, SocketAddr)]) -> PeerSettings {
    PeerSettings {
        listen,
        peers: peers.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect(),
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(100),
        ..PeerSettings::of_node(node)
    }
}

fn node(settings: &PeerSettings) -> Host {
    let host = Host::of(open_peers(settings));
    assert!(host.skips.is_empty(), "{:?}", host.skips);
    host
}

/// Polls `nodes` each 20 ms until `is_so` of the facts of the first.
fn poll_until(nodes: &mut [&mut Host], what: &str, is_so: impl Fn(&Table) -> bool) {
    let start = Instant::now();
    loop {
        for host in nodes.iter_mut() {
            host.poll(0.02);
        }
        if is_so(&nodes[0].table) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {:#?}", nodes[0].table.snapshot());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answers(table: &Table, peer: &str) -> f64 {
    table.get(&format!("peer/{peer}/answered_total")).unwrap_or(0.0)
}

/// Checks that the offset of `peer` is `expected` within its own bound.
fn check_offset(table: &Table, peer: &str, expected: f64) {
    let value = |metric: &str| table.value(&format!("peer/{peer}/{metric}"));
    let (offset, bound) = (value("clock_offset_seconds"), value("clock_offset_bound_seconds"));
    // A double resolves a time in UNIX seconds to a quarter of a microsecond; offsets are smaller.
    assert!((offset - expected).abs() <= bound + 1e-9, "{peer}: {offset} within {bound}");
    let (rtt, least) = (value("rtt_seconds"), value("rtt_seconds_min"));
    assert!(0.0 < least && least <= rtt, "{peer}: {least} of {rtt}");
    assert!(bound >= least / 2.0, "{peer}: {bound} of {least}");
}

#[test]
fn nodes_see_each_other_and_each_others_clocks() {
    for ip in ["127.0.0.1", "::1"] {
        if let Err(e) = UdpSocket::bind((ip, 0)) {
            skipped(format!("peers at {ip}: {e}"));
            continue;
        }
        let [a, b, c] = free_addresses(ip);
        let mut first = node(&settings("a", Some(a), &[("b", b), ("c", c)]));
        let ahead = PeerSettings {
            wall_clock: shifted_clock,
            ..settings("b", Some(b), &[("a", a), ("c", c)])
        };
        let mut ahead = node(&ahead);
        let third = node(&settings("c", Some(c), &[]));
        let all = |table: &Table| answers(table, "b") >= 20.0 && answers(table, "c") >= 20.0;
        poll_until(&mut [&mut first, &mut ahead], "answers of b and c", all);
        check_offset(&first.table, "b", SHIFT_NANOS as f64 / 1e9);
        check_offset(&first.table, "c", 0.0);
        check_offset(&ahead.table, "a", SHIFT_NANOS as f64 / -1e9);
        for (host, peer) in [(&first, "b"), (&first, "c"), (&ahead, "a"), (&ahead, "c")] {
            assert_eq!(host.table.value(&format!("peer/{peer}/alive")), 1.0, "{ip} {peer}");
        }
        let seen_at = first.table.value("peer/b/seen_at_seconds");
        let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
        assert!(
            (now - PATIENCE.as_secs_f64()..=now).contains(&seen_at),
            "by this node's clock: {seen_at}"
        );
        assert_eq!(third.table.topics("peer/"), Vec::<&str>::new(), "it has no peers");
    }
}

#[test]
fn a_node_that_ends_is_dead_and_one_that_starts_is_alive() {
    let [a, b] = free_addresses("127.0.0.1");
    let mut watcher = node(&settings("a", Some(a), &[("b", b)]));
    let alive = |wanted: f64| move |table: &Table| table.get("peer/b/alive") == Some(wanted);
    poll_until(&mut [&mut watcher], "dead before it starts", alive(0.0));
    assert_eq!(watcher.table.get("peer/b/rtt_seconds"), None, "it has not answered yet");
    let watched = node(&settings("b", Some(b), &[]));
    poll_until(&mut [&mut watcher], "alive", alive(1.0));
    drop(watched);
    // Its port is free as soon as its sensors are gone: the thread has ended.
    drop(UdpSocket::bind(b).expect("the thread let go of the socket"));
    poll_until(&mut [&mut watcher], "dead", alive(0.0));
    let lost = watcher.table.value("peer/b/lost_total");
    assert!(lost >= 1.0, "{lost}");
    let again = node(&settings("b", Some(b), &[]));
    poll_until(&mut [&mut watcher], "alive again", alive(1.0));
    drop(again);
}

/// Facts from answers grow old with the last answer; facts about the present do not.
#[test]
fn facts_from_answers_are_set_once_an_answer_and_not_for_a_dead_peer() {
    let [b] = free_addresses("127.0.0.1");
    let mut watcher = node(&settings("a", None, &[("b", b)]));
    let other = node(&settings("b", Some(b), &[]));
    poll_until(&mut [&mut watcher], "answers", |t| answers(t, "b") >= 5.0);
    drop(other);
    poll_until(&mut [&mut watcher], "dead", |t| t.get("peer/b/alive") == Some(0.0));
    let brought =
        ["rtt_seconds", "rtt_seconds_min", "clock_offset_seconds", "clock_offset_bound_seconds"];
    let sets = |host: &Host, metric: &str| host.table.sets(&format!("peer/b/{metric}"));
    let before = brought.map(|metric| sets(&watcher, metric));
    assert!(before.iter().all(|&sets| sets >= 1), "{before:?}");
    let known = ["alive", "seen_at_seconds", "probes_total", "lost_total"];
    let alive = known.map(|metric| sets(&watcher, metric));
    for _ in 0..3 {
        watcher.poll(0.02);
    }
    assert_eq!(brought.map(|metric| sets(&watcher, metric)), before);
    assert_eq!(known.map(|metric| sets(&watcher, metric)), alive.map(|sets| sets + 3));
    let again = node(&settings("b", Some(b), &[]));
    poll_until(&mut [&mut watcher], "alive again", |t| t.get("peer/b/alive") == Some(1.0));
    assert!(sets(&watcher, "rtt_seconds") > before[0], "a new answer sets it");
    drop(again);
}

#[test]
fn probes_are_sent_at_the_interval_and_not_at_each_poll() {
    let [b] = free_addresses("127.0.0.1");
    let slow = PeerSettings {
        interval: Duration::from_secs(3600),
        timeout: Duration::from_secs(7200),
        ..settings("a", None, &[("b", b)])
    };
    let mut asker = node(&slow);
    for _ in 0..10 {
        asker.poll(0.02);
    }
    asker.poll(0.02);
    assert_eq!(asker.table.value("peer/b/probes_total"), 1.0);
    assert_eq!(asker.sensors[0].interval_hint(), Some(Duration::from_secs(3600)));
}

/// Returns a socket that belongs to no node, and waits for datagrams.
fn stranger() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Returns the next datagram, which has the usual length, and its sender.
fn receive(socket: &UdpSocket) -> ([u8; DATAGRAM_BYTES], SocketAddr) {
    let mut buffer = [0; 2 * DATAGRAM_BYTES];
    let (len, from) = socket.recv_from(&mut buffer).expect("a datagram");
    (buffer[..len].try_into().expect("112 bytes"), from)
}

fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
    assert_eq!(socket.send_to(bytes, to).expect("sent"), bytes.len());
}

#[test]
fn malformed_datagrams_are_counted_and_not_answered() {
    let [listening] = free_addresses("127.0.0.1");
    let stranger = stranger();
    let mut host = node(&settings("a", Some(listening), &[]));
    // A probe as documented.
    let mut probe = [0; DATAGRAM_BYTES];
    probe[..8].copy_from_slice(b"SKPP\x01\x01\x01\x00");
    probe[8..24].copy_from_slice(&[7; 16]);
    probe[40] = b'z';
    let with = |at: usize, byte: u8| {
        let mut bytes = probe;
        bytes[at] = byte;
        bytes.to_vec()
    };
    let rubbish = [
        Vec::new(),
        b"SKPP".to_vec(),
        vec![0xff; 1400],
        probe[..111].to_vec(),
        [&probe[..], b"\0"].concat(),
        with(0, b'X'),
        with(4, 9),
        with(5, 0),
        with(5, 3),
        with(6, 0),
        with(6, 65),
    ];
    for bytes in &rubbish {
        send(&stranger, bytes, listening);
    }
    // An answer without a probe is not malformed.
    send(&stranger, &with(5, 2), listening);
    // Only this one is answered, with the times and the name of `a`.
    send(&stranger, &probe, listening);
    let (answer, from) = receive(&stranger);
    assert_eq!(from, listening);
    assert_eq!(&answer[..8], b"SKPP\x01\x02\x01\x00");
    assert_eq!(answer[8..24], probe[8..24], "sequence and nonce come back");
    assert_eq!(&answer[40..42], b"a\0");
    let times =
        [24, 32].map(|at| i64::from_le_bytes(answer[at..at + 8].try_into().expect("eight bytes")));
    assert!(0 < times[0] && times[0] <= times[1], "{times:?}");
    // The answer comes before it is counted.
    poll_until(&mut [&mut host], "counted", |t| t.value("responder/answered_total") == 1.0);
    assert_eq!(host.table.value("responder/malformed_total"), rubbish.len() as f64);
    assert_eq!(host.table.value("responder/unasked_total"), 1.0);
    assert_eq!(host.table.value("responder/refused_total"), 0.0);
}

#[test]
fn forged_late_and_misnamed_answers_are_not_a_sign_of_life() {
    let peer = stranger();
    let address = peer.local_addr().expect("bound");
    let mut asker = node(&settings("a", None, &[("b", address)]));
    asker.poll(0.02);
    let (probe, from) = receive(&peer);
    assert_eq!(&probe[..8], b"SKPP\x01\x01\x01\x00");
    assert_eq!(probe[24..40], [0; 16], "a probe does not contain our time");
    let answer = |change: &dyn Fn(&mut [u8; DATAGRAM_BYTES])| {
        let mut bytes = probe;
        bytes[5] = 2;
        bytes[40] = b'b';
        change(&mut bytes);
        send(&peer, &bytes, from);
    };
    let mut expect = |topic: &str, value: f64| {
        poll_until(&mut [&mut asker], topic, |table| table.get(topic) == Some(value));
        assert_ne!(asker.table.get("peer/b/alive"), Some(1.0), "after {topic}");
        assert_eq!(asker.table.value("peer/b/answered_total"), 0.0, "after {topic}");
    };
    answer(&|bytes| bytes[16] ^= 1);
    expect("responder/unasked_total", 1.0);
    answer(&|bytes| bytes[8..16].copy_from_slice(&[0xff; 8]));
    expect("responder/unasked_total", 2.0);
    answer(&|bytes| bytes[40] = b'c');
    expect("peer/b/misnamed_total", 1.0);
    // The peer claims to have worked on it for an hour, or since the beginning of time.
    answer(&|bytes| bytes[32..40].copy_from_slice(&3_600_000_000_000i64.to_le_bytes()));
    answer(&|bytes| bytes[24..32].copy_from_slice(&i64::MIN.to_le_bytes()));
    // A node that probes and does not listen answers no probes.
    send(&peer, &probe, from);
    expect("responder/refused_total", 1.0);
    poll_until(&mut [&mut asker], "timeout", |t| t.get("peer/b/alive") == Some(0.0));
    let late = asker.table.value("peer/b/late_total");
    let malformed = asker.table.value("responder/malformed_total");
    assert_eq!(late + malformed, 2.0, "both times were impossible, or the answers late");
    answer(&|_| {});
    poll_until(&mut [&mut asker], "late", |t| t.get("peer/b/late_total") > Some(late));
    assert_eq!(asker.table.value("peer/b/answered_total"), 0.0);
}

#[test]
fn an_address_with_another_owner_is_a_skip() {
    let [b] = free_addresses("127.0.0.1");
    let _other = node(&settings("n07", Some(b), &[]));
    let mut asker = node(&settings("a", None, &[("b", b)]));
    let dead = |table: &Table| table.get("peer/b/alive") == Some(0.0);
    poll_until(&mut [&mut asker], "dead", dead);
    let reason = asker.skip("peer/b").expect("a reason");
    assert!(reason.contains("`n07`"), "{reason}");
}

#[test]
fn an_unreachable_address_is_a_skip() {
    // The broadcast address, to which a socket may not send without a special permission.
    let nowhere = "255.255.255.255:9".parse().expect("an address");
    let mut asker = node(&settings("a", None, &[("b", nowhere)]));
    poll_until(&mut [&mut asker], "dead", |t| t.get("peer/b/alive") == Some(0.0));
    let reason = asker.skip("peer/b").expect("a reason");
    assert!(reason.contains("probes cannot be sent to 255.255.255.255:9"), "{reason}");
    assert_eq!(asker.table.value("peer/b/answered_total"), 0.0);
}

#[test]
fn without_configuration_nothing_is_opened() {
    let refused = |settings: &PeerSettings, part: &str| {
        let host = Host::of(open_peers(settings));
        assert!(host.sensors.is_empty());
        for what in ["peer", "responder"] {
            let reason = host.skip(what).expect("a reason");
            assert!(reason.contains(part), "{reason}");
        }
    };
    refused(&PeerSettings::of_node("a"), "no peers are configured");
    let taken = stranger().local_addr().expect("bound");
    let holder = UdpSocket::bind(taken).expect("free again");
    refused(&settings("a", Some(taken), &[]), &format!("no UDP socket on {taken}"));
    drop(holder);
    refused(&settings("a", None, &[("b", taken), ("b", taken)]), "two peers are called `b`");
}

/// Two network namespaces of this test, joined by a cable. They are removed at its end.
struct Namespaces {
    names: [String; 2],
}

impl Namespaces {
    const ADDRESSES: [&'static str; 2] = ["10.213.7.1", "10.213.7.2"];

    fn new() -> Result<Self, String> {
        let pid = std::process::id();
        let names = ["a", "b"].map(|end| format!("skopos-{pid}-{end}"));
        let [a, b] = &names;
        let made = Self { names: names.clone() };
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("-n {a} link add cable type veth peer name cable netns {b}"))?;
        for (name, address) in names.iter().zip(Self::ADDRESSES) {
            ip(&format!("-n {name} address add {address}/24 dev cable"))?;
            ip(&format!("-n {name} link set cable up"))?;
        }
        Ok(made)
    }

    /// Runs a function in one of them. Sockets and threads made there stay there.
    fn within<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.names[end])).expect("it was made");
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(file.as_fd(), kind).expect("root may");
                work()
            });
            thread.join().expect("no panic")
        })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(e) = ip(&format!("netns delete {name}")) {
                eprintln!("{e}");
            }
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    let failure = || format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
    output.status.success().then_some(()).ok_or_else(failure)
}

#[test]
fn nodes_in_other_network_namespaces_vanish_with_their_cable() {
    if !rustix::process::geteuid().is_root() {
        return skipped("network namespaces need root");
    }
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(e) => return skipped(e),
    };
    let [a, b] =
        Namespaces::ADDRESSES.map(|ip| SocketAddr::new(ip.parse().expect("an address"), 7361));
    // This machine itself has no route to them.
    let mut first = namespaces.within(0, || node(&settings("a", Some(a), &[("b", b)])));
    let mut other = namespaces.within(1, || {
        let ahead = settings("b", Some(b), &[("a", a)]);
        node(&PeerSettings { wall_clock: shifted_clock, ..ahead })
    });
    let alive = |wanted: f64| move |table: &Table| table.get("peer/b/alive") == Some(wanted);
    poll_until(&mut [&mut first, &mut other], "answers", |t| answers(t, "b") >= 10.0);
    check_offset(&first.table, "b", SHIFT_NANOS as f64 / 1e9);
    ip(&format!("-n {} link set cable down", namespaces.names[1])).expect("root may");
    poll_until(&mut [&mut first, &mut other], "dead", alive(0.0));
    ip(&format!("-n {} link set cable up", namespaces.names[1])).expect("root may");
    poll_until(&mut [&mut first, &mut other], "alive again", alive(1.0));
    poll_until(&mut [&mut other], "the other sees it too", |t| t.get("peer/a/alive") == Some(1.0));
}
