//! Measures what in-band telemetry says against theory, and what it costs.
//!
//! ```text
//! cargo run --release -p skopos-net --example int_cost
//! ```
//!
//! Needs root, `ip` and `tc`. All of it is on this machine: hosts `a` and `b` of a lab, with two switches between them
//! and 50 Mbit/s from one to the other. Host `a` has two links to its switch, so that packets can change their path.

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::thread;
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use skopos_bpf::Direction;
use skopos_net::int::{Hop, Packet};
use skopos_net::lab::{Lab, Topology};
use skopos_net::plane::{INT_PORT, Mode, Plane, PlaneSettings, Port, Watch};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The port of packets that are watched.
const WATCHED: u16 = 7000;
/// The port of TCP that is not watched.
const OTHER: u16 = 7001;
const RATE_MBIT: f64 = 50.0;
const QUEUE_BYTES: u32 = 500_000;
/// Bytes of a datagram. With all values of two hops, the frame is shorter than 1500 bytes.
const PAYLOAD: usize = 1200;
/// Rounds of throughput, each with and without programs.
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(1500);

fn main() -> Outcome<()> {
    let lab = lab(Some(RATE_MBIT))?;
    let mut planes = planes(&lab, Some(RATE_MBIT))?;
    queue(&lab, &mut planes)?;
    path_change(&lab, &mut planes)?;
    drop((planes, lab));
    cost()?;
    throughput()
}

/// Builds the lab; without a rate, the link between the switches is as fast as the machine.
fn lab(rate_mbit: Option<f64>) -> Outcome<Lab> {
    let rate = rate_mbit.map_or_else(String::new, |rate| {
        format!("rate_mbit = {rate}\nqueue_bytes = {QUEUE_BYTES}\n")
    });
    let text = format!(
        "name = 'cost{}'\n[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n[[switch]]\nname = 's1'\n[[switch]]\n\
         name = 's2'\n[[link]]\nends = ['a', 's1']\n[[link]]\nends = ['s1', 's2']\n{rate}[[link]]\n\
         ends = ['s2', 'b']\n[[link]]\nends = ['a', 's1']\n",
        std::process::id()
    );
    Ok(Lab::up(Topology::parse(&text)?)?)
}

/// Opens the data planes of both switches: the first is the source, the second the sink.
fn planes(lab: &Lab, rate_mbit: Option<f64>) -> Outcome<[Plane; 2]> {
    let open = |node: u32, name: &str| -> Outcome<Plane> {
        let mut settings = PlaneSettings::new(node);
        settings.watches = vec![Watch { destination_port: Some(WATCHED), ..Watch::default() }];
        settings.mode = Mode::EmbedData;
        for (id, port) in (1..).zip(lab.ports(name)) {
            let is_between = port.peer.starts_with('s');
            settings.ports.push(Port {
                interface: port.interface,
                id,
                rate_bytes_per_second: rate_mbit
                    .filter(|_| is_between)
                    .map(|r| (r * 125_000.0) as u64),
                source: (port.peer == "a").then_some(Direction::Ingress),
                transit: true,
                sink: (port.peer == "b").then_some(Direction::Egress),
            });
        }
        Ok(Plane::open(&lab.namespace(name)?, settings)?)
    };
    Ok([open(1, "s1")?, open(2, "s2")?])
}

fn socket(lab: &Lab, host: &str, port: u16) -> Outcome<UdpSocket> {
    let opened = lab.namespace(host)?.run(|| Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))))?;
    Ok(opened?)
}

/// A packet with its hops and the time at which it came to its sink.
struct Seen {
    hops: Vec<Hop>,
    sink_ns: Option<u64>,
    sequence: Option<u32>,
}

fn seen(plane: &mut Plane) -> Vec<Seen> {
    let mut all = Vec::new();
    plane.events(|event| {
        let Ok(Packet { embedded: Some(int), .. }) = Packet::read(event.packet, INT_PORT) else {
            return;
        };
        all.push(Seen {
            hops: int.hops().collect(),
            sink_ns: event.hop.ingress_ns,
            sequence: int.sequence,
        });
    });
    all
}

