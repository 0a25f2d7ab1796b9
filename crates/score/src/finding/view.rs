//! A job as the rules see it.

use std::collections::BTreeMap;

use skopos_model::job::{JobEnd, JobStart, JobState};
use skopos_model::task::{Combine, Completeness, RankUse, Reading, Summary, resource};

use super::numbers::{MIN_WALL_SECONDS, is_amount};
use super::series::Series;
use super::verdict::Verdict;

/// The last segments of the metrics that rules read.
const METRICS: [&str; 8] = [
    "resident_bytes",
    "memory_bytes",
    "busy_ratio",
    "cpu_throttled_seconds_total",
    "swap_bytes",
    "in_bytes_total",
    "gpu_busy_ratio",
    "utilization_ratio",
];

/// Returns true if a rule reads the metric of this name.
pub fn is_read(metric: &str) -> bool {
    metric.rsplit('/').next().is_some_and(|name| METRICS.contains(&name))
}

/// A job: its metadata, the reports of its tasks, and its series.
#[derive(Clone, Debug, Default)]
pub struct JobView {
    /// The metadata, if the start has arrived.
    pub start: Option<JobStart>,
    /// The result, if the job has ended.
    pub end: Option<JobEnd>,
    /// The reports of its tasks.
    pub reports: Vec<Summary>,
    /// Its series: those of [`is_read`] metrics.
    pub series: Vec<Series>,
}

/// The amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Amount {
    pub(super) value: f64,
    /// True if the job may have used more.
    pub(super) is_lower_bound: bool,
}

impl JobView {
    /// Returns the requested amount of a resource.
    pub(super) fn requested(&self, name: &str) -> Result<f64, Verdict> {
        let of_start = self.start.as_ref().and_then(|start| start.requested.get(name).copied());
        let of_limits = || {
            let set = self.reports.iter().flat_map(|report| &report.limits_set);
            let set = set.filter(|limit| limit.name == name).map(|limit| limit.most);
            set.reduce(f64::max)
        };
        let requested =
            of_start.or_else(of_limits).filter(|value| is_amount(*value) && *value > 0.0);
        requested.ok_or_else(|| Verdict::unknown(format!("the job did not request `{name}`")))
    }

