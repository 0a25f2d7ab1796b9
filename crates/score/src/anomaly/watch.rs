use skopos_model::{Kind, Timestamp, Topic};

use super::allowance::Allowance;
use super::counts::Counts;
use super::rule::CheckedRule;
use super::series::Series;
use super::{Detector, Event, Rule, RuleError, State};

/// The most memory that all detectors of one watch take: a tenth of an agent's memory. It holds
/// about 500 windows of 100 samples, or 4000 thresholds.
pub const MAX_STATE_BYTES: usize = 1 << 20;

/// The most events of one watch per minute. In a larger storm, nobody reads the details.
pub const MAX_EVENTS_PER_MINUTE: u32 = 600;

/// Rules, and for each a detector per matching vertex.
pub struct Watch {
    rules: Vec<CheckedRule>,
    /// Vertices by the index of their handle; the vertex of an index is `None` once it has left.
    vertices: Vec<Slot>,
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
    generation: u32,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    vertex: Option<Vertex>,
}

struct Vertex {
    topic: Topic,
    series: Series,
    states: Vec<DetectorState>,
}

/// One detector of one vertex.
struct DetectorState {
    rule: u32,
    raised: bool,
    /// The state that the last event reported.
    reported: bool,
    /// The number of changes since the last event.
    unreported: u64,
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
            rules: CheckedRule::all(rules, node)?,
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
        for (at, rule) in self.rules.iter_mut().enumerate() {
            if !rule.patterns.iter().any(|pattern| pattern.matches(topic)) {
                continue;
            }
            rule.has_matched = true;
            let bytes = state_bytes(rule);
            if self.bytes + bytes > MAX_STATE_BYTES {
                self.counts.refused += 1;
                continue;
            }
            self.bytes += bytes;
            states.push(DetectorState {
                rule: at as u32,
                raised: false,
                reported: false,
                unreported: 0,
                allowance: Allowance::new(rule.events_per_minute),
                detector: rule.detector(),
            });
        }
        if states.is_empty() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.vertices.push(Slot::default());
            self.vertices.len() as u32 - 1
        });
        let place = &mut self.vertices[index as usize];
        place.vertex = Some(Vertex { topic: topic.clone(), series: Series::new(kind), states });
        Some(Watched { index, generation: place.generation })
    }

    /// Takes a polled value, changed or not. Appends an event for each rule under which the value
    /// became unusual or usual again to `events`. Without an event it allocates nothing.
    pub fn observe(&mut self, of: Watched, at: Timestamp, value: f64, events: &mut Vec<Event>) {
        let Self { rules, vertices, allowance, counts, .. } = self;
        let place = vertices.get_mut(of.index as usize).filter(|p| p.generation == of.generation);
        let Some(vertex) = place.and_then(|place| place.vertex.as_mut()) else { return };
        let Some(value) = vertex.series.take(at, value, counts) else { return };
        for state in &mut vertex.states {
            let raised = state.detector.take(at, value);
            if raised != state.raised {
                state.raised = raised;
                state.unreported += 1;
                counts.changes += 1;
            }
            if raised != state.reported && state.allowance.has(at) && allowance.has(at) {
                state.allowance.spend();
                allowance.spend();
                counts.events += 1;
                let mut event = state.event(&vertex.topic, &rules[state.rule as usize], at);
                event.suppressed = state.unreported - 1;
                (state.reported, state.unreported) = (raised, 0);
                events.push(event);
            }
        }
    }

    /// Removes a vertex and its detectors.
    pub fn left(&mut self, of: Watched) {
        let place =
            self.vertices.get_mut(of.index as usize).filter(|p| p.generation == of.generation);
        let Some(place) = place else { return };
        let Some(vertex) = place.vertex.take() else { return };
        for state in &vertex.states {
            self.bytes -= state_bytes(&self.rules[state.rule as usize]);
        }
        place.generation = place.generation.wrapping_add(1);
        self.free.push(of.index);
    }

    /// Returns an event for each value that is unusual by its latest sample, whether an event was
    /// emitted or held back. Its `at` equals its `since`.
    pub fn raised(&self) -> impl Iterator<Item = Event> {
        self.vertices.iter().filter_map(|place| place.vertex.as_ref()).flat_map(|vertex| {
            vertex.states.iter().filter(|state| state.raised).map(|state| {
                let since = state.detector.finding().since;
                state.event(&vertex.topic, &self.rules[state.rule as usize], since)
            })
        })
    }

    /// Returns the names of the rules that no vertex has matched so far.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter(|rule| !rule.has_matched).map(|rule| rule.name.as_str())
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

impl DetectorState {
    fn event(&self, topic: &Topic, rule: &CheckedRule, at: Timestamp) -> Event {
        let finding = self.detector.finding();
        Event {
            topic: topic.clone(),
            rule: rule.name.clone(),
            detector: rule.settings.name(),
            at,
            since: finding.since.min(at),
            came: finding.came,
            expected: finding.expected,
            score: finding.score,
            state: if self.raised { State::Raised } else { State::Cleared },
            suppressed: self.unreported,
        }
    }
}

/// Returns the memory of one detector and its state, all of which is allocated at the start.
fn state_bytes(rule: &CheckedRule) -> usize {
    rule.detector_bytes() + size_of::<DetectorState>() + size_of::<Slot>()
}
