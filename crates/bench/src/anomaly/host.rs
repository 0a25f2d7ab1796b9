//! A simulated host: loads that come and go, and the metrics that follow them.
//!
//! Noise is multiplicative with heavy tails; one sample in two hundred of a latency is a spike. Loads (`fio`, `iperf3`, a
//! compiler, a program that fills memory) run for 20 to 60 seconds and pause for one to four minutes, at different strengths.

use skopos_model::{Kind, SplitMix64, Unit};

use super::faults::Fault;

const DISKS: usize = 4;
const LINKS: usize = 4;
const LISTENERS: usize = 4;
const CORES: usize = 16;
const PEERS: usize = 12;
const PROBES: usize = 6;

/// The loads by their number.
const FIO: usize = 0;
const IPERF: usize = 1;
const COMPILER: usize = 2;
const FILLER: usize = 3;
const LOADS: usize = 4;

/// A metric of the host: topic, kind and unit.
pub(super) type Metric = (String, Kind, Unit);

pub(super) struct Host {
    random: SplitMix64,
    metrics: Vec<Metric>,
    /// Sums of counters, by the place of their metric.
    totals: Vec<f64>,
    values: Vec<f64>,
    loads: [Load; LOADS],
    /// Slow states: temperatures and free memory.
    heat: [f64; PROBES],
    memory: f64,
}

#[derive(Clone, Copy, Default)]
struct Load {
    strength: f64,
    until: i64,
}

impl Host {
    pub(super) fn new(seed: u64) -> Self {
        let mut host = Self {
            random: SplitMix64::new(seed),
            metrics: Vec::new(),
            totals: Vec::new(),
            values: Vec::new(),
            loads: [Load::default(); LOADS],
            heat: [45.0; PROBES],
            memory: 0.5,
        };
        // One second makes the list.
        host.sample(0, &[]);
        host
    }

    pub(super) fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Returns the values of all metrics at a second, in the order of `metrics`.
    pub(super) fn second(&mut self, second: i64, faults: &[Fault]) -> &[f64] {
        for load in 0..LOADS {
            if second >= self.loads[load].until {
                let was_on = self.loads[load].strength > 0.0;
                let (low, high) = if was_on { (60.0, 240.0) } else { (20.0, 60.0) };
                let until = second + self.random.between(low, high) as i64;
                let strength = if was_on { 0.0 } else { self.random.between(0.5, 1.0) };
                self.loads[load] = Load { strength, until };
            }
        }
        self.sample(second, faults);
        &self.values
    }

    fn sample(&mut self, second: i64, faults: &[Fault]) {
        self.values.clear();
        let size = |kind, place| faults.iter().find_map(|fault| fault.at(kind, place, second));
        let [fio, iperf, compiler, filler] =
            [FIO, IPERF, COMPILER, FILLER].map(|load| self.loads[load].strength);
        for disk in 0..DISKS {
            self.disk(disk, if disk < 2 { fio } else { 0.3 * fio }, size(0, disk));
        }
        for link in 0..LINKS {
            self.link(link, if link == 0 { iperf } else { 0.05 }, size(2, link), size(6, link));
        }
        for listener in 0..LISTENERS {
            let queue = size(5, listener).map_or(0.0, |s| 40.0 + 400.0 * s);
            let jitter = self.heavy(0.6).floor().min(3.0);
            self.gauge(&format!("listener/{listener}/accept_queue"), Unit::NONE, queue + jitter);
        }
        let loss = (0..4).find_map(|place| size(1, place));
        self.tcp(iperf, loss);
        let steal = (0..4).find_map(|place| size(4, place));
        self.cores(compiler, fio.max(iperf), steal);
        let short = (0..4).find_map(|place| size(3, place));
        self.memory(filler, fio, short);
        for probe in 0..PROBES {
            self.probe(probe, compiler.max(0.5 * fio), size(7, probe));
        }
    }

