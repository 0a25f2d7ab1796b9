//! Reports that a collector takes on one core, from memory and from a socket, and a flood from an address that is not allowed.
//!
//! A thread sends datagrams with reports about packets of 64 paths, three hops each, over the loopback, as fast as
//! it may. The collector's thread counts its own processor time.

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

use super::setting::Outcome;
use crate::plan::Plan;
use crate::report::{Better, Goal, Row};
use crate::stats::median;

/// Datagrams that are made beforehand. Each has its own number, so that none is a replay.
const DATAGRAMS: u32 = 100_000;
const PATHS: u32 = 64;
const HOPS: u32 = 3;

/// The least reports a second that a core takes.
const GOAL: f64 = 200_000.0;

/// The time of a round from memory.
const FROM_MEMORY: Duration = Duration::from_secs(1);

/// The time of a flood.
const FLOOD: Duration = Duration::from_secs(3);

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for reports in [1, 4] {
        for key in [None, Key::new(b"a key of the site")] {
            rows.extend(collected(plan, reports, key.as_ref())?);
        }
    }
    for (networks, filter) in [(1, "with"), (65, "without")] {
        let mut shares = Vec::new();
        let mut rates = Vec::new();
        for _ in 0..plan.rounds {
            let (rate, share) = under_flood(networks)?;
            shares.push(share * 100.0);
            rates.push(rate);
        }
        let case = format!("flood from a forbidden address, {filter} the kernel's filter");
        let unit = "% of a core";
        rows.extend([
            Row::new(&*case, "datagrams", "/s", median(&rates), Better::Neither)
                .rounds("skopos", &rates),
            Row::new(case, "collector", unit, median(&shares), Better::Lower)
                .rounds("skopos", &shares),
        ]);
    }
    Ok(rows)
}

/// Measures datagrams with so many reports, with or without a tag.
fn collected(plan: &Plan, reports: u32, key: Option<&Key>) -> Outcome<Vec<Row>> {
    let datagrams: Vec<Vec<u8>> =
        (0..DATAGRAMS).map(|number| datagram(number, reports, key)).collect();
    let (mut memory, mut socket, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        memory.push(from_memory(&datagrams, key.cloned())?);
        let (rate, lost) = from_socket(&datagrams, key.cloned())?;
        socket.push(rate);
        dropped.push(lost * 100.0);
    }
    let tag = if key.is_some() { "with a tag" } else { "without a tag" };
    let case = format!("collector, {reports} reports a datagram, {tag}");
    let row = |metric: &str, unit, values: &[f64], better| {
        Row::new(&*case, metric, unit, median(values), better).rounds("skopos", values)
    };
    let unit = "/s a core";
    Ok(vec![
        row("reports from memory", unit, &memory, Better::Higher).goal(Goal::AtLeast(GOAL)),
        row("reports from a socket", unit, &socket, Better::Higher).goal(Goal::AtLeast(GOAL)),
        row("dropped by the kernel's socket", "%", &dropped, Better::Lower),
    ])
}

/// Sends datagrams from an address that is not allowed for three seconds. Returns the datagrams a second, and the share of a
/// core that the collector used. A collector with more than 64 networks has no filter in the kernel.
fn under_flood(networks: u8) -> Outcome<(f64, f64)> {
    let sources = (0..networks).map(|n| ([10, 0, 0, n].into(), 32)).collect();
    let mut collector =
        Collector::new(([127, 0, 0, 1], 0).into(), CollectorSettings::new(sources))?;
    let address = collector.address()?;
    let sender = thread::spawn(move || -> std::io::Result<u64> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let (begin, mut sent) = (Instant::now(), 0);
        while begin.elapsed() < FLOOD {
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
fn from_memory(datagrams: &[Vec<u8>], key: Option<Key>) -> Outcome<f64> {
    let begin = Instant::now();
    let (mut count, mut used) = (0, 0.0);
    while begin.elapsed() < FROM_MEMORY {
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

/// Sends each datagram once. Returns reports a second of processor time, and the share of datagrams that the kernel
/// dropped.
fn from_socket(datagrams: &[Vec<u8>], key: Option<Key>) -> Outcome<(f64, f64)> {
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
    let used = processor_seconds() - before;
    sender.join().map_err(|_| "the sender failed")??;
    let counts = collector.counts();
    let lost = 1.0 - counts.datagrams as f64 / datagrams.len() as f64;
    Ok((counts.reports as f64 / used, lost))
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
pub(super) fn datagram(number: u32, reports: u32, key: Option<&Key>) -> Vec<u8> {
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
            domain: DOMAIN,
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
