//! Pages of a ranking for clients of the control socket.

use skopos_model::nearest_name;
use skopos_steer::rank::{Basis, Method, Ranked, Ranking, State};

use super::profile::RankedProfile;
use super::rank_profile::text;
use super::refusal::refused;
use crate::control::{Answer, MAX_ANSWER_BYTES, RankMetric, RankPage, RankPart, RankedCandidate};

/// Length at which a page ends: the next candidate, with the parts of all metrics, still fits.
const PAGE_BYTES: usize = MAX_ANSWER_BYTES / 4;

/// Returns a page of the ranking of `profile`: the candidates of these names, all without a name, after the place `after`.
pub(super) fn page(
    node: &str,
    profile: &RankedProfile,
    names: &[String],
    after: usize,
) -> Result<Answer, Answer> {
    let Some(ranking) = profile.ranking() else {
        let error = format!("`{}` was not ranked yet", profile.name());
        return Err(refused(error, "try again in a moment".to_owned()));
    };
    let candidates = &profile.config().candidates;
    let known = || candidates.iter().map(|c| &*c.name);
    if let Some(unknown) = names.iter().find(|name| !known().any(|known| known == **name)) {
        let hint = match nearest_name(unknown, known()) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => "without candidates, all of them are shown".to_owned(),
        };
        let error = format!("`{unknown}` is not a candidate of `{}`", profile.name());
        return Err(refused(error, hint));
    }
    let (mut shown, mut bytes, mut more) = (Vec::new(), 0, false);
    for (at, entry) in ranking.entries().iter().enumerate().skip(after) {
        let candidate = &candidates[entry.candidate];
        if !names.is_empty() && !names.contains(&candidate.name) {
            continue;
        }
        if bytes > PAGE_BYTES {
            more = true;
            break;
        }
        let one = ranked(ranking, at + 1, entry, (&candidate.name, &candidate.node));
        bytes += serde_json::to_string(&one).map_or(0, |text| text.len());
        shown.push(one);
    }
    let counts = profile.counts();
    Ok(Answer::Rank(Box::new(RankPage {
        node: node.to_owned(),
        profile: profile.name().to_owned(),
        method: method(profile.profile().method).to_owned(),
        at_ns: ranking.at().as_nanos(),
        valid_seconds: profile.valid().as_secs_f64(),
        rank_seconds: profile.spent().as_secs_f64(),
        native: ranking.basis() == Basis::Native,
        outcomes_total: counts.outcomes,
        outcomes_refused_total: counts.outcomes_refused,
        recorded_total: counts.recorded,
        record_left_out_total: counts.left_out,
        record_error: profile.record_error(),
        metrics: metrics(profile),
        candidates_total: candidates.len(),
        candidates: shown,
        more,
    })))
}

fn metrics(profile: &RankedProfile) -> Vec<RankMetric> {
    let weights = profile.ranker().weights();
    let utility = profile.ranker().utility();
    let metrics = profile.profile().metrics.iter().zip(weights).zip(profile.relaxed());
    let metric = |(at, ((metric, weight), relaxed)): (
        usize,
        ((&skopos_steer::rank::Metric, &f64), bool),
    )| {
        RankMetric { name: metric.name.clone(), weight: *weight, utility: utility.of(at), relaxed }
    };
    metrics.enumerate().map(metric).collect()
}

fn ranked(
    ranking: &Ranking,
    place: usize,
    entry: &Ranked,
    (candidate, node): (&str, &str),
) -> RankedCandidate {
    let confidence = entry.confidence;
    let parts = ranking.explain(entry.candidate);
    RankedCandidate {
        candidate: candidate.to_owned(),
        node: node.to_owned(),
        place,
        weight: entry.weight,
        score: entry.score,
        trust: confidence.trust,
        samples: confidence.samples,
        age_seconds: (confidence.trust > 0.0).then_some(confidence.age.as_secs_f64()),
        state: state(entry.state).to_owned(),
        reasons: ranking.reasons(entry.candidate).iter().map(text).collect(),
        parts: parts
            .iter()
            .map(|part| RankPart {
                name: part.name.to_owned(),
                part: part.part,
                value: part.value,
                fault: part.fault.map(|fault| fault.as_str().to_owned()),
            })
            .collect(),
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::Known => "known",
        State::Flapping => "flapping",
        State::Contradicted => "contradicted",
        State::Unknown => "unknown",
        State::Excluded => "excluded",
    }
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Latency => "latency",
        Method::Equal => "equal",
        Method::Given => "given",
        Method::Learned => "learned",
        Method::Pareto => "pareto",
    }
}