    fn disk(&mut self, disk: usize, load: f64, slow: Option<f64>) {
        let factor = slow.map_or(1.0, |s| 6.0 + 14.0 * s);
        let reads = (30.0 + 3000.0 * load) * self.heavy(0.2) / factor.sqrt();
        let writes = (20.0 + 1500.0 * load) * self.heavy(0.3) / factor.sqrt();
        let latency = (0.0004 + 0.0016 * load) * factor;
        let (read_latency, write_latency) =
            (latency * self.spiky(0.25), latency * self.spiky(0.35));
        let depth = reads * read_latency + writes * write_latency;
        let name = |metric| format!("block/vd{disk}/{metric}");
        self.counter(&name("read_requests_total"), Unit::NONE, reads);
        self.counter(&name("read_bytes_total"), Unit::BYTES, reads * 16_384.0);
        self.counter(&name("written_requests_total"), Unit::NONE, writes);
        self.counter(&name("written_bytes_total"), Unit::BYTES, writes * 32_768.0);
        self.gauge(&name("read_latency_seconds"), Unit::SECONDS, read_latency);
        self.gauge(&name("write_latency_seconds"), Unit::SECONDS, write_latency);
        self.gauge(&name("queue_depth_mean"), Unit::NONE, depth);
        self.gauge(&name("busy_ratio"), Unit::RATIO, (depth / 4.0).min(1.0));
        let hits = (0.97 - 0.3 * load - 0.02 * self.heavy(0.5)).clamp(0.0, 1.0);
        self.gauge(&name("cache_hit_ratio"), Unit::RATIO, hits);
    }

    fn link(&mut self, link: usize, load: f64, congested: Option<f64>, dropping: Option<f64>) {
        let packets = (200.0 + 80_000.0 * load) * self.heavy(0.15);
        let waits = 0.000_05 + 0.002 * load * self.spiky(0.5);
        let sojourn = waits + congested.map_or(0.0, |s| 0.02 + 0.08 * s) * self.heavy(0.1);
        let drops = dropping.map_or(0.0, |s| 40.0 + 2000.0 * s) * self.heavy(0.2);
        // A ring overflows for a moment now and then.
        let odd = if self.random.unit() < 0.002 { 20.0 } else { 0.0 };
        let name = |metric| format!("netdev/eth{link}/{metric}");
        self.counter(&name("received_packets_total"), Unit::NONE, packets);
        self.counter(&name("received_bytes_total"), Unit::BYTES, packets * 900.0);
        self.counter(&name("sent_bytes_total"), Unit::BYTES, packets * 1100.0);
        self.counter(&name("softnet_drops_total"), Unit::NONE, (drops + odd).floor());
        self.gauge(&name("qdisc_sojourn_seconds"), Unit::SECONDS, sojourn);
        self.gauge(&name("qdisc_backlog_bytes"), Unit::BYTES, (sojourn * 6e8).floor());
        let value = (load * 20.0 * self.heavy(0.5)).floor();
        self.counter(&name("qdisc_requeues_total"), Unit::NONE, value);
    }

    fn tcp(&mut self, load: f64, loss: Option<f64>) {
        let lost = loss.map_or(0.0, |s| 0.01 + 0.04 * s);
        let segments = 2000.0 + 60_000.0 * load;
        let usual = segments * 0.0002 * self.heavy(0.8);
        let value = segments * self.heavy(0.1);
        self.counter("tcp/sent_segments_total", Unit::NONE, value);
        self.counter("tcp/retransmits_total", Unit::NONE, (usual + segments * lost).floor());
        let again = (usual + segments * lost).floor() / segments;
        self.gauge("tcp/retransmit_ratio", Unit::RATIO, again);
        let value = (lost * 100.0 * self.heavy(0.3)).floor();
        self.counter("tcp/timeouts_total", Unit::NONE, value);
        let value = (120.0 + 40.0 * load * self.heavy(0.1)).floor();
        self.gauge("tcp/established", Unit::NONE, value);
        for peer in 0..PEERS {
            let base = 0.0003 + 0.004 * peer as f64;
            let rtt = base * (1.0 + load) * self.spiky(0.1) * (1.0 + 10.0 * lost);
            self.gauge(&format!("peer/{peer}/rtt_seconds"), Unit::SECONDS, rtt);
        }
    }

