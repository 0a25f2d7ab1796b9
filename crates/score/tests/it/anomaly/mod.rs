//! Anomaly detectors: a conformance suite for all, the quality of each on planted anomalies, and
//! the configuration.

mod conformance;
mod detectors;
mod quality;
mod rules;

use skopos_model::{Kind, SplitMix64, Timestamp, Topic};
use skopos_score::anomaly::{Event, Rule, Watch, Watched};

const SECOND: i64 = 1_000_000_000;

/// Parses the rules of a piece of configuration.
fn rules(toml: &str) -> Vec<Rule> {
    #[derive(serde::Deserialize)]
    struct File {
        anomaly: Vec<Rule>,
    }
    toml::from_str::<File>(toml).unwrap_or_else(|e| panic!("{toml}\n{e}")).anomaly
}

/// One rule of `detector` on one vertex.
struct Stream {
    watch: Watch,
    vertex: Watched,
    events: Vec<Event>,
}

impl Stream {
    fn new(parameters: &str, kind: Kind) -> Self {
        let toml = format!("[[anomaly]]\nname = \"r\"\ntopic = \"n/**\"\n{parameters}");
        let mut watch = Watch::new(&rules(&toml)).unwrap_or_else(|e| panic!("{toml}\n{e}"));
        let vertex = watch.joined(&Topic::new("n/a").expect("a topic"), kind).expect("matches");
        Self { watch, vertex, events: Vec::new() }
    }

    fn at(&mut self, nanos: i64, value: f64) {
        self.watch.observe(self.vertex, Timestamp::from_nanos(nanos), value, &mut self.events);
    }

    /// Observes values a second apart.
    fn all(&mut self, values: impl IntoIterator<Item = f64>) {
        for (second, value) in (1..).zip(values) {
            self.at(second * SECOND, value);
        }
    }
}

/// Independent normal noise from a seed.
struct Noise(SplitMix64);

impl Noise {
    fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number above 0, up to 1.
    fn uniform(&mut self) -> f64 {
        self.0.unit() + f64::EPSILON / 2.0
    }

    /// A normal number with mean 0 and standard deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
