//! The processes over time: processor, memory, depths of pools, and every other variable.

use std::collections::BTreeMap;

use serde::Serialize;

use super::histogram::{Histogram, Summary};
use super::stream::{ProcessSample, Reader, Side, Visit};
use super::trace::Trace;
use crate::error::Error;
use crate::pvar::PvarClass;

/// The number of points of a series unless it is said: as many as a terminal has columns.
pub const DEFAULT_POINTS: usize = 60;

/// The most points of a series: a pixel each on a wide screen.
pub const MAX_POINTS: usize = 4096;

/// The most series: a thousand processes with 64 variables each.
const MAX_SERIES: usize = 1 << 16;

/// The processes of a trace over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct System {
    /// The first moment in ns since 1970.
    pub start_ns: i64,
    /// The distance of two points in ns.
    pub step_ns: u64,
    /// The processes.
    pub processes: Vec<ProcessSeries>,
    /// Values of series beyond the bound.
    pub values_left_out: u64,
}

/// One process over time.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessSeries {
    /// The process: `kv@n01 (4711)`.
    pub process: String,
    /// Its configuration.
    pub config: BTreeMap<String, String>,
    /// Its variables, by name.
    pub series: Vec<VariableSeries>,
}

/// One variable of a process over time.
#[derive(Clone, Debug, Serialize)]
pub struct VariableSeries {
    /// The name, such as `pool_depth`.
    pub name: String,
    /// The unit; of a counter that of its rate, `ns/s`.
    pub unit: String,
    /// The class, such as `LEVEL`.
    pub class: &'static str,
    /// True if the values come from records of calls, not from samples of the process.
    pub is_of_calls: bool,
    /// All values, as they were sampled.
    pub values: Summary,
    /// The mean of each step; of a counter its rate a second. `None` where nothing was sampled.
    pub means: Vec<Option<f64>>,
    /// The greatest value of each step; of a counter its rate.
    pub maxima: Vec<Option<f64>>,
}

#[derive(Clone, Copy, Default)]
struct Point {
    count: u64,
    sum: f64,
    max: u64,
    first: Option<(i64, u64)>,
    last: Option<(i64, u64)>,
}

#[derive(Default)]
struct Series {
    values: Histogram,
    points: BTreeMap<usize, Point>,
}

struct Collect<'t> {
    trace: &'t Trace<'t>,
    step_ns: u64,
    points: usize,
    /// By process, number of the variable, and whether it comes from calls.
    series: BTreeMap<(u32, u32, bool), Series>,
    left_out: u64,
}

impl Collect<'_> {
    fn add(&mut self, key: (u32, u32, bool), time: i64, value: u64) {
        if self.series.len() >= MAX_SERIES && !self.series.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let time = self.trace.clocks.correct(key.0, time);
        let since = time.saturating_sub(self.trace.first).max(0).unsigned_abs();
        let at = ((since / self.step_ns) as usize).min(self.points - 1);
        let series = self.series.entry(key).or_default();
        series.values.add(value);
        let point = series.points.entry(at).or_default();
        point.count += 1;
        point.sum += value as f64;
        point.max = point.max.max(value);
        if point.first.is_none_or(|(first, _)| time < first) {
            point.first = Some((time, value));
        }
        if point.last.is_none_or(|(last, _)| time >= last) {
            point.last = Some((time, value));
        }
    }
}

impl Visit for Collect<'_> {
    fn side(&mut self, side: &Side, reader: &Reader) {
        for (pvar, value) in side.values() {
            // The time of a call at which its variables are sampled is its end.
            let is_known = reader.pvars.get(*pvar as usize).is_some();
            if is_known {
                self.add((side.process, *pvar, true), side.end(), *value);
            }
        }
    }

    fn sample(&mut self, sample: &ProcessSample, _: &Reader) {
        for (pvar, value) in &sample.values {
            self.add((sample.process, *pvar, false), sample.time, *value);
        }
    }
}

/// Returns the variables of all processes in `points` steps; 0 is [`DEFAULT_POINTS`].
///
/// # Errors
/// A file cannot be read any more.
pub fn system(trace: &Trace<'_>, points: usize) -> Result<System, Error> {
    let points = if points == 0 { DEFAULT_POINTS } else { points.min(MAX_POINTS) };
    let step_ns = (trace.length_ns() / points as u64 + 1).max(1);
    let mut collect = Collect { trace, step_ns, points, series: BTreeMap::new(), left_out: 0 };
    trace.stream(&mut collect)?;
    let mut processes: Vec<ProcessSeries> = trace
        .reader
        .processes
        .iter()
        .map(|process| ProcessSeries {
            process: super::process::label(process),
            config: process.config.clone(),
            series: Vec::new(),
        })
        .collect();
    for ((process, pvar, is_of_calls), series) in &collect.series {
        let Some(info) = trace.reader.pvars.get(*pvar as usize) else { continue };
        let Some(process) = processes.get_mut(*process as usize) else { continue };
        let is_rate = info.class == PvarClass::Counter && !is_of_calls;
        let (means, maxima) = if is_rate { rates(series, points) } else { levels(series, points) };
        process.series.push(VariableSeries {
            name: info.name.clone(),
            unit: if is_rate { format!("{}/s", info.unit) } else { info.unit.clone() },
            class: info.class.name(),
            is_of_calls: *is_of_calls,
            values: series.values.summary(),
            means,
            maxima,
        });
    }
    let by_name = |a: &VariableSeries, b: &VariableSeries| {
        (a.is_of_calls, &a.name).cmp(&(b.is_of_calls, &b.name))
    };
    processes.iter_mut().for_each(|process| process.series.sort_by(by_name));
    Ok(System { start_ns: trace.first, step_ns, processes, values_left_out: collect.left_out })
}

type Steps = (Vec<Option<f64>>, Vec<Option<f64>>);

fn levels(series: &Series, points: usize) -> Steps {
    let at = |at: usize| series.points.get(&at);
    let means = (0..points).map(|step| at(step).map(|p| p.sum / p.count as f64));
    let maxima = (0..points).map(|step| at(step).map(|p| p.max as f64));
    (means.collect(), maxima.collect())
}

/// The growth a second from the last value before a step to the last value in it.
fn rates(series: &Series, points: usize) -> Steps {
    let mut rates = vec![None; points];
    let mut before: Option<(i64, u64)> = None;
    for (at, point) in &series.points {
        let from = before.or(point.first);
        if let (Some((t0, v0)), Some((t1, v1))) = (from, point.last)
            && t1 > t0
        {
            let seconds = t1.abs_diff(t0) as f64 / 1e9;
            rates[*at] = Some(v1.saturating_sub(v0) as f64 / seconds);
        }
        before = point.last;
    }
    (rates.clone(), rates)
}
