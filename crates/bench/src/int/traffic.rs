//! Traffic with and without telemetry: packets that get it, and packets that do not.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use skopos_net::lab::Lab;

use super::setting::{Outcome, WATCHED, lab, planes, seen, socket};
use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Row};
use crate::stats::{interval, median};

/// The port of packets that are not watched.
const OTHER: u16 = 7001;

/// Packets of a turn.
const PACKETS: u32 = 4000;

/// Bytes of a datagram: a small request.
const PAYLOAD: usize = 500;

/// Turns are cheap, and the interval of their median needs six: so many for each round of the plan.
const TURNS: usize = 6;

/// The least share of its throughput that traffic beside the programs keeps, by the lower end of the interval.
const LEAST_SHARE: f64 = 0.98;

/// Pairs of TCP connections for each round of the plan: throughput on a busy machine scatters by a few per cent.
const PAIRS: usize = 4;

/// The time of a TCP connection.
const BULK: Duration = Duration::from_millis(1500);

/// A packet that does not come within this time is lost.
const PATIENCE: Duration = Duration::from_millis(100);

pub(super) fn packets(plan: &Plan) -> Outcome<Vec<Row>> {
    let lab = lab(None)?;
    let (mut without, mut beside, mut with) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds * TURNS {
        without.push(nanos_a_packet(&lab, OTHER)?);
        let [_source, mut sink] = planes(&lab, None)?;
        beside.push(nanos_a_packet(&lab, OTHER)?);
        with.push(nanos_a_packet(&lab, WATCHED)?);
        seen(&mut sink);
    }
    let case = "datagrams over two switches, one at a time";
    let row = |metric: &str, values: &[f64]| {
        Row::new(case, metric, "ns", median(values), Better::Lower).rounds("skopos", values)
    };
    Ok(vec![
        row("a packet without programs", &without),
        row("a packet that is not watched", &beside),
        row("a packet with telemetry", &with),
        more(case, "time of a packet that is not watched, more than without", &beside, &without),
        more(case, "time of a packet with telemetry, more than without", &with, &without)
            .goal(Goal::AtMost(10.0)),
    ])
}

/// A row of how much more the values are than those of the same turn before, in percent, with the ends of the interval.
fn more(case: &str, metric: &str, values: &[f64], before: &[f64]) -> Row {
    let percent: Vec<f64> =
        values.iter().zip(before).map(|(value, before)| 100.0 * (value / before - 1.0)).collect();
    let row = Row::new(case, metric, "%", median(&percent), Better::Lower);
    with_interval(row, &percent).rounds("skopos", &percent)
}

fn with_interval(row: Row, values: &[f64]) -> Row {
    let (low, high) = match interval(values) {
        Some((low, high)) => (Figure::Known(low), Figure::Known(high)),
        None => {
            let few = || Figure::Unknown("too few rounds for an interval".to_owned());
            (few(), few())
        }
    };
    row.beside("low", low).beside("high", high)
}

/// Sends datagrams from `a` to `b`, each when the one before has come. Returns the time of one in nanoseconds.
fn nanos_a_packet(lab: &Lab, port: u16) -> Outcome<f64> {
    let (sender, receiver) = (socket(lab, "a", 0)?, socket(lab, "b", port)?);
    sender.connect((lab.addresses("b")?.0, port))?;
    receiver.set_nonblocking(true)?;
    let (message, mut buffer) = ([7; PAYLOAD], [0; PAYLOAD + 100]);
    let begin = Instant::now();
    for _ in 0..PACKETS {
        sender.send(&message)?;
        let sent = Instant::now();
        loop {
            match receiver.recv(&mut buffer) {
                Ok(PAYLOAD) => break,
                Ok(bytes) => return Err(format!("a packet came with {bytes} bytes").into()),
                Err(e) if e.kind() == ErrorKind::WouldBlock && sent.elapsed() < PATIENCE => {}
                Err(e) => return Err(format!("a packet did not come: {e}").into()),
            }
        }
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(PACKETS))
}

/// Compares the throughput of traffic that is not watched with and without programs.
pub(super) fn throughput(plan: &Plan) -> Outcome<Vec<Row>> {
    let lab = lab(None)?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds * PAIRS {
        without.push(bulk(&lab)?);
        let planes = planes(&lab, None)?;
        with.push(bulk(&lab)?);
        drop(planes);
    }
    let case = "TCP that is not watched";
    let ratios: Vec<f64> =
        with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let is_equal = interval(&ratios).map(|(low, _)| low >= LEAST_SHARE);
    let row = |metric: &str, values: &[f64]| {
        Row::new(case, metric, "Gbit/s", median(values), Better::Higher).rounds("skopos", values)
    };
    let ratio = Row::new(case, "with programs / without", "", median(&ratios), Better::Higher);
    Ok(vec![
        row("throughput without programs", &without),
        row("throughput with programs", &with),
        with_interval(ratio, &ratios)
            .judged_goal(format!("at least {LEAST_SHARE} (95 %)"), is_equal)
            .rounds("skopos", &ratios),
    ])
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
    while begin.elapsed() < BULK {
        stream.write_all(&block)?;
    }
    drop(stream);
    let bytes = receiver.join().map_err(|_| "the receiver failed")??;
    Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9)
}
