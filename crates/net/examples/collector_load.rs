//! Measures how many reports a collector takes on one core, from a socket and from memory.
//!
//! ```text
//! cargo run --release -p skopos-net --example collector_load [SECONDS]
//! ```
//!
//! A thread sends datagrams with reports about packets of 64 paths, three hops each, over the loopback, as fast as
//! it may. The collector's thread counts its own processor time.

use std::env;
use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use skopos_net::Key;
use skopos_net::collector::{Collector, CollectorSettings};
use skopos_net::int::{
    DOMAIN, Embedded, Field, Group, Header, Hop, INSTRUCTION_SEQUENCE, Inner, Instructions, Kind,
    Next, Report, write_group, write_report,
};
use skopos_net::plane::INT_PORT;

/// Datagrams that are made beforehand. Each has its own number, so that none is a replay.
const DATAGRAMS: u32 = 100_000;
const PATHS: u32 = 64;
const HOPS: u32 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = env::args().nth(1).map_or(Ok(3), |text| text.parse())?;
    for reports in [1, 4] {
        for key in [None, Key::new(b"a key of the site")] {
            let tagged = if key.is_some() { "with a tag" } else { "without a tag" };
            let datagrams: Vec<Vec<u8>> =
                (0..DATAGRAMS).map(|number| datagram(number, reports, key.as_ref())).collect();
            let rate = from_memory(&datagrams, key.clone(), seconds)?;
            println!(
                "{reports} reports a datagram, {tagged}, from memory: {rate:.0} reports/s of processor time"
            );
            let (rate, share, lost) = from_socket(&datagrams, key)?;
            println!(
                "{reports} reports a datagram, {tagged}, from a socket: {:.0} reports/s taken with {:.0} % of a \
                 core, so {:.0} reports/s a core; the kernel dropped {:.1} %",
                rate,
                share * 100.0,
                rate / share,
                lost * 100.0
            );
        }
    }
    for networks in [1, 65] {
        let (rate, share) = under_flood(networks)?;
        println!(
            "flood of {rate:.0} datagrams/s from an address that is not among {networks} networks: {:.2} % of a core",
            share * 100.0
        );
    }
    Ok(())
}

/// Sends datagrams from an address that is not allowed for three seconds. Returns the datagrams a second, and the share of a
/// core that the collector used. A collector with more than 64 networks has no filter in the kernel.
fn under_flood(networks: u8) -> Result<(f64, f64), Box<dyn Error>> {
    let sources = (0..networks).map(|n| ([10, 0, 0, n].into(), 32)).collect();
    let mut collector =
        Collector::new(([127, 0, 0, 1], 0).into(), CollectorSettings::new(sources))?;
    let address = collector.address()?;
    let sender = thread::spawn(move || -> std::io::Result<u64> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let (begin, mut sent) = (Instant::now(), 0);
        while begin.elapsed() < Duration::from_secs(3) {
            socket.send_to(&[7; 200], address)?;
            sent += 1;
        }
        Ok(sent)
    });
    let (begin, before) = (Instant::now(), processor_seconds());
    while !sender.is_finished() {
        if collector.receive(begin.elapsed())? == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let (wall, used) = (begin.elapsed().as_secs_f64(), processor_seconds() - before);
    let sent = sender.join().map_err(|_| "the sender failed")??;
    Ok((sent as f64 / wall, used / wall))
}

fn settings(key: Option<Key>) -> CollectorSettings {
    let everywhere: IpAddr = [0, 0, 0, 0].into();
    let mut settings = CollectorSettings::new(vec![(everywhere, 0)]);
    settings.datagrams_per_second = u32::MAX;
    settings.key = key;
    settings
}

