//! A full queue and a change of the path, as packets tell of them.

use std::thread;
use std::time::{Duration, Instant};

use skopos_net::lab::Lab;
use skopos_net::plane::Plane;

use super::setting::{Outcome, QUEUE_BYTES, RATE_MBIT, Seen, WATCHED, lab, planes, seen, socket};
use crate::plan::Plan;
use crate::report::{Better, Goal, Row};
use crate::stats::median;

/// Bytes of a datagram. With all values of two hops, the frame is shorter than 1500 bytes.
const PAYLOAD: usize = 1200;

/// The time in which a queue is filled and watched. It is full after half a second.
const FILLING: Duration = Duration::from_secs(4);

/// Packets before and after a change of the path.
const PACKETS: u32 = 5;

const CASE: &str = "full queue at 50 Mbit/s";

/// Ratios of a round: what packets say over what theory says.
struct Ratios {
    queue: f64,
    latency: f64,
    between: f64,
    sum: f64,
}

pub(super) fn measure(plan: &Plan) -> Outcome<Vec<Row>> {
    let mut rounds = Vec::new();
    let mut at_once = Vec::new();
    for _ in 0..plan.rounds {
        let lab = lab(Some(RATE_MBIT))?;
        let mut planes = planes(&lab, Some(RATE_MBIT))?;
        rounds.push(full_queue(&lab, &mut planes)?);
        at_once.push(f64::from(u8::from(path_change(&lab, &mut planes)?)));
    }
    let row = |metric: &str, ratio: fn(&Ratios) -> f64| {
        let percent: Vec<f64> = rounds.iter().map(|r| 100.0 * (ratio(r) - 1.0)).collect();
        let worst = percent.iter().map(|p| p.abs()).fold(0.0, f64::max);
        let row = Row::new(
            CASE,
            format!("{metric}, off theory in the worst round"),
            "%",
            worst,
            Better::Lower,
        );
        row.goal(Goal::AtMost(5.0)).rounds("skopos", &percent)
    };
    let changed = 100.0 * at_once.iter().sum::<f64>() / at_once.len().max(1) as f64;
    Ok(vec![
        row("bytes in the queue", |r| r.queue),
        row("latency of the hop", |r| r.latency),
        row("time between the arrivals at both switches", |r| r.between),
        row("sum of the hops over end to end", |r| r.sum),
        Row::new("path", "changes seen at the next packet", "%", changed, Better::Higher)
            .goal(Goal::AtLeast(100.0))
            .rounds("skopos", &at_once),
    ])
}

/// Fills the queue of the bottleneck, and compares what packets say with theory.
fn full_queue(lab: &Lab, [_, sink]: &mut [Plane; 2]) -> Outcome<Ratios> {
    let (sender, receiver) = (socket(lab, "a", 0)?, socket(lab, "b", WATCHED)?);
    sender.connect((lab.addresses("b")?.0, WATCHED))?;
    drop(thread::spawn(move || while receiver.recv(&mut [0; 2000]).is_ok() {}));
    // 20 % more than the link carries: the queue is full after half a second.
    let gap = Duration::from_secs_f64(PAYLOAD as f64 * 8.0 / (RATE_MBIT * 1.2e6));
    let begin = Instant::now();
    let (mut due, mut all) = (begin, Vec::new());
    while begin.elapsed() < FILLING {
        while Instant::now() >= due {
            // A full queue refuses packets of its own host only.
            let _ = sender.send(&[7; PAYLOAD]);
            due += gap;
        }
        all.extend(seen(sink));
        thread::sleep(Duration::from_micros(500));
    }
    let full: Vec<&Seen> = all.iter().skip(all.len() / 2).collect();
    if full.is_empty() {
        return Err("no packet with telemetry came to its sink".into());
    }
    let of = |value: &dyn Fn(&Seen) -> Option<f64>| -> Vec<f64> {
        full.iter().filter_map(|seen| value(seen)).collect()
    };
    let first = |seen: &Seen| seen.hops.first().copied();
    let queue = median(&of(&|seen| first(seen)?.queue_bytes.map(f64::from)));
    let latency = median(&of(&|seen| first(seen)?.latency_ns.map(f64::from)));
    let between = median(&of(&|seen| {
        let (first, second) = (first(seen)?.ingress_ns?, seen.hops.get(1)?.ingress_ns?);
        Some(second.checked_sub(first)? as f64)
    }));
    // Each byte that waits takes its time on the link.
    let theory = f64::from(QUEUE_BYTES) * 8.0 / (RATE_MBIT * 1e6) * 1e9;
    let ratios = of(&|seen| {
        let sum: u64 = seen.hops.iter().filter_map(|hop| hop.latency_ns.map(u64::from)).sum();
        let whole = seen.sink_ns?.checked_sub(first(seen)?.ingress_ns?)?;
        Some(sum as f64 / whole as f64)
    });
    Ok(Ratios {
        queue: queue / f64::from(QUEUE_BYTES),
        latency: latency / theory,
        between: between / theory,
        sum: median(&ratios),
    })
}

/// Moves packets to the second link of host `a`. Returns true if the first packet after that shows another port.
fn path_change(lab: &Lab, [_, sink]: &mut [Plane; 2]) -> Outcome<bool> {
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
    send(PACKETS, sink)?;
    lab.exec("a", "ip", &["link", "set", "eth1", "up"])?;
    lab.exec("a", "ip", &["route", "add", &format!("{to}/32"), "dev", "eth1", "src", "10.77.0.1"])?;
    send(PACKETS, sink)?;
    let first = packets.first().and_then(|seen| seen.sequence);
    let port = |number: u32| {
        let packet = packets.iter().find(|seen| seen.sequence == first.map(|f| f + number))?;
        packet.hops.first()?.ingress_port
    };
    let (before, after) = (port(PACKETS - 1), port(PACKETS));
    Ok(before.is_some() && after.is_some() && before != after)
}
