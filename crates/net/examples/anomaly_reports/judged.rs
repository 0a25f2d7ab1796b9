//! A reporter with its receiver, and the tally of what they found and sent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use skopos_model::{Kind, Timestamp, Unit};
use skopos_net::anomaly::{Handle, Receiver, Report, Reporter, Severity, SiteKey};

use crate::faults::Fault;

/// Headers of IPv4 and UDP.
const DATAGRAM_BYTES: u64 = 28;

/// Bytes of a value that is sent raw: an id of two bytes and a number of eight. The dictionary is free.
const RAW_BYTES: u64 = 10;

/// Header and tag of a packet of raw values, as a report has them.
const RAW_PACKET_BYTES: u64 = 52 + DATAGRAM_BYTES;

/// Raw values in a packet of 1,100 bytes.
const RAW_PER_PACKET: u64 = 104;

/// Seconds after a fault in which its consequences are not false.
const GRACE: i64 = 20;

pub(crate) struct Judged {
    reporter: Reporter,
    receiver: Receiver,
    handles: Vec<Handle>,
    last: Vec<f64>,
    /// Metrics that are unusual by the reports.
    unusual: BTreeSet<String>,
    samples: Vec<(Handle, f64)>,
}

/// The outcome.
pub(crate) struct Tally {
    /// The delay to the first report of each fault.
    pub(crate) delays: Vec<Option<f64>>,
    /// Reports with a new anomaly while there was a fault, and while there was none.
    pub(crate) true_reports: u64,
    pub(crate) false_reports: u64,
    pub(crate) false_names: BTreeMap<String, u64>,
    packets: u64,
    bytes: u64,
    raw_bytes: u64,
    seconds: u64,
}

impl Tally {
    pub(crate) fn new(faults: usize) -> Self {
        Self {
            delays: vec![None; faults],
            true_reports: 0,
            false_reports: 0,
            false_names: BTreeMap::new(),
            packets: 0,
            bytes: 0,
            raw_bytes: 0,
            seconds: 0,
        }
    }

    pub(crate) fn print_bytes(&self, what: &str) {
        println!(
            "bytes {what}: {} in {} packets over {:.2} h; changed values raw: {}; ratio {:.3} %",
            self.bytes,
            self.packets,
            self.seconds as f64 / 3600.0,
            self.raw_bytes,
            100.0 * self.bytes as f64 / self.raw_bytes as f64
        );
    }

    /// Counts a report with new anomalies.
    fn judge(&mut self, second: i64, new: &[String], faults: &[Fault]) {
        let mut belongs = false;
        for (fault, delay) in faults.iter().zip(&mut self.delays) {
            if second as f64 >= fault.begin && second < fault.end + GRACE {
                belongs = true;
                if second < fault.end && delay.is_none() {
                    *delay = Some(second as f64 - fault.begin);
                }
            }
        }
        if belongs {
            self.true_reports += 1;
            return;
        }
        self.false_reports += 1;
        for name in new {
            *self.false_names.entry(name.clone()).or_default() += 1;
        }
    }
}

impl Judged {
    pub(crate) fn new(
        metrics: &[(String, Kind, Unit)],
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let site = SiteKey::new(b"the secret of the benchmark")?;
        let mut reporter = Reporter::new(&site.node_secret("n01"), "n01", at(-1))?;
        let join = |(name, kind, unit): &(String, Kind, Unit)| reporter.join(name, *kind, *unit);
        let handles = metrics.iter().map(join).collect::<Option<Vec<_>>>().ok_or("no room")?;
        Ok(Self {
            reporter,
            receiver: Receiver::new(site),
            last: vec![f64::NAN; handles.len()],
            handles,
            unusual: BTreeSet::new(),
            samples: Vec::new(),
        })
    }

    /// Takes one second. NaN is a value that was not polled. The tally counts if `counts`.
    pub(crate) fn tick(
        &mut self,
        second: i64,
        values: &[f64],
        faults: &[Fault],
        counts: bool,
        tally: &mut Tally,
    ) -> Result<(), Box<dyn std::error::Error>> {
        self.samples.clear();
        let known = self.handles.iter().zip(values).filter(|(_, value)| !value.is_nan());
        self.samples.extend(known.map(|(handle, value)| (*handle, *value)));
        let is_new = |(new, old): &(&f64, &f64)| new != old && !new.is_nan();
        let changed = values.iter().zip(&self.last).filter(is_new).count() as u64;
        self.last.copy_from_slice(values);
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let packet = self.reporter.tick(at(second), &self.samples);
        let bytes = packet.map_or(0, |packet| packet.len() as u64 + DATAGRAM_BYTES);
        let report = packet.map(|packet| self.receiver.take(from, packet, at(second)));
        let new = report.transpose()?.map_or_else(Vec::new, |report| self.note(&report));
        if !counts {
            return Ok(());
        }
        tally.seconds += 1;
        tally.packets += u64::from(bytes > 0);
        tally.bytes += bytes;
        tally.raw_bytes +=
            changed * RAW_BYTES + changed.div_ceil(RAW_PER_PACKET) * RAW_PACKET_BYTES;
        if !new.is_empty() {
            tally.judge(second, &new, faults);
        }
        Ok(())
    }

    /// Returns the names of metrics that became unusual.
    fn note(&mut self, report: &Report) -> Vec<String> {
        let mut new = Vec::new();
        for finding in &report.findings {
            let name = finding.name.as_deref().unwrap_or("?").to_owned();
            if finding.severity == Severity::Usual {
                self.unusual.remove(&name);
            } else if self.unusual.insert(name.clone()) {
                new.push(name);
            }
        }
        new
    }
}

/// Returns the median; NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos((1_800_000_000 + second) * 1_000_000_000)
}