/// Fills the queue of the bottleneck, and compares what packets say with theory.
fn queue(lab: &Lab, [_, sink]: &mut [Plane; 2]) -> Outcome<()> {
    let (sender, receiver) = (socket(lab, "a", 0)?, socket(lab, "b", WATCHED)?);
    sender.connect((lab.addresses("b")?.0, WATCHED))?;
    drop(thread::spawn(move || while receiver.recv(&mut [0; 2000]).is_ok() {}));
    // 20 % more than the link carries: the queue is full after half a second.
    let gap = Duration::from_secs_f64(PAYLOAD as f64 * 8.0 / (RATE_MBIT * 1.2e6));
    let begin = Instant::now();
    let (mut due, mut all) = (begin, Vec::new());
    while begin.elapsed() < Duration::from_secs(4) {
        while Instant::now() >= due {
            // A full queue refuses packets of its own host only.
            let _ = sender.send(&[7; PAYLOAD]);
            due += gap;
        }
        all.extend(seen(sink));
        thread::sleep(Duration::from_micros(500));
    }
    let full: Vec<&Seen> = all.iter().skip(all.len() / 2).collect();
    let of = |value: &dyn Fn(&Seen) -> Option<f64>| -> Vec<f64> {
        full.iter().filter_map(|seen| value(seen)).collect()
    };
    let first = |seen: &Seen| seen.hops.first().copied();
    let queue = median(of(&|seen| first(seen)?.queue_bytes.map(f64::from)));
    let latency = median(of(&|seen| first(seen)?.latency_ns.map(f64::from)));
    let between = median(of(&|seen| {
        let (first, second) = (first(seen)?.ingress_ns?, seen.hops.get(1)?.ingress_ns?);
        Some(second.checked_sub(first)? as f64)
    }));
    // Each byte that waits takes its time on the link.
    let theory = f64::from(QUEUE_BYTES) * 8.0 / (RATE_MBIT * 1e6) * 1e9;
    let report = |what: &str, found: f64, theory: f64, unit: &str| {
        println!(
            "{what}: {found:.1} {unit}, in theory {theory:.1} {unit}, {:+.1} %",
            (found / theory - 1.0) * 100.0
        );
    };
    println!("{} packets through a full queue, medians:", full.len());
    report("bytes in the queue", queue / 1e3, f64::from(QUEUE_BYTES) / 1e3, "kB");
    report("latency that the hop says", latency / 1e6, theory / 1e6, "ms");
    report("time between the arrivals at both switches", between / 1e6, theory / 1e6, "ms");
    let ratios = of(&|seen| {
        let sum: u64 = seen.hops.iter().filter_map(|hop| hop.latency_ns.map(u64::from)).sum();
        let whole = seen.sink_ns?.checked_sub(first(seen)?.ingress_ns?)?;
        Some(sum as f64 / whole as f64)
    });
    println!("sum of the latencies of hops over end to end: median {:.3}", median(ratios));
    Ok(())
}

/// Moves packets to the second link of host `a`.
fn path_change(lab: &Lab, [_, sink]: &mut [Plane; 2]) -> Outcome<()> {
    thread::sleep(Duration::from_secs(1));
    seen(sink);
    let to = lab.addresses("b")?.0;
    let sender = socket(lab, "a", 0)?;
    let mut packets = Vec::new();
    let mut send = |count: u32, sink: &mut Plane| -> Outcome<()> {
        for _ in 0..count {
            sender.send_to(&[1; 100], (to, WATCHED))?;
        }
        thread::sleep(Duration::from_millis(200));
        packets.extend(seen(sink));
        Ok(())
    };
    send(5, sink)?;
    lab.exec("a", "ip", &["link", "set", "eth1", "up"])?;
    lab.exec("a", "ip", &["route", "add", &format!("{to}/32"), "dev", "eth1", "src", "10.77.0.1"])?;
    send(5, sink)?;
    let ports: Vec<_> = packets.iter().filter_map(|seen| seen.hops.first()?.ingress_port).collect();
    let numbers: Vec<_> = packets.iter().filter_map(|seen| seen.sequence).collect();
    println!("ingress ports of ten packets, moved after the fifth: {ports:?}, numbers {numbers:?}");
    Ok(())
}