/// Returns reports a second of processor time.
fn from_memory(
    datagrams: &[Vec<u8>],
    key: Option<Key>,
    seconds: u64,
) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    let (mut count, mut used) = (0, 0.0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let mut collector = Collector::new(([127, 0, 0, 1], 0).into(), settings(key.clone()))?;
        let before = processor_seconds();
        for datagram in datagrams {
            collector.handle([127, 0, 0, 1].into(), datagram, begin.elapsed());
        }
        used += processor_seconds() - before;
        count += collector.counts().reports;
    }
    Ok(count as f64 / used)
}

/// Sends each datagram once. Returns reports a second, the share of a core that the collector used, and the share
/// of datagrams that the kernel dropped.
fn from_socket(datagrams: &[Vec<u8>], key: Option<Key>) -> Result<(f64, f64, f64), Box<dyn Error>> {
    let mut collector = Collector::new(([127, 0, 0, 1], 0).into(), settings(key))?;
    let address = collector.address()?;
    let own = datagrams.to_vec();
    let (begin, before) = (Instant::now(), processor_seconds());
    let sender = thread::spawn(move || send(address, &own));
    loop {
        match collector.receive(begin.elapsed())? {
            0 if sender.is_finished() => break,
            0 => thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
    let (wall, used) = (begin.elapsed().as_secs_f64(), processor_seconds() - before);
    sender.join().map_err(|_| "the sender failed")??;
    let counts = collector.counts();
    let lost = 1.0 - counts.datagrams as f64 / datagrams.len() as f64;
    Ok((counts.reports as f64 / wall, used / wall, lost))
}

fn send(to: SocketAddr, datagrams: &[Vec<u8>]) -> std::io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    datagrams.iter().try_for_each(|datagram| socket.send_to(datagram, to).map(drop))
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A datagram with reports of a sink.
fn datagram(number: u32, reports: u32, key: Option<&Key>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_group(&Group { hardware: 0, sequence: number, node: 9 }, &mut bytes);
    let values = Instructions::of(&[Field::Ports, Field::IngressTime]);
    for report in 0..reports {
        let packet = packet(number * reports + report);
        let begin = 1_800_000_000_000_000_000 + u64::from(number) * 1000;
        let hop =
            Hop { ingress_port: Some(1), ingress_ns: Some(begin + 1_000_000), ..Hop::default() };
        let report = Report {
            dropped: false,
            congested: false,
            tracked: true,
            intermediate: false,
            hop,
            inner: Inner::Ip(&packet),
        };
        write_report(&report, values, &mut bytes);
    }
    if let Some(key) = key {
        key.append(&mut bytes);
    }
    bytes
}

/// The begin of a packet with INT.
fn packet(number: u32) -> Vec<u8> {
    let hops: Vec<Hop> = (1..=HOPS)
        .map(|node| Hop {
            node: Some(node + number % PATHS * HOPS),
            ingress_port: Some(1),
            egress_port: Some(2),
            latency_ns: Some(1000 * node),
            queue: Some(0),
            queue_bytes: Some(1500),
            ingress_ns: Some(1_800_000_000_000_000_000 + u64::from(number * 100 + node)),
            egress_ns: Some(1_800_000_000_000_001_000 + u64::from(number * 100 + node)),
            utilisation_ppm: Some(500_000),
            drop_reason: None,
        })
        .collect();
    let header = Header {
        hop_words: Instructions::ALL_OF_PLANE.words() as u8,
        remaining: 9,
        instructions: Instructions::ALL_OF_PLANE,
        domain: DOMAIN,
        domain_instructions: INSTRUCTION_SEQUENCE,
        ..Header::default()
    };
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 1];
    packet.push((number % PATHS) as u8);
    packet.extend([0xc0, 0]);
    packet.extend(INT_PORT.to_be_bytes());
    packet.extend([0; 4]);
    let next = Next::Transport { protocol: 6 };
    // Three hops fit a shim.
    let _ =
        Embedded::write(Kind::EmbedData, next, &header, &hops, Some(number / PATHS), &mut packet);
    packet.extend([0x30, 0x39, 0, 80, 0, 0, 0, 1]);
    packet
}
