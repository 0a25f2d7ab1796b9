//! Exchanges packets with `tests/net/int_layers.py`: layers of scapy that were written from the tables of the
//! specifications.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use skopos_net::int::{
    DOMAIN, Embedded, Field, Group, Header, Hop, INSTRUCTION_SEQUENCE, Inner, Instructions, Kind,
    Next, Packet, Report, write_group, write_report,
};

/// The port that the script knows.
const INT_PORT: u16 = 5000;

/// Returns a Python that has scapy: that of `scripts/setup test`, or that of the machine.
fn python() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let own = cache.map(|cache| cache.join("skopos/python/bin/python"));
    let has_scapy = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import scapy"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    own.into_iter().chain([PathBuf::from("python3")]).find(has_scapy)
}

/// Runs the script, and returns the objects that it prints.
fn layers(verb: &str, input: &str) -> Option<Vec<Value>> {
    let Some(python) = python() else {
        println!("skipped: no Python here has scapy; `scripts/setup test` installs it");
        return None;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/net/int_layers.py");
    let mut child = Command::new(python)
        .args([script, verb])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python was found");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("the script reads");
    let output = child.wait_with_output().expect("the script ends");
    assert!(output.status.success(), "the script failed");
    let text = String::from_utf8(output.stdout).expect("JSON");
    Some(text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hex"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The values of a hop, named as in the script.
fn values(hop: &Hop) -> Value {
    let pairs: [(&str, Option<u64>); 9] = [
        ("node", hop.node.map(u64::from)),
        ("ingress_port", hop.ingress_port.map(u64::from)),
        ("egress_port", hop.egress_port.map(u64::from)),
        ("latency_ns", hop.latency_ns.map(u64::from)),
        ("queue", hop.queue.map(u64::from)),
        ("queue_bytes", hop.queue_bytes.map(u64::from)),
        ("ingress_ns", hop.ingress_ns),
        ("egress_ns", hop.egress_ns),
        ("utilisation_ppm", hop.utilisation_ppm.map(u64::from)),
    ];
    let known =
        pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    Value::Object(known.collect())
}

#[test]
fn packets_of_scapy_are_read() {
    let Some(packets) = layers("write", "") else { return };
    assert_eq!(packets.len(), 32);
    for packet in packets {
        let data = bytes(packet["hex"].as_str().expect("text"));
        let read =
            Packet::read(&data, INT_PORT, DOMAIN).unwrap_or_else(|e| panic!("{e}: {packet}"));
        let int = read.embedded.expect("INT");
        let header = int.header;
        let flags = [header.discard, header.hops_exceeded, header.mtu_exceeded].map(u8::from);
        let found = json!({
            "hex": packet["hex"],
            "hop_words": header.hop_words,
            "remaining": header.remaining,
            "sequence": int.sequence,
            "flags": flags,
            "hops": int.hops().map(|hop| values(&hop)).collect::<Vec<_>>(),
            "protocol": read.flow.protocol,
            "ports": [read.flow.source_port, read.flow.destination_port],
        });
        assert_eq!(found, packet);
    }
}

#[test]
fn scapy_reads_our_reports() {
    let hops = [1u32, 2, 3].map(|at| Hop {
        node: Some(at),
        queue: Some(0),
        queue_bytes: Some(at * 1000),
        ..Hop::default()
    });
    let own =
        Hop { latency_ns: Some(77), ingress_port: Some(3), egress_port: Some(4), ..Hop::default() };
    let header = Header {
        hop_words: 2,
        remaining: 5,
        instructions: Instructions::of(&[Field::Node, Field::Queue]),
        domain: DOMAIN,
        domain_instructions: INSTRUCTION_SEQUENCE,
        ..Header::default()
    };
    let mut int = Vec::new();
    let next = Next::Transport { protocol: 17 };
    Embedded::write(Kind::EmbedData, next, &header, &hops, Some(99), &mut int).expect("fits");
    // UDP from port 1111 to 2222, as it was before INT.
    int.extend([0x04, 0x57, 0x08, 0xae, 0, 8, 0, 0]);
    let length = u16::try_from(28 + int.len()).expect("small").to_be_bytes();
    let mut packet =
        vec![0x45, 0, length[0], length[1], 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let length = u16::try_from(8 + int.len()).expect("small").to_be_bytes();
    packet.extend([0xc0, 0, 0x13, 0x88, length[0], length[1], 0, 0]);
    packet.extend(&int);
    let mut data = Vec::new();
    write_group(&Group { hardware: 3, sequence: 123_456, node: 9 }, &mut data);
    let report = Report {
        dropped: false,
        congested: false,
        tracked: true,
        intermediate: false,
        domain: 0,
        hop: own,
        inner: Inner::Ip(&packet),
    };
    write_report(&report, Instructions::of(&[Field::Ports, Field::Latency]), &mut data);
    let Some(read) = layers("read", &hex(&data)) else { return };
    let [read] = &read[..] else { panic!("one report") };
    assert_eq!(
        (&read["node"], &read["sequence"], &read["hardware"]),
        (&json!(9), &json!(123_456), &json!(3))
    );
    assert_eq!(read["words"].as_u64().map(|words| words * 4 + 12), read["bytes"].as_u64());
    assert_eq!(read["hop"], values(&own));
    assert_eq!(read["packet"]["hops"], json!(hops.map(|hop| values(&hop))));
    assert_eq!(read["packet"]["sequence"], json!(99));
    assert_eq!(read["packet"]["ports"], json!([1111, 2222]));
}
