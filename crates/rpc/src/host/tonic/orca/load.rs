//! The load of a server, from which reports are made.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;

use super::message::OrcaLoadReport;
use super::node::NodeFacts;

/// Most named values of a report. Each response carries them.
pub const MAX_NAMED: usize = 32;

/// Longest name of a value, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Time over which requests and errors are counted: as long as the default interval of gRPC's weighted round robin.
const WINDOW: Duration = Duration::from_secs(1);

/// The load of a server. Clones share it.
#[derive(Clone)]
pub struct Load(Arc<Shared>);

struct Shared {
    own: Mutex<Own>,
    rates: Mutex<Rates>,
    /// `None` if facts of the machine are not reported.
    node: Option<NodeFacts>,
}

/// Values that the application sets.
#[derive(Default)]
struct Own {
    application: f64,
    utilization: BTreeMap<String, f64>,
    named: BTreeMap<String, f64>,
}

/// Requests and errors of the window that runs, and the rates of the one before.
struct Rates {
    since: Instant,
    requests: u64,
    errors: u64,
    rates: [f64; 2],
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Load").field(&self.report()).finish()
    }
}

impl Load {
    /// Returns the load of a server on this machine, with the utilization of processors and memory that the agent of this
    /// machine measures. It searches for the agent, which reads files.
    pub fn of_node() -> Self {
        Self::with(Some(NodeFacts::of(None)))
    }

    /// Does the same with the agent in the runtime directory `dir`.
    pub fn of_node_in(dir: &Path) -> Self {
        Self::with(Some(NodeFacts::of(Some(dir.to_path_buf()))))
    }

    /// Returns the load of a server without facts of its machine.
    pub fn new() -> Self {
        Self::with(None)
    }

    fn with(node: Option<NodeFacts>) -> Self {
        let rates = Mutex::new(Rates::new(Instant::now()));
        Self(Arc::new(Shared { own: Mutex::default(), rates, node }))
    }

    /// Sets the utilization by the application's own measure, such as busy workers divided by all. 0 is not reported.
    pub fn set_application_utilization(&self, utilization: f64) {
        unpoisoned(self.0.own.lock()).application = utilization;
    }

    /// Sets the utilization of a further resource. Returns false if the name is too long, or there are [`MAX_NAMED`] others.
    pub fn set_utilization(&self, name: &str, utilization: f64) -> bool {
        set(&mut unpoisoned(self.0.own.lock()).utilization, name, utilization)
    }

    /// Sets a named value. Returns false if the name is too long, or there are [`MAX_NAMED`] others.
    pub fn set_named(&self, name: &str, value: f64) -> bool {
        set(&mut unpoisoned(self.0.own.lock()).named, name, value)
    }

    /// Counts a request that has ended.
    pub fn count(&self, is_error: bool) {
        unpoisoned(self.0.rates.lock()).count(Instant::now(), is_error);
    }

    /// Returns the present report.
    pub fn report(&self) -> OrcaLoadReport {
        let [rps, eps] = unpoisoned(self.0.rates.lock()).rates(Instant::now());
        let node = self.0.node.as_ref().map(NodeFacts::utilization);
        let [cpu, memory] = node.unwrap_or_default().map(Option::unwrap_or_default);
        let own = unpoisoned(self.0.own.lock());
        let sound = |values: &BTreeMap<String, f64>| {
            let sound = values.iter().filter(|(_, value)| is_sound(**value));
            sound.map(|(name, value)| (name.clone(), *value)).collect()
        };
        let or_zero = |value: f64| if is_sound(value) { value } else { 0.0 };
        OrcaLoadReport {
            cpu_utilization: or_zero(cpu),
            mem_utilization: or_zero(memory).min(1.0),
            utilization: sound(&own.utilization),
            rps_fractional: rps,
            eps,
            named_metrics: sound(&own.named),
            application_utilization: or_zero(own.application),
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self::new()
    }
}

fn set(values: &mut BTreeMap<String, f64>, name: &str, value: f64) -> bool {
    let has_room = values.len() < MAX_NAMED || values.contains_key(name);
    if !has_room || name.is_empty() || name.len() > MAX_NAME_BYTES {
        return false;
    }
    values.insert(name.to_owned(), value);
    true
}

fn is_sound(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

impl Rates {
    fn new(now: Instant) -> Self {
        Self { since: now, requests: 0, errors: 0, rates: [0.0; 2] }
    }

    /// Counts a request that has ended.
    fn count(&mut self, now: Instant, is_error: bool) {
        self.turn(now);
        self.requests += 1;
        self.errors += u64::from(is_error);
    }

    /// Returns the requests and the errors per second of the last whole window.
    fn rates(&mut self, now: Instant) -> [f64; 2] {
        self.turn(now);
        self.rates
    }

    /// Begins another window if this one is over.
    fn turn(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= WINDOW {
            let rate = |count: u64| count as f64 / elapsed.as_secs_f64();
            self.rates = [rate(self.requests), rate(self.errors)];
            (self.since, self.requests, self.errors) = (now, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_sound_and_names_that_are_too_many_are_left_out() {
        let load = Load::new();
        load.set_application_utilization(f64::NAN);
        assert!(load.set_named("negative", -1.0) && load.set_named("queue", 3.0));
        assert!(!load.set_named("", 1.0) && !load.set_named(&"n".repeat(65), 1.0));
        for n in 0..MAX_NAMED {
            load.set_utilization(&format!("resource-{n}"), 0.5);
        }
        assert!(!load.set_utilization("another", 0.5) && load.set_utilization("resource-0", 0.6));
        let report = load.report();
        assert_eq!(report.application_utilization, 0.0);
        assert_eq!(report.named_metrics.into_iter().collect::<Vec<_>>(), [("queue".into(), 3.0)]);
        assert_eq!((report.utilization.len(), report.utilization["resource-0"]), (MAX_NAMED, 0.6));
    }

    #[test]
    fn rates_are_those_of_the_last_whole_window() {
        let begun = Instant::now();
        let mut rates = Rates::new(begun);
        rates.count(begun, false);
        rates.count(begun + WINDOW / 2, true);
        let almost = begun + WINDOW - Duration::from_nanos(1);
        assert_eq!(rates.rates(almost), [0.0; 2], "the window is not over");
        assert_eq!(rates.rates(begun + 4 * WINDOW), [0.5, 0.25]);
        rates.count(begun + 5 * WINDOW, false);
        assert_eq!(rates.rates(begun + 5 * WINDOW), [0.0; 2], "no request in the window before");
        assert_eq!(rates.rates(begun + 7 * WINDOW), [0.5, 0.0]);
    }

    #[test]
    fn a_report_has_the_rates_of_requests_that_were_counted() {
        let load = Load::new();
        load.count(true);
        let back = Instant::now().checked_sub(2 * WINDOW).expect("two seconds after the boot");
        unpoisoned(load.0.rates.lock()).since = back;
        let report = load.report();
        assert!(report.rps_fractional > 0.0 && report.rps_fractional == report.eps, "{report:?}");
    }
}
