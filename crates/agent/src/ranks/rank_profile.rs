//! The family `rank_profile`: the facts of a profile, with the reasons of its ranks.

use skopos_model::schema::{self, Metric};
use skopos_model::{MAX_STRUCTURED_BYTES, Scalar, Structured};
use skopos_sense::{FactId, Sink as _};
use skopos_steer::rank::{Contribution, Ranking};

use super::counts::ProfileCounts;
use crate::sink::SegmentSink;

static METRICS: [&Metric; 11] = [
    &schema::rank_profile::CANDIDATES,
    &schema::rank_profile::NATIVE,
    &schema::rank_profile::VALID_SECONDS,
    &schema::rank_profile::RANK_SECONDS,
    &schema::rank_profile::RELAXED_METRICS,
    &schema::rank_profile::VALUES_REFUSED_TOTAL,
    &schema::rank_profile::OUTCOMES_TOTAL,
    &schema::rank_profile::OUTCOMES_REFUSED_TOTAL,
    &schema::rank_profile::RECORDED_TOTAL,
    &schema::rank_profile::RECORD_LEFT_OUT_TOTAL,
    &schema::rank_profile::WEIGHTS_NOT_KEPT_TOTAL,
];

/// The facts of a profile.
#[derive(Clone, Copy)]
pub(super) struct ProfileFacts {
    numbers: [FactId; METRICS.len()],
    reasons: FactId,
}

/// The state of a profile that its facts describe.
#[derive(Clone, Copy)]
pub(super) struct ProfileState {
    pub candidates: usize,
    pub is_native: bool,
    pub valid_seconds: f64,
    pub rank_seconds: f64,
    pub relaxed_metrics: usize,
    pub counts: ProfileCounts,
}

impl ProfileFacts {
    /// Registers the facts of `profile`.
    pub(super) fn register(sink: &mut SegmentSink<'_>, profile: &str) -> Self {
        let numbers = METRICS.map(|metric| sink.register(metric, profile));
        Self { numbers, reasons: sink.register(&schema::rank_profile::REASONS, profile) }
    }

    /// Publishes all of them.
    pub(super) fn publish(
        &self,
        sink: &mut SegmentSink<'_>,
        state: ProfileState,
        reasons: &Structured,
    ) {
        let ProfileState { counts, .. } = state;
        let values = [
            Scalar::U64(state.candidates as u64),
            Scalar::U64(state.is_native.into()),
            Scalar::F64(state.valid_seconds),
            Scalar::F64(state.rank_seconds),
            Scalar::U64(state.relaxed_metrics as u64),
            Scalar::U64(counts.values_refused),
            Scalar::U64(counts.outcomes),
            Scalar::U64(counts.outcomes_refused),
            Scalar::U64(counts.recorded),
            Scalar::U64(counts.left_out),
            Scalar::U64(counts.weights_not_kept),
        ];
        for (id, value) in self.numbers.into_iter().zip(values) {
            sink.set(id, value);
        }
        sink.set_structured(self.reasons, reasons);
    }
}

/// Returns the reasons of candidates with these names, in the order of places, as many as fit into a structured value.
pub(super) fn reasons(ranking: &Ranking, names: &[String]) -> Structured {
    let (mut all, mut bytes) = (serde_json::Map::new(), 2);
    for entry in ranking.entries() {
        let texts: Vec<String> = ranking.reasons(entry.candidate).iter().map(text).collect();
        let name = names[entry.candidate].clone();
        let json = serde_json::Value::from(texts);
        // Two quotes, a colon and a comma.
        bytes += name.len() + json.to_string().len() + 4;
        if bytes > MAX_STRUCTURED_BYTES {
            break;
        }
        all.insert(name, json);
    }
    Structured::new(all.into()).unwrap_or_else(|_| Structured::text(""))
}

/// Returns a part of a score as a text: `rtt +1.3: 0.00031`, or with the fault of the value.
pub(super) fn text(part: &Contribution<'_>) -> String {
    let begin = format!("{} {:+.2}", part.name, part.part);
    match (part.fault, part.value) {
        (Some(fault), _) => format!("{begin}: {}", fault.as_str()),
        (None, Some(value)) => format!("{begin}: {}", rounded(value)),
        (None, None) => begin,
    }
}

/// Rounds a value to three digits, so that small changes of a value do not publish new reasons.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits() {
        for (value, expected) in
            [(0.000_312_49, 0.000_312), (1234.0, 1230.0), (0.0, 0.0), (2.0, 2.0)]
        {
            assert_eq!(rounded(value).to_string(), expected.to_string());
        }
    }
}
