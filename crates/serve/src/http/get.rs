//! `GET /api/v1/get?topic=…`: latest values, once.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use skopos_access::{Action, Caller, may};
use skopos_hub::Backend;
use skopos_hub::read::{ReadError, read};
use skopos_hub::topics::are_known;
use tokio::time::timeout;

use super::context::HttpContext;
use super::parameters::{self, parameters, unknown};
use super::refusal::Refusal;
use super::sending;

/// Time that a request waits while others have values measured.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn answer(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let (mut texts, mut max_age) = (Vec::new(), None);
    for (name, value) in parameters(&uri)? {
        match name.as_str() {
            "topic" => texts.push(value),
            "max_age" => max_age = Some(parameters::time(&value)?),
            other => return Err(unknown(other, "`topic` and `max_age`")),
        }
    }
    if texts.is_empty() {
        return Err(Refusal::bad("the request names no topic")
            .hint("for example `?topic=mem/available_bytes`"));
    }
    if max_age.is_some() {
        may(&caller, Action::Measure).map_err(|denied| Refusal::denied(&denied))?;
    }
    // Topics that exist are found at once. Others, patterns and measurements take their time on another thread.
    let is_fast = max_age.is_none() && are_known(&*context.backend.source, &texts);
    let backend = context.backend.clone();
    let body = match (is_fast, max_age) {
        (true, _) => encoded(&backend, &texts, None)?,
        (false, None) => {
            let reading = move || encoded(&backend, &texts, None);
            context.backend.engine.reading(&caller, reading).await??
        }
        (false, Some(max_age)) => measured(&context, texts, max_age).await?,
    };
    let body = sending::text(&context.backend.engine, &caller, body)?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Returns the values as JSON.
fn encoded(
    backend: &Backend,
    texts: &[String],
    max_age: Option<Duration>,
) -> Result<Vec<u8>, Refusal> {
    let readings = read(backend, texts, max_age)?;
    serde_json::to_vec(&readings).map_err(|e| Refusal::internal(e.to_string()))
}

/// Reads on a thread that may wait for measurements.
async fn measured(
    context: &Arc<HttpContext>,
    texts: Vec<String>,
    max_age: Duration,
) -> Result<Vec<u8>, Refusal> {
    let permit = timeout(PATIENCE, context.measurements.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = permit else { return Err(Refusal::too_many("requests measure")) };
    let backend = context.backend.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        encoded(&backend, &texts, Some(max_age))
    });
    let failed =
        |e: tokio::task::JoinError| Refusal::internal(format!("the values could not be read: {e}"));
    reading.await.map_err(failed)?
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Invalid(failure) => failure.into(),
            ReadError::NoMatch(failure) => {
                let refusal = Self::new(StatusCode::NOT_FOUND, failure.message());
                match failure.hint_text() {
                    Some(hint) => refusal.hint(hint),
                    None => refusal,
                }
            }
        }
    }
}
