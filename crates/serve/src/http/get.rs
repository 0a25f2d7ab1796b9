//! `GET /api/v1/get?topic=…`: latest values, once.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, Uri};

use super::parameters::{self, parameters, unknown};
use super::{Desk, Refusal};
use skopos_hub::read::{Readings, Unread, read};

pub(super) async fn answer(
    State(desk): State<Arc<Desk>>,
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
        return Err(Refusal::bad("no topic is asked for").hint("say `?topic=mem/available_bytes`"));
    }
    let readings = match max_age {
        None => read(&desk.inside, &texts, None),
        Some(most) => read_aside(desk, texts, most).await?,
    };
    readings.map(Json).map_err(Refusal::from)
}

/// On a thread that may wait for what is measured.
async fn read_aside(
    desk: Arc<Desk>,
    texts: Vec<String>,
    most: Duration,
) -> Result<Result<Readings, Unread>, Refusal> {
    let reading = tokio::task::spawn_blocking(move || read(&desk.inside, &texts, Some(most)));
    let failed = |e: tokio::task::JoinError| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("it could not be read: {e}"))
    };
    reading.await.map_err(failed)
}

impl From<Unread> for Refusal {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Wrong(failure) => failure.into(),
            Unread::Nothing(failure) => {
                let refusal = Self::new(StatusCode::NOT_FOUND, failure.message());
                match failure.hint_text() {
                    Some(hint) => refusal.hint(hint),
                    None => refusal,
                }
            }
        }
    }
}
