//! The family `rank`: the rank of each candidate.

use skopos_model::Scalar;
use skopos_model::schema::{self, Metric};
use skopos_sense::{FactId, Sink as _};
use skopos_steer::rank::{Ranked, State};

use crate::sink::SegmentSink;

static METRICS: [&Metric; 7] = [
    &schema::rank::WEIGHT,
    &schema::rank::SCORE,
    &schema::rank::PLACE,
    &schema::rank::TRUST,
    &schema::rank::SAMPLES,
    &schema::rank::AGE_SECONDS,
    &schema::rank::STATE,
];

/// The facts of a candidate.
#[derive(Clone, Copy)]
pub(super) struct RankFacts([FactId; METRICS.len()]);

impl RankFacts {
    /// Registers the facts of the candidate `candidate` of `profile`.
    pub(super) fn register(sink: &mut SegmentSink<'_>, profile: &str, candidate: &str) -> Self {
        let instance = format!("{profile}@{candidate}");
        Self(METRICS.map(|metric| sink.register(metric, &instance)))
    }

    /// Publishes the rank at `place`, from 1.
    pub(super) fn publish(&self, sink: &mut SegmentSink<'_>, place: usize, ranked: &Ranked) {
        let confidence = ranked.confidence;
        let is_known = confidence.trust > 0.0;
        let values = [
            Some(Scalar::F64(ranked.weight)),
            Some(Scalar::F64(ranked.score)),
            Some(Scalar::U64(place as u64)),
            Some(Scalar::F64(confidence.trust)),
            Some(Scalar::U64(confidence.samples.into())),
            is_known.then_some(Scalar::F64(confidence.age.as_secs_f64())),
            Some(Scalar::U64(code(ranked.state))),
        ];
        for (id, value) in self.0.into_iter().zip(values) {
            if let Some(value) = value {
                sink.set(id, value);
            }
        }
    }
}

/// Returns the value of the fact `state`.
fn code(state: State) -> u64 {
    match state {
        State::Known => 0,
        State::Flapping => 1,
        State::Contradicted => 2,
        State::Unknown => 3,
        State::Excluded => 4,
    }
}