    /// Returns the sum of a resource over the reports, or what the end of the job says. For a peak it is an upper bound:
    /// the tasks need not have run at one time.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub(super) fn sum(&self, name: &str) -> Result<Amount, Verdict> {
        self.combined(name, Combine::Sum)
    }

    /// Returns the most of a resource that tasks had together at one time, if each had its own peak meanwhile: tasks
    /// that ran one after the other are not added. It is an upper bound. The end of the job may say more.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub(super) fn together(&self, name: &str) -> Result<Amount, Verdict> {
        let all = self.sum(name)?;
        let changes = self.reports.iter().filter_map(|report| {
            let value = report.resources.get(name).and_then(|reading| reading.value);
            let value = value.filter(|value| is_amount(*value))?;
            Some([(report.start_seconds, value), (report.end_seconds, -value)])
        });
        let mut changes: Vec<(f64, f64)> = changes.flatten().collect();
        // A begin counts before an end at the same time.
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let sums = changes.iter().scan(0.0, |sum, (_, change)| {
            *sum += change;
            Some(*sum)
        });
        let of_tasks = sums.reduce(f64::max);
        let of_end = self.end.as_ref().and_then(|end| end.used.get(name).copied());
        let most = of_tasks.into_iter().chain(of_end.filter(|value| is_amount(*value)));
        Ok(Amount { value: most.reduce(f64::max).unwrap_or(all.value), ..all })
    }

    /// Returns the most that one report has of a resource: that of a control group which all tasks share.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub(super) fn most(&self, name: &str) -> Result<Amount, Verdict> {
        self.combined(name, Combine::Max)
    }

    /// Returns a resource, combined over the reports as reports of tasks are.
    pub(super) fn used(&self, name: &str) -> Result<Amount, Verdict> {
        self.combined(name, resource(name).map_or(Combine::Sum, |resource| resource.combine))
    }

    fn combined(&self, name: &str, combine: Combine) -> Result<Amount, Verdict> {
        let readings: Vec<&Reading> =
            self.reports.iter().filter_map(|report| report.resources.get(name)).collect();
        let values = readings.iter().filter_map(|reading| reading.value);
        let values = values.filter(|value| is_amount(*value));
        let value = match combine {
            Combine::Sum => values.reduce(|a, b| a + b),
            Combine::Max => values.reduce(f64::max),
        };
        // A batch system counts what no task reports, such as a program that was not started by `skopos run`.
        let of_end = self.end.as_ref().and_then(|end| end.used.get(name).copied());
        let of_end = of_end.filter(|value| is_amount(*value));
        let value = value.map(|value| of_end.map_or(value, |of_end| value.max(of_end))).or(of_end);
        let Some(value) = value.filter(|value| is_amount(*value)) else {
            let reason = readings.iter().find_map(|reading| reading.reason.as_deref());
            let reason = reason.unwrap_or("no report of the job has it");
            return Err(Verdict::unknown(format!("`{name}` is not known: {reason}")));
        };
        let is_part = |reading: &&&Reading| {
            matches!(reading.completeness, Completeness::AtLeast | Completeness::None)
        };
        let is_lower_bound = readings.iter().any(|reading| is_part(&reading));
        Ok(Amount { value, is_lower_bound })
    }

    /// Returns the length of the job, in seconds.
    ///
    /// # Errors
    /// It is not known, or the job is too short to be judged.
    pub(super) fn wall_seconds(&self) -> Result<f64, Verdict> {
        let begin = self.start.as_ref().and_then(|start| start.start_seconds);
        let end = self.end.as_ref().and_then(|end| end.end_seconds);
        let of_job = begin.zip(end).map(|(begin, end)| end - begin);
        let first = self.reports.iter().map(|report| report.start_seconds).reduce(f64::min);
        let last = self.reports.iter().map(|report| report.end_seconds).reduce(f64::max);
        let of_tasks = first.zip(last).map(|(first, last)| last - first);
        // The tasks are within the job, and say more exactly how long it worked, unless a batch system counts more.
        let counts_all = self.end.as_ref().is_some_and(|end| !end.used.is_empty());
        let of_job = of_job.filter(|_| counts_all || of_tasks.is_none());
        let wall = match [of_tasks, of_job].into_iter().flatten().reduce(f64::max) {
            Some(wall) if is_amount(wall) => wall,
            _ => return Err(Verdict::unknown("the length of the job is not known")),
        };
        match wall >= MIN_WALL_SECONDS {
            true => Ok(wall),
            false => {
                Err(Verdict::unknown(format!("the job lasted less than {MIN_WALL_SECONDS} s")))
            }
        }
    }

    /// Returns the state of a job that has ended.
    pub(super) fn ended(&self) -> Result<JobState, Verdict> {
        let end = self.end.as_ref().ok_or_else(|| Verdict::unknown("the job has not ended"))?;
        Ok(end.state)
    }

    /// Returns the ranks of a parallel job: from the report of the job, or from those of its ranks.
    pub(super) fn ranks(&self) -> Vec<RankUse> {
        let joined = self.reports.iter().filter_map(|report| report.job.as_ref());
        if let Some(job) = joined.max_by_key(|job| job.ranks.len()) {
            return job.ranks.clone();
        }
        let mut ranks: BTreeMap<u32, RankUse> = BTreeMap::new();
        for report in &self.reports {
            let Some(rank) = &report.task.rank else { continue };
            let value = |name: &str| {
                let value = report.resources.get(name).and_then(|reading| reading.value);
                value.filter(|value| is_amount(*value))
            };
            let of_it = RankUse {
                rank: rank.rank,
                node: report.host.node.clone(),
                exit_type: report.ended.exit_type,
                status: report.ended.status,
                signal: report.ended.signal,
                start_seconds: report.start_seconds,
                wall_seconds: value("wall_seconds"),
                cpu_seconds: value("cpu_seconds"),
                resident_bytes_max: value("resident_bytes_max"),
                read_bytes: value("read_bytes"),
                written_bytes: value("written_bytes"),
            };
            // Steps of a job number their ranks alike. The longest step counts, not the last one.
            let is_longer = |known: &RankUse| of_it.wall_seconds > known.wall_seconds;
            if ranks.get(&rank.rank).is_none_or(is_longer) {
                ranks.insert(rank.rank, of_it);
            }
        }
        ranks.into_values().collect()
    }

    /// Returns the series whose metric ends with one of these names.
    pub(super) fn series_of<'v>(&'v self, names: &'v [&str]) -> impl Iterator<Item = &'v Series> {
        self.series.iter().filter(move |series| names.contains(&series.name()))
    }
}
