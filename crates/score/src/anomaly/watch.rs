use skopos_model::{Kind, Timestamp, Topic};

use super::allowance::Allowance;
use super::rule::Judge;
use super::series::Series;
use super::{Detector, Event, Rule, RuleError, State};

/// The most memory that all detectors of one watch take: a tenth of an agent's memory. It holds
/// about 500 windows of 100 samples, or 4000 thresholds.
pub const MAX_STATE_BYTES: usize = 1 << 20;

/// The most events of one watch per minute. In a larger storm, nobody reads the details.
pub const MAX_EVENTS_PER_MINUTE: u32 = 600;

/// Rules, and for each a detector per matching vertex.
pub struct Watch {
    judges: Vec<Judge>,
    /// Vertices by the index of their handle; the vertex of an index is `None` once it has left.
    vertices: Vec<Place>,
    free: Vec<u32>,
    bytes: usize,
    allowance: Allowance,
    counts: Counts,
}

/// A handle to a vertex that some rule matches. It is valid only in the watch that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watched {
    index: u32,
    /// The generation of the index, so that an old handle does not feed a new vertex.
    tenant: u32,
}

/// The number of samples, detectors and events that were ignored or held back since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples that are NaN, infinite, or larger than [`LARGEST`](super::LARGEST).
    pub not_finite: u64,
    /// Samples whose time is not after the time of the one before.
    pub backwards: u64,
    /// Counters that fell.
    pub resets: u64,
    /// Detectors that were refused because their memory was full ([`MAX_STATE_BYTES`]).
    pub refused: u64,
    /// Changes between unusual and usual. The difference to `events` was held back.
    pub changes: u64,
    /// Emitted events.
    pub events: u64,
}

#[derive(Default)]
struct Place {
    tenant: u32,
    vertex: Option<Vertex>,
}

struct Vertex {
    topic: Topic,
    series: Series,
    states: Vec<StateOf>,
}

/// One detector of one vertex.
struct StateOf {
    judge: u32,
    raised: bool,
    /// The state that the last event reported.
    told: bool,
    /// The number of changes since the last event.
    untold: u64,
    allowance: Allowance,
    detector: Box<dyn Detector>,
}

impl Watch {
    /// Creates a watch with these rules.
    ///
    /// # Errors
    /// Returns the first error in the rules.
    pub fn new(rules: &[Rule]) -> Result<Self, RuleError> {
        Self::of(rules, None)
    }

    /// Creates a watch with these rules, whose topics may leave out this node: `app/v` also matches
    /// `node/app/v`.
    ///
    /// # Errors
    /// Returns the first error in the rules.
    pub fn of_node(rules: &[Rule], node: &str) -> Result<Self, RuleError> {
        Self::of(rules, Some(node))
    }

    fn of(rules: &[Rule], node: Option<&str>) -> Result<Self, RuleError> {
        Ok(Self {
            judges: Judge::all(rules, node)?,
            vertices: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            allowance: Allowance::new(MAX_EVENTS_PER_MINUTE),
            counts: Counts::default(),
        })
    }

    /// Adds a vertex. `None` if no rule matches it, or if there is no room for a detector.
    pub fn joined(&mut self, topic: &Topic, kind: Kind) -> Option<Watched> {
        let mut states = Vec::new();
        for (at, judge) in self.judges.iter_mut().enumerate() {
            if !judge.patterns.iter().any(|pattern| pattern.matches(topic)) {
                continue;
            }
            judge.has_matched = true;
            let bytes = judge.bytes();
            if self.bytes + bytes > MAX_STATE_BYTES {
                self.counts.refused += 1;
                continue;
            }
            self.bytes += bytes;
            states.push(StateOf {
                judge: at as u32,
                raised: false,
                told: false,
                untold: 0,
                allowance: Allowance::new(judge.events_per_minute),
                detector: judge.detector(),
            });
        }
        if states.is_empty() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.vertices.push(Place::default());
            self.vertices.len() as u32 - 1
        });
        let place = &mut self.vertices[index as usize];
        place.vertex = Some(Vertex { topic: topic.clone(), series: Series::new(kind), states });
        Some(Watched { index, tenant: place.tenant })
    }

    /// Takes a polled value, changed or not. Appends an event for each rule under which the value
    /// became unusual or usual again to `events`. Without an event it allocates nothing.
    pub fn observe(&mut self, of: Watched, at: Timestamp, value: f64, events: &mut Vec<Event>) {
        let Self { judges, vertices, allowance, counts, .. } = self;
        let place = vertices.get_mut(of.index as usize).filter(|p| p.tenant == of.tenant);
        let Some(vertex) = place.and_then(|place| place.vertex.as_mut()) else { return };
        let Some(value) = vertex.series.take(at, value, counts) else { return };
        for state in &mut vertex.states {
            let raised = state.detector.take(at, value);
            if raised != state.raised {
                state.raised = raised;
                state.untold += 1;
                counts.changes += 1;
            }
            if raised != state.told && state.allowance.has(at) && allowance.has(at) {
                state.allowance.spend();
                allowance.spend();
                counts.events += 1;
                let mut event = state.event(&vertex.topic, &judges[state.judge as usize], at);
                event.suppressed = state.untold - 1;
                (state.told, state.untold) = (raised, 0);
                events.push(event);
            }
        }
    }

    /// Removes a vertex and its detectors.
    pub fn left(&mut self, of: Watched) {
        let place = self.vertices.get_mut(of.index as usize).filter(|p| p.tenant == of.tenant);
        let Some(place) = place else { return };
        let Some(vertex) = place.vertex.take() else { return };
        for state in &vertex.states {
            self.bytes -= self.judges[state.judge as usize].bytes();
        }
        place.tenant = place.tenant.wrapping_add(1);
        self.free.push(of.index);
    }

    /// Returns an event for each value that is unusual by its latest sample, whether an event was
    /// emitted or held back. Its `at` equals its `since`.
    pub fn raised(&self) -> impl Iterator<Item = Event> {
        self.vertices.iter().filter_map(|place| place.vertex.as_ref()).flat_map(|vertex| {
            vertex.states.iter().filter(|state| state.raised).map(|state| {
                let since = state.detector.finding().since;
                state.event(&vertex.topic, &self.judges[state.judge as usize], since)
            })
        })
    }

    /// Returns the names of the rules that no vertex has matched so far.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        self.judges.iter().filter(|judge| !judge.has_matched).map(|judge| judge.name.as_str())
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the memory of the detectors, as counted against [`MAX_STATE_BYTES`].
    pub fn state_bytes(&self) -> usize {
        self.bytes
    }
}

impl StateOf {
    fn event(&self, topic: &Topic, judge: &Judge, at: Timestamp) -> Event {
        let finding = self.detector.finding();
        Event {
            topic: topic.clone(),
            rule: judge.name.clone(),
            detector: judge.settings.name(),
            at,
            since: finding.since.min(at),
            came: finding.came,
            expected: finding.expected,
            score: finding.score,
            state: if self.raised { State::Raised } else { State::Cleared },
            suppressed: self.untold,
        }
    }
}

/// The memory of a detector's state apart from the detector itself.
pub(super) const STATE_BYTES: usize = size_of::<StateOf>() + size_of::<Place>();
