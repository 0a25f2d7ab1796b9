//! The series of a job: a metric on a node over time.

use super::numbers::{is_amount, median};

/// The values of a metric on a node, in the order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The node; empty for the whole job.
    pub node: String,
    /// The name of the metric, such as `cpu/total/busy_ratio`.
    pub metric: String,
    /// Times in seconds, and values. Times ascend, and all are finite.
    points: Vec<(f64, f64)>,
}

impl Series {
    /// Returns the series of these points. Points whose value cannot be an amount are left out, and the others are sorted
    /// by time.
    pub fn new(
        node: impl Into<String>,
        metric: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let is_point = |(at, value): &(f64, f64)| is_amount(at.abs()) && is_amount(*value);
        let mut points: Vec<(f64, f64)> = points.into_iter().filter(is_point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { node: node.into(), metric: metric.into(), points }
    }

    /// Returns the points.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Returns the last segment of the metric's name.
    pub(super) fn name(&self) -> &str {
        self.metric.rsplit('/').next().unwrap_or(&self.metric)
    }

    /// Returns the time from the first point to the last one, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        match (self.points.first(), self.points.last()) {
            (Some(first), Some(last)) => last.0 - first.0,
            _ => 0.0,
        }
    }

    /// Returns the growth of a counter; a reset counts from zero.
    pub(super) fn growth(&self) -> f64 {
        let steps = self.points.windows(2).map(|pair| match pair[1].1 - pair[0].1 {
            step if step >= 0.0 => step,
            _ => pair[1].1.max(0.0),
        });
        steps.sum()
    }

    /// Returns the mean over time: each value holds until the next one.
    pub(super) fn mean(&self) -> Option<f64> {
        let seconds = self.seconds();
        let parts =
            self.points.windows(2).map(|pair| pair[0].1 * ((pair[1].0 - pair[0].0) / seconds));
        (seconds > 0.0).then(|| parts.sum())
    }

    /// Returns the median of each of `count` equal stretches of time after `from`, a share of the whole, with the middle
    /// of the stretch. A stretch without a point is left out.
    pub(super) fn medians(&self, from: f64, count: usize) -> Vec<(f64, f64)> {
        let Some((first, _)) = self.points.first() else { return Vec::new() };
        let begin = first + from * self.seconds();
        let width = (1.0 - from) * self.seconds() / count as f64;
        let stretch = |at: usize| {
            let (low, high) = (begin + width * at as f64, begin + width * (at + 1) as f64);
            let inside = self.points.iter().filter(|(time, _)| (low..high).contains(time));
            Some((low / 2.0 + high / 2.0, median(inside.map(|(_, value)| *value))?))
        };
        (0..count).filter_map(stretch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_finite_and_in_order() {
        let points = [(2.0, 20.0), (f64::NAN, 1.0), (0.0, 10.0), (1.0, f64::INFINITY), (3.0, 5.0)];
        let series = Series::new("n01", "cgroup/a/memory_bytes", points);
        assert_eq!(series.points(), [(0.0, 10.0), (2.0, 20.0), (3.0, 5.0)]);
        assert_eq!((series.name(), series.seconds(), series.growth()), ("memory_bytes", 3.0, 15.0));
        assert!(series.mean().is_some_and(|mean| (mean - 40.0 / 3.0).abs() < 1e-9));
        assert_eq!(series.medians(0.0, 3), [(0.5, 10.0), (2.5, 20.0)]);
        assert_eq!(Series::default().mean(), None);
    }
}
