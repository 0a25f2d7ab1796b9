//! A simulated host: a detector with its receiver, over hours in seconds.

use std::net::SocketAddr;
use std::ops::Range;

use skopos_model::Timestamp;
use skopos_net::anomaly::{Handle, Receiver, Reporter, SiteKey};

use super::faults::{Fault, Times, plan};
use super::host::{Host, Metric};
use super::tally::{Tally, Unusual};
use crate::report::Row;

const KINDS: [&str; 8] = [
    "slow disk",
    "packet loss",
    "congested link",
    "memory pressure",
    "noisy neighbour",
    "full accept queue",
    "dropped packets",
    "hot device",
];

/// The seed with which the detector was tuned, and two that were opened once. The third is new to this benchmark.
const SEEDS: [(u64, &str); 3] =
    [(1, "seed of the tuning"), (20_261_128, "held-out seed"), (20_261_201, "new seed")];

/// Injected faults of each kind.
const FAULTS_PER_KIND: usize = 8;

const TIMES: Times = Times { warm_up: 1800, spacing: 120.0, lasting: (15.0, 45.0) };

/// Hours without faults, for the rate of false reports.
const QUIET_HOURS: i64 = 24;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

pub(super) fn measure() -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for (seed, name) in SEEDS {
        let case = format!("simulated host, {name} {seed}");
        let faults = plan(seed, FAULTS_PER_KIND, TIMES);
        let end = faults.last().map_or(0, |fault| fault.end + 120);
        // Every metric belongs to the loads and faults of this host alone.
        let mut tally = Tally::new(&faults, |_, _| true);
        run(Host::new(seed), 0..end, &mut tally, &faults)?;
        rows.extend(tally.found(&case, KINDS));
        rows.push(tally.cost(&case));
        let mut quiet = Tally::new(&[], |_, _| false);
        run(Host::new(seed ^ 0x5eed), 0..TIMES.warm_up + QUIET_HOURS * 3600, &mut quiet, &[])?;
        rows.extend(quiet.quiet(&case));
    }
    Ok(rows)
}

fn run(
    mut host: Host,
    seconds: Range<i64>,
    tally: &mut Tally<'_>,
    faults: &[Fault],
) -> Outcome<()> {
    let mut judged = Judged::new(host.metrics())?;
    for second in seconds {
        let values = host.second(second, faults);
        let outcome = judged.tick(second, values)?;
        // Nothing counts before every load has been seen.
        if second < TIMES.warm_up {
            continue;
        }
        tally.second(second, outcome.changed);
        tally.bytes(outcome.packet.as_slice());
        if !outcome.new.is_empty() {
            tally.judge(second as f64, &outcome.new);
        }
    }
    Ok(())
}

/// A reporter and its receiver.
struct Judged {
    reporter: Reporter,
    receiver: Receiver,
    handles: Vec<Handle>,
    last: Vec<f64>,
    unusual: Unusual,
    samples: Vec<(Handle, f64)>,
}

/// A second of them.
struct Second {
    changed: u64,
    /// Bytes of the packet, if there was one.
    packet: Option<usize>,
    /// Metrics that became unusual.
    new: Vec<String>,
}

impl Judged {
    fn new(metrics: &[Metric]) -> Outcome<Self> {
        let site = SiteKey::new(b"the secret of the benchmark")?;
        let mut reporter = Reporter::new(&site.node_secret("n01"), "n01", at(-1))?;
        let join = |(name, kind, unit): &Metric| reporter.join(name, *kind, *unit);
        let handles = metrics.iter().map(join).collect::<Option<Vec<_>>>().ok_or("no room")?;
        Ok(Self {
            reporter,
            receiver: Receiver::new(site),
            last: vec![f64::NAN; handles.len()],
            handles,
            unusual: Unusual::default(),
            samples: Vec::new(),
        })
    }

    fn tick(&mut self, second: i64, values: &[f64]) -> Outcome<Second> {
        self.samples.clear();
        self.samples.extend(self.handles.iter().copied().zip(values.iter().copied()));
        let changed = values.iter().zip(&self.last).filter(|(new, old)| new != old).count() as u64;
        self.last.copy_from_slice(values);
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut outcome = Second { changed, packet: None, new: Vec::new() };
        if let Some(packet) = self.reporter.tick(at(second), &self.samples) {
            outcome.packet = Some(packet.len());
            let report = self.receiver.take(from, packet, at(second))?;
            outcome.new = self.unusual.note(&report);
        }
        Ok(outcome)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos((1_800_000_000 + second) * 1_000_000_000)
}
