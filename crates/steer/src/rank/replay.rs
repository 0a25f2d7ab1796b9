//! Counterfactual replay: what another profile would have chosen on recorded requests, and what that would have cost.
//!
//! A [`Record`] has the candidates of a request, their values, the probability with which the recorded policy drew the
//! candidate that served it, and the cost. The cost of another profile is estimated by inverse propensity weighting
//! (Horvitz and Thompson, 1952), normalised by the sum of the weights (Hájek, 1971): a request counts in proportion to
//! the new weight of the recorded choice, divided by its recorded probability. Large ratios are cut and counted.
//!
//! A recording is JSON lines: [`Header`], then one [`Record`] a line. A file that ends inside of a line is read up to
//! there.

use serde::{Deserialize, Serialize};
use skopos_model::Timestamp;

use crate::error::Error;
use crate::rank::inputs::{Inputs, Reading};
pub use crate::rank::limits::VERSION;
use crate::rank::limits::{MAX_CANDIDATES, MAX_METRICS};
use crate::rank::profile::Profile;
use crate::rank::ranker::Ranker;
use crate::rank::ranking::State;

/// Longest line: a thousand candidates with ten metrics, at fifty bytes a value, twice.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Most records of a replay: a day of ten sampled requests a second.
pub const MAX_RECORDS: usize = 1_000_000;
/// Largest ratio of the new weight and the recorded probability. A few requests must not decide the estimate.
pub const MAX_RATIO: f64 = 100.0;
/// Standard deviations on each side of an interval of 95 %.
const Z: f64 = 1.96;

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format, [`VERSION`].
    pub version: u32,
    /// Names of the metrics: the columns of the values.
    pub metrics: Vec<String>,
}

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Time of the choice, in nanoseconds since the UNIX epoch.
    pub at: i64,
    /// Names of the candidates.
    pub candidates: Vec<String>,
    /// Values of each candidate in the order of the metrics; `null` for a missing one. They were fresh at the choice.
    pub values: Vec<Vec<Option<f64>>>,
    /// Index of the chosen candidate.
    pub chosen: usize,
    /// Probability with which it was chosen, above 0 and at most 1.
    pub probability: f64,
    /// Cost of the request in seconds.
    pub cost: f64,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// Requests that were replayed.
    pub requests: usize,
    /// Mean recorded cost in seconds.
    pub recorded_cost: f64,
    /// Estimated mean cost in seconds under the new profile; `None` if it would never have chosen a recorded choice.
    pub estimated_cost: Option<f64>,
    /// The interval of 95 % around `estimated_cost`.
    pub interval: Option<(f64, f64)>,
    /// Requests of which the new profile ranks another candidate first.
    pub chosen_otherwise: usize,
    /// Effective number of requests behind the estimate (Kish): the interval means little below about thirty.
    pub effective: f64,
    /// Requests whose ratio was cut at [`MAX_RATIO`].
    pub cut: usize,
    /// Whether the recording ended inside of a line.
    pub torn: bool,
}

/// Replays a recording under `profile`.
///
/// # Errors
/// The profile is not valid, the recording has another version, or a whole line is not a valid record.
pub fn replay(recording: &str, profile: Profile, seed: u64) -> Result<Replayed, Error> {
    let mut ranker = Ranker::new(profile, seed)?;
    let torn = !recording.is_empty() && !recording.ends_with('\n');
    let whole = recording.rfind('\n').map_or("", |end| &recording[..=end]);
    let mut lines = whole.lines().enumerate();
    let Some((_, first)) = lines.next() else {
        return Err(fault(1, "there is no whole header"));
    };
    let header: Header = parse(1, first)?;
    if header.version != VERSION {
        return Err(Error::RecordingVersion(header.version, VERSION));
    }
    if header.metrics.len() > MAX_METRICS {
        return Err(fault(1, "there are too many metrics"));
    }
    let columns = columns(&header, ranker.profile())?;
    let mut sums = Sums::default();
    for (at, line) in lines {
        if at > MAX_RECORDS {
            return Err(fault(at + 1, "the recording has too many records"));
        }
        let record: Record = parse(at + 1, line)?;
        check(at + 1, &record, header.metrics.len())?;
        one(&mut ranker, &record, &columns, &mut sums)?;
    }
    Ok(sums.result(torn))
}

