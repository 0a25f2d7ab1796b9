use skopos_model::{Kind, Timestamp, Topic};

use super::allowance::Allowance;
use super::rule::Judge;
use super::series::Series;
use super::{Detector, Event, Rule, RuleError, State};

/// The most memory that the detectors of one watch take together: a tenth of what an agent may be.
/// It holds some 500 windows of 100 samples, or 4000 thresholds.
pub const MAX_STATE_BYTES: usize = 1 << 20;

/// The most events of one watch in a minute. More is a storm, of which nobody reads the details.
pub const MAX_EVENTS_PER_MINUTE: u32 = 600;

/// Rules, and a detector of each for every vertex that it matches.
pub struct Watch {
    judges: Vec<Judge>,
    /// Vertices by the index of their handle; `None` where one has left.
    vertices: Vec<Place>,
    free: Vec<u32>,
    bytes: usize,
    allowance: Allowance,
    counts: Counts,
}

/// A vertex that some rule matches. Only the watch that gave it knows what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watched {
    index: u32,
    /// Which tenant of that place, so that an old handle does not feed a new vertex.
    tenant: u32,
}

/// What was held back or passed over, since the watch began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples that are no number, infinite, or larger than [`LARGEST`](super::LARGEST).
    pub not_finite: u64,
    /// Samples whose time is not after the one before.
    pub backwards: u64,
    /// Counters that stepped back.
    pub resets: u64,
    /// Detectors that were refused for lack of room ([`MAX_STATE_BYTES`]).
    pub refused: u64,
    /// Changes between unusual and usual. Those that are not among `events` were held back.
    pub changes: u64,
    /// Events that were told.
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
    /// What was told last.
    told: bool,
    /// Changes that were not told.
    untold: u64,
    allowance: Allowance,
    detector: Box<dyn Detector>,
}

impl Watch {
    /// A watch by these rules.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
    pub fn new(rules: &[Rule]) -> Result<Self, RuleError> {
        Self::of(rules, None)
    }

    /// A watch by these rules, whose topics may leave this node out: `app/v` is `node/app/v`, too.
    ///
    /// # Errors
    /// The first thing that is wrong with them.
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

    /// A vertex is there. `None` if no rule matches it, or none that there is room for.
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

    /// A value of it was checked, changed or not. Appends what became unusual or usual again to
    /// `events`, at most one of each rule. Without an event it allocates nothing.
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

    /// A vertex is gone, and what was known of it.
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

    /// What is unusual now, by the latest sample of each vertex; told by an event or still held
    /// back. `at` of each is its own `since`.
    pub fn raised(&self) -> impl Iterator<Item = Event> {
        self.vertices.iter().filter_map(|place| place.vertex.as_ref()).flat_map(|vertex| {
            vertex.states.iter().filter(|state| state.raised).map(|state| {
                let since = state.detector.finding().since;
                state.event(&vertex.topic, &self.judges[state.judge as usize], since)
            })
        })
    }

    /// The names of the rules that no vertex has matched so far.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        self.judges.iter().filter(|judge| !judge.has_matched).map(|judge| judge.name.as_str())
    }

    /// What was held back or passed over.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Memory that the detectors take now, as it is reckoned against [`MAX_STATE_BYTES`].
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

/// What a state takes besides what its detector keeps.
pub(super) const STATE_BYTES: usize = size_of::<StateOf>() + size_of::<Place>();
