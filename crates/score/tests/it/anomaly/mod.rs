//! Anomaly detectors: one conformance suite for all, how well each finds what was planted, and what
//! a configuration may say.

mod conformance;
mod detectors;
mod quality;
mod rules;

use skopos_model::{Kind, Timestamp, Topic};
use skopos_score::anomaly::{Event, Rule, Watch, Watched};

const SECOND: i64 = 1_000_000_000;

/// The rules of a piece of configuration.
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

    /// Hands over values a second apart.
    fn all(&mut self, values: impl IntoIterator<Item = f64>) {
        for (second, value) in (1..).zip(values) {
            self.at(second * SECOND, value);
        }
    }
}

/// Independent normal noise from a seed.
struct Noise(u64);

impl Noise {
    /// Above 0, up to 1 (SplitMix64).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((bits ^ (bits >> 31)) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Mean 0, standard deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
