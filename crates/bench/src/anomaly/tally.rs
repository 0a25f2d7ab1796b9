//! Counts of what reports found and cost.

use std::collections::{BTreeMap, BTreeSet};

use skopos_net::anomaly::{Report, Severity};

use super::faults::{Fault, KINDS};
use crate::report::{Better, Figure, Goal, Row};
use crate::stats::median;

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

/// The metrics that are unusual by the reports so far.
#[derive(Default)]
pub(super) struct Unusual(BTreeSet<String>);

impl Unusual {
    /// Notes a report. Returns the names of metrics that became unusual.
    pub(super) fn note(&mut self, report: &Report) -> Vec<String> {
        let mut new = Vec::new();
        for finding in &report.findings {
            let name = finding.name.as_deref().unwrap_or("?");
            if finding.severity == Severity::Usual {
                self.0.remove(name);
            } else if self.0.insert(name.to_owned()) {
                new.push(name.to_owned());
            }
        }
        new
    }
}

/// The outcome of a run.
pub(super) struct Tally<'a> {
    faults: &'a [Fault],
    /// Returns true if a fault of this kind shows itself in this metric.
    shows: fn(usize, &str) -> bool,
    /// The delay to the first report of each fault in seconds.
    delays: Vec<Option<f64>>,
    /// Reports of a new anomaly in a metric in which a fault of that time shows itself.
    true_reports: u64,
    /// Reports of new anomalies in other metrics while there was a fault: its consequences, or false.
    other_reports: u64,
    /// Reports of new anomalies while there was no fault.
    false_reports: u64,
    /// The metrics of false reports, with their number.
    pub(super) false_names: BTreeMap<String, u64>,
    bytes: u64,
    raw_bytes: u64,
    /// Seconds, and those without a fault.
    seconds: u64,
    quiet: u64,
}

impl<'a> Tally<'a> {
    pub(super) fn new(faults: &'a [Fault], shows: fn(usize, &str) -> bool) -> Self {
        Self {
            faults,
            shows,
            delays: vec![None; faults.len()],
            true_reports: 0,
            other_reports: 0,
            false_reports: 0,
            false_names: BTreeMap::new(),
            bytes: 0,
            raw_bytes: 0,
            seconds: 0,
            quiet: 0,
        }
    }

    /// Counts packets that were sent, by their bytes.
    pub(super) fn bytes(&mut self, packets: &[usize]) {
        self.bytes += packets.iter().map(|bytes| *bytes as u64 + DATAGRAM_BYTES).sum::<u64>();
    }

    /// Counts a second with so many changed values.
    pub(super) fn second(&mut self, second: i64, changed: u64) {
        self.seconds += 1;
        self.quiet += u64::from(!self.faults.iter().any(|fault| fault.concerns(second as f64)));
        self.raw_bytes += changed * RAW_BYTES + changed.div_ceil(RAW_PER_PACKET) * RAW_PACKET_BYTES;
    }

    /// Counts a report with new anomalies at a time in seconds.
    pub(super) fn judge(&mut self, at: f64, new: &[String]) {
        let (mut is_true, mut belongs) = (false, false);
        for (fault, delay) in self.faults.iter().zip(&mut self.delays) {
            if fault.concerns(at) {
                belongs = true;
                let is_shown = new.iter().any(|name| (self.shows)(fault.kind, name));
                is_true |= is_shown;
                if is_shown && at < fault.end as f64 + 1.0 && delay.is_none() {
                    *delay = Some(at - fault.begin);
                }
            }
        }
        if belongs {
            self.true_reports += u64::from(is_true);
            self.other_reports += u64::from(!is_true);
            return;
        }
        self.false_reports += 1;
        for name in new {
            *self.false_names.entry(name.clone()).or_default() += 1;
        }
    }

    /// Returns rows about faults.
    pub(super) fn found(&self, case: &str, kinds: [&str; KINDS]) -> Vec<Row> {
        let delays: Vec<f64> = self.delays.iter().flatten().copied().collect();
        let share = |part: f64, whole: f64| match whole > 0.0 {
            true => Figure::Known(part / whole),
            false => Figure::Unknown("there was none".to_owned()),
        };
        let all = (self.true_reports + self.other_reports + self.false_reports) as f64;
        let recall = share(delays.len() as f64, self.faults.len() as f64);
        let precision = share(self.true_reports as f64, all);
        let others = share(self.other_reports as f64, all);
        let delay = match delays.is_empty() {
            true => Figure::Unknown("no fault was found".to_owned()),
            false => Figure::Known(median(&delays)),
        };
        let mut rows = vec![
            Row::of(case, "recall", "", recall, Better::Higher).goal(Goal::AtLeast(0.95)),
            Row::of(
                case,
                "precision: reports of a metric of the fault",
                "",
                precision,
                Better::Higher,
            ),
            Row::of(case, "reports of other metrics within a fault", "", others, Better::Neither),
            Row::of(case, "median time to the report", "s", delay, Better::Lower)
                .goal(Goal::AtMost(2.0))
                .rounds("skopos", &delays),
        ];
        for (kind, name) in kinds.into_iter().enumerate() {
            let of_kind = self.faults.iter().zip(&self.delays).filter(|(f, _)| f.kind == kind);
            let (all, found) = of_kind.fold((0, 0), |(all, found), (_, delay)| {
                (all + 1, found + u32::from(delay.is_some()))
            });
            let row =
                Row::new(case, format!("found of {name}"), "", f64::from(found), Better::Higher);
            rows.push(row.beside("injected", Figure::Known(f64::from(all))));
        }
        rows
    }

    /// Returns a row about bytes.
    pub(super) fn cost(&self, case: &str) -> Row {
        let percent = 100.0 * self.bytes as f64 / self.raw_bytes.max(1) as f64;
        Row::new(case, "bytes of reports, of changed values sent raw", "%", percent, Better::Lower)
            .goal(Goal::AtMost(1.0))
    }

    /// Returns rows about reports without a reason.
    pub(super) fn quiet(&self, case: &str) -> Vec<Row> {
        let hours = self.quiet as f64 / 3600.0;
        let false_reports = self.false_reports as f64 / hours;
        let share = 100.0 * (self.seconds - self.quiet) as f64 / self.seconds.max(1) as f64;
        vec![
            Row::new(case, "time with a fault or just after", "%", share, Better::Neither),
            Row::new(case, "time without a fault", "h", hours, Better::Neither),
            Row::new(case, "false reports", "/h", false_reports, Better::Lower)
                .goal(Goal::AtMost(1.0)),
        ]
    }
}

impl Fault {
    /// Returns true while the fault lasts and shortly after.
    fn concerns(&self, at: f64) -> bool {
        at >= self.begin && at < (self.end + GRACE) as f64
    }
}