/// Measures each program with the kernel's own statistics.
fn cost() -> Outcome<()> {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";
    let lab = lab(None)?;
    let [source, mut sink] = planes(&lab, None)?;
    let before = fs::read_to_string(SWITCH)?;
    fs::write(SWITCH, "1")?;
    let measured = (|| -> Outcome<()> {
        let (sender, receiver) = (socket(&lab, "a", 0)?, socket(&lab, "b", WATCHED)?);
        sender.connect((lab.addresses("b")?.0, WATCHED))?;
        receiver.set_nonblocking(true)?;
        for round in 0..20_000 {
            sender.send(&[7; 500])?;
            let _ = receiver.recv(&mut [0; 600]);
            if round % 100 == 0 {
                seen(&mut sink);
            }
        }
        Ok(())
    })();
    let programs = programs()?;
    fs::write(SWITCH, before)?;
    measured?;
    println!("counts: source {:?}, sink {:?}", source.counts()?, sink.counts()?);
    for (name, (nanos, runs)) in programs.iter().filter(|(_, (_, runs))| *runs > 0) {
        println!("{name}: {:.0} ns a packet, {runs} runs", *nanos as f64 / *runs as f64);
    }
    Ok(())
}

/// Nanoseconds and runs of each program of this crate, by name.
fn programs() -> Outcome<std::collections::BTreeMap<String, (u64, u64)>> {
    let mut programs = std::collections::BTreeMap::new();
    for info in loaded_programs() {
        let Ok(info) = info else { continue };
        let Some(name) = info.name_as_str().filter(|name| name.starts_with("int_")) else {
            continue;
        };
        let Ok(descriptor) = info.fd() else { continue };
        let path = format!("/proc/self/fdinfo/{}", descriptor.as_fd().as_raw_fd());
        let text = fs::read_to_string(path)?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let entry: &mut (u64, u64) = programs.entry(name.to_owned()).or_default();
        entry.0 += field("run_time_ns:");
        entry.1 += field("run_cnt:");
    }
    Ok(programs)
}

/// Compares the throughput of traffic that is not watched with and without programs.
fn throughput() -> Outcome<()> {
    let lab = lab(None)?;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rates[0].push(bulk(&lab)?);
        let planes = planes(&lab, None)?;
        rates[1].push(bulk(&lab)?);
        drop(planes);
    }
    let [without, with] = rates;
    let ratios: Vec<f64> =
        with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let (low, high) = ratios
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), ratio| (low.min(*ratio), high.max(*ratio)));
    println!(
        "TCP that is not watched, {ROUNDS} pairs: {:.2} Gbit/s without and {:.2} with programs; ratio with/without: \
         median {:.3}, from {low:.3} to {high:.3}",
        median(without),
        median(with),
        median(ratios)
    );
    Ok(())
}

/// Returns Gbit/s of one TCP connection from `a` to `b`.
fn bulk(lab: &Lab) -> Outcome<f64> {
    let to = lab.addresses("b")?.0;
    let listener = lab.namespace("b")?.run(|| Ok(TcpListener::bind((to, OTHER))))??;
    let receiver = thread::spawn(move || -> std::io::Result<u64> {
        let (mut stream, _) = listener.accept()?;
        let (mut buffer, mut all) = (vec![0; 1 << 17], 0);
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(all),
                bytes => all += bytes as u64,
            }
        }
    });
    let mut stream = lab.namespace("a")?.run(|| Ok(TcpStream::connect((to, OTHER))))??;
    let (begin, block) = (Instant::now(), vec![1; 1 << 17]);
    while begin.elapsed() < ROUND {
        stream.write_all(&block)?;
    }
    drop(stream);
    let bytes = receiver.join().map_err(|_| "the receiver failed")??;
    Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
