//! `GET /api/v1/get?topic=…`: latest values, once.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri};

use skopos_access::{Action, Caller, may};

use super::context::HttpContext;
use super::parameters::{self, parameters, unknown};
use super::refusal::Refusal;
use tokio::time::timeout;

use skopos_hub::read::{ReadError, Readings, read};
use skopos_hub::topics::are_known;

/// Time that a request waits while others read patterns.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn answer(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Readings>, Refusal> {
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
    let readings = match is_fast {
        true => read(&context.backend, &texts, None),
        false => read_blocking(context, texts, max_age).await?,
    };
    readings.map(Json).map_err(Refusal::from)
}

/// Reads on a thread that may wait for measurements.
async fn read_blocking(
    context: Arc<HttpContext>,
    texts: Vec<String>,
    most: Option<Duration>,
) -> Result<Result<Readings, ReadError>, Refusal> {
    let permit = timeout(PATIENCE, context.reads.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = permit else { return Err(Refusal::too_many("requests read patterns")) };
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        read(&context.backend, &texts, most)
    });
    let failed =
        |e: tokio::task::JoinError| Refusal::internal(format!("the values could not be read: {e}"));
    reading.await.map_err(failed)
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