    fn cores(&mut self, compiler: f64, other: f64, steal: Option<f64>) {
        let load = (0.04 + 0.8 * compiler + 0.15 * other).min(1.0);
        for core in 0..CORES {
            let busy = (load * self.heavy(0.3)).min(1.0);
            self.gauge(&format!("cpu/{core}/busy_ratio"), Unit::RATIO, busy);
            let value = (400.0 + 4000.0 * other) * self.heavy(0.2);
            self.counter(&format!("interrupts/{core}/handled_total"), Unit::NONE, value);
        }
        let factor = steal.map_or(1.0, |s| 8.0 + 22.0 * s);
        let waiting = (0.0002 + 0.003 * compiler) * factor;
        let (p50, p99) = (waiting * self.spiky(0.2), 6.0 * waiting * self.spiky(0.4));
        self.gauge("runq/p50_seconds", Unit::SECONDS, p50);
        self.gauge("runq/p99_seconds", Unit::SECONDS, p99);
        let stolen = steal.map_or(0.0, |s| 0.15 + 0.4 * s) * self.heavy(0.2);
        self.gauge("cpu/steal_ratio", Unit::RATIO, stolen.min(1.0));
        let stalled = (0.25 * compiler * self.heavy(0.3) + stolen).min(1.0);
        self.counter("psi/cpu/some_stall_seconds_total", Unit::SECONDS, stalled);
    }

    fn memory(&mut self, filler: f64, fio: f64, short: Option<f64>) {
        let goal = 0.6 - 0.3 * filler - short.map_or(0.0, |s| 0.2 + 0.1 * s);
        self.memory += 0.1 * (goal - self.memory);
        let bytes = 64e9 * self.memory * self.heavy(0.002);
        self.gauge("mem/available_bytes", Unit::BYTES, bytes.floor());
        let dirty = 2e8 * (0.2 + fio) * self.heavy(0.4);
        self.gauge("mem/dirty_bytes", Unit::BYTES, dirty.floor());
        let faults = short.map_or(0.0, |s| 300.0 + 3000.0 * s) + 4.0 * filler;
        let value = (faults * self.heavy(0.4)).floor();
        self.counter("vmstat/major_faults_total", Unit::NONE, value);
        let value = (2e4 + 2e5 * filler) * self.heavy(0.2);
        self.counter("vmstat/page_faults_total", Unit::NONE, value);
        let stalled = short.map_or(0.0, |s| 0.08 + 0.5 * s) * self.heavy(0.2) + 0.01 * filler;
        self.counter("psi/memory/some_stall_seconds_total", Unit::SECONDS, stalled.min(1.0));
        let value = (0.3 * fio * self.heavy(0.3) + 0.5 * stalled).min(1.0);
        self.counter("psi/io/some_stall_seconds_total", Unit::SECONDS, value);
    }

    fn probe(&mut self, probe: usize, load: f64, hot: Option<f64>) {
        // A fault heats by a degree a second; a load changes the goal, with inertia.
        let goal = 42.0 + 2.0 * probe as f64 + 14.0 * load;
        let state = &mut self.heat[probe];
        *state += match hot {
            Some(size) => 0.8 + size,
            None => 0.03 * (goal - *state),
        };
        let shown = (*state * 4.0).round() / 4.0;
        self.gauge(&format!("hwmon/{probe}/temperature_celsius"), Unit::known("celsius"), shown);
    }

    fn gauge(&mut self, name: &str, unit: Unit, value: f64) {
        self.add(name, Kind::Gauge, unit);
        self.values.push(value);
    }

    fn counter(&mut self, name: &str, unit: Unit, rate: f64) {
        self.add(name, Kind::Counter, unit);
        let total = &mut self.totals[self.values.len()];
        *total += rate;
        self.values.push(*total);
    }

    fn add(&mut self, name: &str, kind: Kind, unit: Unit) {
        if self.metrics.len() == self.values.len() {
            self.metrics.push((name.to_owned(), kind, unit));
            self.totals.push(0.0);
        }
    }

    /// A factor around 1 with a tail: e to the power of a normal number.
    fn heavy(&mut self, spread: f64) -> f64 {
        (spread * self.random.normal()).exp()
    }

    /// The same, and one in two hundred is a spike.
    fn spiky(&mut self, spread: f64) -> f64 {
        let spike = if self.random.unit() < 0.005 { self.random.between(3.0, 10.0) } else { 1.0 };
        spike * self.heavy(spread)
    }
}
