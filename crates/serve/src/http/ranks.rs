//! `GET /api/v1/ranks/PROFILE?node=…`: the last ranking of a profile.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;
use skopos_access::Caller;
use skopos_hub::Backend;
use skopos_hub::ranks::{Rank, RankedProfile, ranked};

use super::context::HttpContext;
use super::parameters::{parameters, unknown};
use super::refusal::Refusal;
use super::sending;

/// The version of the answer.
const VERSION: u32 = 1;

/// `Ranking` in `docs/openapi.json`.
#[derive(Serialize)]
struct Ranking<'a> {
    version: u32,
    profile: &'a str,
    node: &'a str,
    /// Time of the ranking.
    at: String,
    /// Time since the ranking.
    age_seconds: f64,
    /// Time after the ranking for which it is valid.
    valid_seconds: Option<f64>,
    native: bool,
    candidates: Vec<Candidate<'a>>,
}

/// `RankedCandidate` in `docs/openapi.json`.
#[derive(Serialize)]
struct Candidate<'a> {
    candidate: &'a str,
    place: Option<u64>,
    weight: Option<f64>,
    score: Option<f64>,
    trust: Option<f64>,
    samples: Option<u64>,
    age_seconds: Option<f64>,
    state: Option<&'a str>,
    reasons: &'a [Value],
}

pub(super) async fn answer(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let Path(profile) = path.map_err(|e| Refusal::bad(e.body_text()))?;
    let mut node = None;
    for (name, value) in parameters(&uri)? {
        match name.as_str() {
            "node" => node = Some(value),
            other => return Err(unknown(other, "`node`")),
        }
    }
    let backend = context.backend.clone();
    let reading = move || encoded(&backend, &profile, node.as_deref());
    let body = context.backend.engine.reading(&caller, reading).await??;
    let body = sending::text(&context.backend.engine, &caller, body)?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Returns the ranking as JSON.
fn encoded(backend: &Backend, profile: &str, node: Option<&str>) -> Result<Vec<u8>, Refusal> {
    let found = ranked(&*backend.source, profile, node);
    let ranking = match &found[..] {
        [only] => only,
        [] => {
            let error = match node {
                Some(node) => format!("the node `{node}` does not rank the profile `{profile}`"),
                None => format!("no node ranks the profile `{profile}`"),
            };
            return Err(Refusal::new(StatusCode::NOT_FOUND, error)
                .hint("the statement `SELECT DISTINCT node, profile FROM ranks` lists them"));
        }
        [first, ..] => {
            return Err(Refusal::bad(format!("{} nodes rank `{profile}`", found.len()))
                .hint(format!("name one of them, such as `?node={}`", first.node)));
        }
    };
    let json = serde_json::to_vec(&described(profile, ranking));
    json.map_err(|e| Refusal::internal(e.to_string()))
}

fn described<'a>(profile: &'a str, ranking: &'a RankedProfile) -> Ranking<'a> {
    // All candidates are of one tick, so the latest of their times is that of the ranking.
    let at = ranking.ranks.iter().map(|rank| rank.checked_at).max().unwrap_or_default();
    let age = ranking.ranks.iter().map(|rank| rank.age).min().unwrap_or_default();
    let candidate = |rank: &'a Rank| Candidate {
        candidate: &rank.candidate,
        place: rank.place,
        weight: rank.weight,
        score: rank.score,
        trust: rank.trust,
        samples: rank.samples,
        age_seconds: rank.age_seconds,
        state: rank.state,
        reasons: ranking.reasons[&*rank.candidate].as_array().map_or(&[], Vec::as_slice),
    };
    Ranking {
        version: VERSION,
        profile,
        node: &ranking.node,
        at: at.to_string(),
        age_seconds: age.as_secs_f64(),
        valid_seconds: ranking.valid_seconds,
        native: ranking.is_native,
        candidates: ranking.ranks.iter().map(candidate).collect(),
    }
}