fn fault(line: usize, fault: &str) -> Error {
    Error::Recording { line, fault: fault.to_owned() }
}

fn parse<'a, T: Deserialize<'a>>(at: usize, line: &'a str) -> Result<T, Error> {
    if line.len() > MAX_LINE_BYTES {
        return Err(fault(at, "the line is too long"));
    }
    serde_json::from_str(line).map_err(|e| fault(at, &e.to_string()))
}

/// Finds the column of each metric of the profile.
fn columns(header: &Header, profile: &Profile) -> Result<Vec<usize>, Error> {
    let column = |name: &str| header.metrics.iter().position(|m| m == name);
    let missing = |name: &str| {
        fault(1, &format!("the metric `{name}` is not recorded, but {:?}", header.metrics))
    };
    profile.metrics.iter().map(|m| column(&m.name).ok_or_else(|| missing(&m.name))).collect()
}

fn check(line: usize, record: &Record, metrics: usize) -> Result<(), Error> {
    let candidates = record.candidates.len();
    if candidates > MAX_CANDIDATES || record.values.len() != candidates {
        return Err(fault(line, "candidates and rows of values differ in number"));
    }
    if record.values.iter().any(|row| row.len() != metrics) {
        return Err(fault(line, "a row has another number of values than the header has metrics"));
    }
    if record.chosen >= candidates {
        return Err(fault(line, "the chosen candidate does not exist"));
    }
    if !(record.probability > 0.0 && record.probability <= 1.0) {
        return Err(fault(line, "the probability is not above 0 and at most 1"));
    }
    if !record.cost.is_finite() || record.cost < 0.0 {
        return Err(fault(line, "the cost is not a number of seconds"));
    }
    Ok(())
}

fn one(
    ranker: &mut Ranker,
    record: &Record,
    columns: &[usize],
    sums: &mut Sums,
) -> Result<(), Error> {
    let at = Timestamp::from_nanos(record.at);
    let mut inputs = Inputs::new(record.candidates.len(), columns.len());
    for (candidate, row) in record.values.iter().enumerate() {
        for (metric, column) in columns.iter().enumerate() {
            if let Some(value) = row[*column] {
                inputs.set(candidate, metric, Reading { value, at, samples: 1 });
            }
        }
    }
    let names: Vec<&str> = record.candidates.iter().map(String::as_str).collect();
    let ranking = ranker.rank(at, &names, &inputs)?;
    let entries = ranking.entries();
    let chosen = entries.iter().find(|e| e.candidate == record.chosen);
    let weight = chosen.filter(|e| e.state != State::Excluded).map_or(0.0, |e| e.weight);
    let ratio = weight / record.probability;
    sums.cut += usize::from(ratio > MAX_RATIO);
    sums.otherwise += usize::from(entries.first().is_some_and(|e| e.candidate != record.chosen));
    sums.terms.push((ratio.min(MAX_RATIO), record.cost));
    Ok(())
}

#[derive(Default)]
struct Sums {
    /// Ratio and cost of each request.
    terms: Vec<(f64, f64)>,
    otherwise: usize,
    cut: usize,
}

impl Sums {
    fn result(self, torn: bool) -> Replayed {
        let requests = self.terms.len();
        let recorded = self.terms.iter().map(|(_, c)| c).sum::<f64>() / requests.max(1) as f64;
        let ratios: f64 = self.terms.iter().map(|(r, _)| r).sum();
        let squares: f64 = self.terms.iter().map(|(r, _)| r * r).sum();
        let estimated =
            (ratios > 0.0).then(|| self.terms.iter().map(|(r, c)| r * c).sum::<f64>() / ratios);
        // The variance of a ratio of two sums, by linearisation.
        let interval = estimated.map(|mean| {
            let residuals = self.terms.iter().map(|(r, c)| (r * (c - mean)).powi(2));
            let error = residuals.sum::<f64>().sqrt() / ratios;
            (mean - Z * error, mean + Z * error)
        });
        Replayed {
            requests,
            recorded_cost: recorded,
            estimated_cost: estimated,
            interval,
            chosen_otherwise: self.otherwise,
            effective: if squares > 0.0 { ratios * ratios / squares } else { 0.0 },
            cut: self.cut,
            torn,
        }
    }
}
