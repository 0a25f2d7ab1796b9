//! The time from a change in shared memory of one node to a reader of its mirror on another.
//!
//! The value is `CLOCK_MONOTONIC` just before the publish; all processes of a machine share this clock.
//! Two agents stand between publisher and reader: the first reads shared memory and sends, the second
//! receives and writes shared memory.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use skopos_model::{SplitMix64, Topic, Value, ValueType};
use skopos_shm::{Delivery, Host, Publisher, Subscription, VertexSpec, VertexWriter};

use super::role::endpoint;
use crate::agent::place::Place;
use crate::agent::watcher::Watcher;
use crate::clock::monotonic;
use crate::plan::Plan;
use crate::report::{Better, Figure, Goal, Report, Row};
use crate::stats::Latencies;
use skopos_term::Failure;

/// The topic that changes.
const TOPIC: &str = "a/bench/propagation/time";
/// Number of slices in a turn: a change takes some milliseconds, most of it the gap.
const SLICES: u32 = 8;
/// The longest time until a value arrives.
const PATIENCE: Duration = Duration::from_secs(20);

/// Gaps between changes, in nanoseconds.
struct Case {
    name: &'static str,
    gap: std::ops::Range<u64>,
    /// The most that the median may be, in round trips of raw TCP in the same run.
    most: f64,
}

const CASES: [Case; 2] = [
    // At the pace of sensors: the uplink is idle.
    Case { name: "propagation, now and then", gap: 3_000_000..15_000_000, most: 3.0 },
    // Faster than batches are sent, so that a batch gathers changes.
    Case { name: "propagation, thousands a second", gap: 50_000..400_000, most: 4.0 },
];

pub(super) fn measure(plan: &Plan, place: &Place, report: &mut Report) -> Result<(), Failure> {
    let at = endpoint()?;
    let live = ["--live", "--insecure"];
    let tells = [&["--node", "a", "--listen", &at], &live[..]].concat();
    let mirrors =
        [&["--node", "b", "--connect", &at, "--mirror", "a/bench/**"], &live[..]].concat();
    let a = Watcher::start(place, "", &tells)?;
    let b = Watcher::start(place, "", &mirrors)?;
    let dir =
        |watcher: &Watcher| watcher.segment().path().parent().map(std::path::Path::to_path_buf);
    let (Some(a_dir), Some(b_dir)) = (dir(&a), dir(&b)) else {
        return Err(Failure::new("a segment without a directory"));
    };
    let publisher = Publisher::builder("bench").dir(a_dir).create()?;
    let topic: Topic = TOPIC.parse()?;
    let writer = publisher.register(VertexSpec::new(topic.clone(), ValueType::U64))?;
    writer.publish(1u64)?;
    let mut mirrored = find(Host::open_dirs(vec![b_dir])?, &topic)?;
    let mut raw = Raw::new()?;
    for case in CASES {
        let (mut ours, mut theirs) = (Latencies::new(), Latencies::new());
        let mut round_trips = Latencies::new();
        let mut random = SplitMix64::new(1);
        for _ in 0..plan.rounds {
            turn(&case, plan, &mut random, |random_gap| {
                random_gap();
                changed(&writer, &mut mirrored, &mut ours)
            })?;
            turn(&case, plan, &mut random, |random_gap| {
                random_gap();
                raw.send(&mut theirs, &mut round_trips)
            })?;
        }
        let row = |metric, percent| {
            let value = ours.percentile(percent) / 1e3;
            Row::new(case.name, metric, "µs", value, Better::Lower)
                .peer("raw TCP", Figure::Known(theirs.percentile(percent) / 1e3))
        };
        let times = ours.percentile(50.0) / round_trips.percentile(50.0);
        report.add([
            row("p50", 50.0),
            Row::new(case.name, "p50, in round trips of raw TCP", "", times, Better::Lower)
                .goal(Goal::AtMost(case.most)),
            row("p99", 99.0),
        ]);
    }
    report.note(
        "propagation: a program publishes in shared memory of node a; agents a and b; a program that \
         sleeps on b's mirror is woken. raw TCP: eight bytes over the loopback to a thread that sleeps in \
         a read, as quick as any live plane could be; in turns with ours",
    );
    Ok(())
}

/// Repeats `once` for a turn, at random gaps.
fn turn(
    case: &Case,
    plan: &Plan,
    random: &mut SplitMix64,
    mut once: impl FnMut(&mut dyn FnMut()) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let begun = Instant::now();
    while begun.elapsed() < plan.slice * SLICES {
        once(&mut || {
            let gap = case.gap.start + random.bits() % (case.gap.end - case.gap.start);
            std::thread::sleep(Duration::from_nanos(gap));
        })?;
    }
    Ok(())
}

/// Waits for the mirrored vertex.
fn find(mut host: Host, topic: &Topic) -> Result<Subscription, Failure> {
    let begun = Instant::now();
    loop {
        host.refresh()?;
        match host.find(topic) {
            Ok(vertex) if vertex.latest().is_ok() => return Ok(vertex.subscribe()),
            Ok(_) | Err(_) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => return Err(Failure::new(format!("{topic} does not come into the mirror"))),
        }
    }
}

/// Changes the value, and waits for the change in the mirror.
fn changed(
    writer: &VertexWriter,
    mirrored: &mut Subscription,
    latencies: &mut Latencies,
) -> Result<(), Failure> {
    let sent = monotonic();
    writer.publish(sent)?;
    loop {
        match mirrored.next_timeout(PATIENCE)? {
            Some(Delivery::Sample(sample)) if sample.value == Value::U64(sent) => {
                latencies.record(monotonic() - sent);
                return Ok(());
            }
            // The sample belongs to an earlier change.
            Some(_) => {}
            None => return Err(Failure::new("a change does not come into the mirror")),
        }
    }
}

/// A thread that answers each eight bytes with the time of their arrival.
struct Raw(TcpStream);

impl Raw {
    fn new() -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::new("the loopback does not work").because(&e);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let stream = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
        let (mut other, _) = listener.accept().map_err(failed)?;
        for end in [&stream, &other] {
            end.set_nodelay(true).map_err(failed)?;
        }
        let mut bytes = [0; 8];
        let answer = move || {
            while other.read_exact(&mut bytes).is_ok() {
                if other.write_all(&monotonic().to_le_bytes()).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("raw".to_owned()).spawn(answer).map_err(failed)?;
        Ok(Self(stream))
    }

    /// Measures the time until the arrival, and that until the answer.
    fn send(&mut self, latencies: &mut Latencies, round: &mut Latencies) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::new("the loopback does not work").because(&e);
        let (sent, mut bytes) = (monotonic(), [0; 8]);
        self.0.write_all(&sent.to_le_bytes()).map_err(failed)?;
        self.0.read_exact(&mut bytes).map_err(failed)?;
        round.record(monotonic().saturating_sub(sent));
        latencies.record(u64::from_le_bytes(bytes).saturating_sub(sent));
        Ok(())
    }
}
