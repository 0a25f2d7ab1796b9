//! Findings of a job: its records as the rules of [`skopos_score::finding`] see them, and earlier jobs of its class.

use std::collections::BTreeMap;

use skopos_access::Caller;
use skopos_model::job::{JobId, JobState, Kind, NamesInForce};
use skopos_model::task::Summary;
use skopos_score::finding::{
    CLASS, Earlier, JobView, Judged, RULES, Series, Verdict, is_read, judge,
};
use skopos_store::jobs::{Filter, JobEntry, PageRequest, Sort, StoredRecord, Visibility};

use super::store::Jobs;

/// The most series of a job that is judged: two metrics of each node of the largest job.
const MAX_SERIES: usize = 2 * skopos_store::jobs::MAX_NODES;

/// The most points of a series. When it is full, every second point is dropped and later ones are thinned in the same way:
/// a rule needs some tens.
const MAX_POINTS: usize = 512;

/// The most reports of a job that is judged: a report has some kilobytes.
const MAX_REPORTS: usize = 10_000;

/// The most earlier jobs with which a job is compared. A program changes; the latest jobs tell of its present form.
const MAX_EARLIER: usize = 64;

/// An error of reading jobs.
type ReadError = Box<dyn std::error::Error + Send + Sync>;

impl Jobs {
    /// Judges a job that the caller may read by all rules; `None` if there is no such job. The earlier jobs of its class
    /// are those that the caller may read.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn judge(&self, caller: &Caller, id: &JobId) -> Result<Option<Vec<Judged>>, ReadError> {
        let Some(entry) = self.entry(caller, id)? else { return Ok(None) };
        let mut gathered = Gathered::default();
        for piece in self.pieces(caller, id)? {
            gathered.add(&self.read(id, piece)?);
        }
        if let Some(reason) = gathered.too_many {
            return Ok(Some(not_judged(reason)));
        }
        let earlier = self.earlier(caller, &entry)?;
        Ok(Some(judge(&gathered.view(&entry), &earlier)))
    }

    /// Returns what earlier jobs of the same user and application used, of those that completed.
    fn earlier(&self, caller: &Caller, entry: &JobEntry) -> Result<Vec<Earlier>, ReadError> {
        let application = entry.start.as_ref().map(|start| start.value.application.as_str());
        let application = application.filter(|application| !application.is_empty());
        let (Some(user), Some(application), Some(started)) =
            (entry.user(), application, entry.started())
        else {
            return Ok(Vec::new());
        };
        let filter = Filter {
            site: Some(entry.site.clone()),
            user: Some(user.to_owned()),
            application: Some(application.to_owned()),
            states: vec![JobState::Completed],
            ran: Some((skopos_model::Timestamp::from_nanos(i64::MIN), started)),
            ..Filter::new(Visibility::Nothing)
        };
        // The job itself may be among them.
        let request = PageRequest { most: MAX_EARLIER + 1, ..PageRequest::default() };
        debug_assert_eq!(request.order.sort, Sort::Started);
        let rows = self.search(caller, filter, &request)?.items.into_iter();
        let rows = rows.filter(|row| row.id != entry.id).take(MAX_EARLIER);
        Ok(rows.map(|row| row.used).collect())
    }
}

fn not_judged(reason: &'static str) -> Vec<Judged> {
    let of = |rule: &skopos_score::finding::Rule| Judged {
        finding: rule.name,
        verdict: Verdict::Unknown(reason.to_owned()),
        advice: rule.advice,
    };
    RULES.iter().copied().chain([&CLASS]).map(of).collect()
}

/// The records of a job that rules read.
#[derive(Default)]
struct Gathered {
    /// Places and names of the metrics that are read.
    names: NamesInForce<Vec<(usize, String)>>,
    /// By node, schema and metric.
    series: BTreeMap<(String, String, String), Thinned>,
    reports: Vec<Summary>,
    too_many: Option<&'static str>,
}

/// A series of at most [`MAX_POINTS`] points.
struct Thinned {
    points: Vec<(f64, f64)>,
    /// One point of so many is kept.
    stride: usize,
    seen: usize,
}

impl Thinned {
    fn push(&mut self, point: (f64, f64)) {
        let is_kept = self.seen.is_multiple_of(self.stride);
        self.seen += 1;
        if !is_kept {
            return;
        }
        if self.points.len() == MAX_POINTS {
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.stride *= 2;
            if !(self.seen - 1).is_multiple_of(self.stride) {
                return;
            }
        }
        self.points.push(point);
    }
}

impl Gathered {
    fn add(&mut self, records: &[StoredRecord]) {
        for record in records.iter().filter_map(StoredRecord::get) {
            match record.kind {
                Kind::Report => {
                    if let Ok(report) = record.report() {
                        self.add_report(report);
                    }
                }
                Kind::Metrics => {
                    if let Ok(list) = record.metrics() {
                        let all = list.names.into_iter().enumerate();
                        let read = all.filter(|(_, name)| is_read(name)).collect();
                        self.names.set(&list.schema, record.node, read);
                    }
                }
                Kind::Sample => self.add_sample(&record),
                _ => {}
            }
        }
    }

    fn add_report(&mut self, mut report: Summary) {
        if self.reports.len() == MAX_REPORTS {
            self.too_many = Some("the job has more than 10,000 reports of tasks");
            return;
        }
        report.processes.clear();
        report.nested.clear();
        self.reports.push(report);
    }

    fn add_sample(&mut self, record: &skopos_model::job::JobRecord<'_>) {
        let Some((schema, values)) = record.sample() else { return };
        let Some(read) = self.names.of(schema, record.node) else { return };
        if read.is_empty() {
            return;
        }
        let values: Vec<f64> = values.collect();
        let at = record.time.as_nanos() as f64 / 1e9;
        for (place, metric) in read {
            let Some(value) = values.get(*place) else { continue };
            let key = (record.node.to_owned(), schema.to_owned(), metric.clone());
            if self.series.len() == MAX_SERIES && !self.series.contains_key(&key) {
                self.too_many = Some("the job has more series than rules are applied to");
                return;
            }
            let new = || Thinned { points: Vec::new(), stride: 1, seen: 0 };
            self.series.entry(key).or_insert_with(new).push((at, *value));
        }
    }

    fn view(self, entry: &JobEntry) -> JobView {
        let series = self
            .series
            .into_iter()
            .map(|((node, _, metric), thinned)| Series::new(node, metric, thinned.points));
        JobView {
            start: entry.start.as_ref().map(|start| start.value.clone()),
            end: entry.end.as_ref().map(|end| end.value.clone()),
            reports: self.reports,
            series: series.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_is_thinned_evenly() {
        let mut series = Thinned { points: Vec::new(), stride: 1, seen: 0 };
        (0..10_000).for_each(|at| series.push((f64::from(at), 0.0)));
        let steps = series.points.windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(steps.into_iter().all(|step| step == series.stride as f64));
        assert!((MAX_POINTS / 2..=MAX_POINTS).contains(&series.points.len()));
        assert_eq!(series.points.last().map(|point| point.0), Some(9_984.0));
    }
}
