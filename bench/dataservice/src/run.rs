//! A raw run: the form of the files in `bench/runs`, from which the tables of pages are made.

use std::collections::BTreeMap;

use serde::Serialize;
use skopos_model::Timestamp;

/// A raw run, as `docs/json/bench.schema.json` describes it.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    bench: &'static str,
    date: String,
    quick: bool,
    rounds: u32,
    machine: Machine,
    notes: Vec<String>,
    /// The numbers.
    pub rows: Vec<Row>,
}

/// A number with others beside it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    case: String,
    metric: String,
    unit: &'static str,
    value: Figure,
    peers: BTreeMap<&'static str, Figure>,
    ratio: Option<f64>,
    goal: Option<&'static str>,
    met: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    rounds: BTreeMap<&'static str, Vec<f64>>,
}

/// A number, or a text that begins with `unknown: `.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Figure {
    Known(f64),
    Unknown(&'static str),
}

#[derive(Clone, Debug, Serialize)]
struct Machine {
    host: String,
    kernel: String,
    cpu: String,
    cores: usize,
    memory_bytes: u64,
    clock_source: String,
    load_1m: f64,
    versions: BTreeMap<&'static str, &'static str>,
}

impl Run {
    /// A run of this machine, which begins now.
    #[must_use]
    pub fn new(bench: &'static str, rounds: u32, notes: &[&str]) -> Self {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let nanos = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        Self {
            bench,
            date: Timestamp::from_nanos(nanos).to_string(),
            quick: false,
            rounds,
            machine: Machine::this(),
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
            rows: Vec::new(),
        }
    }
}

impl Row {
    /// A number.
    #[must_use]
    pub fn new(case: &str, metric: &str, unit: &'static str, value: f64) -> Self {
        Self {
            case: case.to_owned(),
            metric: metric.to_owned(),
            unit,
            value: figure(value),
            peers: BTreeMap::new(),
            ratio: None,
            goal: None,
            met: None,
            rounds: BTreeMap::new(),
        }
    }

    /// Adds a number beside it.
    #[must_use]
    pub fn beside(mut self, name: &'static str, value: f64) -> Self {
        self.peers.insert(name, figure(value));
        self
    }

    /// Adds a goal in words, and whether it is met; `None` if the measurement cannot tell.
    #[must_use]
    pub fn goal(mut self, goal: &'static str, is_met: Option<bool>) -> Self {
        (self.goal, self.met) = (Some(goal), is_met);
        self
    }

    /// Adds the number of each round; those that are not finite are left out.
    #[must_use]
    pub fn rounds(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().filter(|value| value.is_finite()).map(short);
        self.rounds.insert("skopos", values.collect());
        self
    }
}

fn figure(value: f64) -> Figure {
    if value.is_finite() {
        Figure::Known(short(value))
    } else {
        Figure::Unknown("unknown: not measured")
    }
}

/// Four significant digits: more than any measured number has. A count is exact.
fn short(value: f64) -> f64 {
    if value.fract() == 0.0 { value } else { format!("{value:.3e}").parse().unwrap_or(value) }
}

impl Machine {
    fn this() -> Self {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let kib = field("/proc/meminfo", "MemTotal");
        Self {
            host: text(uname.nodename()),
            kernel: format!("{} {}", text(uname.release()), text(uname.machine())),
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kib.and_then(|v| first(&v).parse::<u64>().ok()).unwrap_or(0) * 1024,
            clock_source: clock.trim().to_owned(),
            load_1m: first(&read("/proc/loadavg")).parse().unwrap_or_default(),
            versions: BTreeMap::from([("skopos", env!("CARGO_PKG_VERSION"))]),
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn first(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// The value of the first line `name : value`.
fn field(path: &str, name: &str) -> Option<String> {
    read(path).lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_exact_and_a_measured_number_has_four_digits() {
        assert_eq!([short(5_108_213.0), short(17.154_321)], [5_108_213.0, 17.15]);
    }
}
