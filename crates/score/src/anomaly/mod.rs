//! Streaming detectors of unusual values, one per file.
//!
//! A [`Watch`] holds the rules of a configuration. A vertex that joins gets a detector of its own
//! for each rule whose pattern matches. The watch takes each polled value, changed or not, and
//! emits an [`Event`] when a value becomes unusual or usual again.
//!
//! # Invariants
//! - A detector judges only finite numbers at increasing times. Other samples are counted
//!   ([`Counts`]) and change nothing.
//! - A counter is judged by its rate per second; a reset gives no rate and is counted.
//! - Memory is bounded ([`MAX_STATE_BYTES`]), and so are events ([`Rule`], `events_per_minute`, and
//!   [`MAX_EVENTS_PER_MINUTE`]). Events that a bound holds back are counted, and the next event
//!   carries their number; as soon as the bound allows, an event reports the current state.
//! - The same samples give the same events.
//!
//! ```
//! use skopos_model::{Kind, Timestamp, Topic};
//! use skopos_score::anomaly::{Rule, State, Watch};
//!
//! let rule = Rule {
//!     below: Some(1e9),
//!     clear: Some(2e9),
//!     ..Rule::new("memory-low", "*/mem/available_bytes", "threshold")
//! };
//! let mut watch = Watch::new(&[rule])?;
//! let vertex = watch.joined(&Topic::new("n01/mem/available_bytes")?, Kind::Gauge).expect("matches");
//! let mut events = Vec::new();
//! for (second, bytes) in [(1, 5e9), (2, 8e8)] {
//!     watch.observe(vertex, Timestamp::from_nanos(second * 1_000_000_000), bytes, &mut events);
//! }
//! assert_eq!((events[0].state, events[0].came, events[0].expected.low), (State::Raised, 8e8, 1e9));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod event;
mod rule;
mod watch;
mod counts;
mod series;
mod allowance;
mod spread;
pub mod threshold;
pub mod robust_z;
pub mod change_point;
pub mod extreme;
pub mod envelope;
mod judge;

use skopos_model::Timestamp;

pub use counts::Counts;
pub use event::{Event, Expected, Finding, State};
pub use judge::Judge;
pub use rule::{DETECTORS, MAX_EVENTS_PER_MINUTE_PER_VERTEX, MAX_RULES, Rule, RuleError};
pub use series::LARGEST_VALUE;
pub use watch::{MAX_EVENTS_PER_MINUTE, MAX_STATE_BYTES, Watch, Watched};

/// A detector judges one stream of finite numbers at increasing times.
pub trait Detector: Send {
    /// Takes one sample and returns true if the stream is unusual now. Allocates nothing.
    fn take(&mut self, at: Timestamp, value: f64) -> bool;

    /// Returns the basis of the judgement on the latest sample.
    fn finding(&self) -> Finding;
}
