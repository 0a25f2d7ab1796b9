//! `POST /api/v1/sql`: an answer as JSON or as an Arrow stream, piece by piece as it is taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Deserialize;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::error::ArrowError;
use skopos_query::{Answer, Error, Limits, MAX_SQL_BYTES};

use super::{Desk, Refusal};
use skopos_hub::pieces::{ArrowRows, JsonRows};

/// The longest request: a statement, each byte of which JSON may need six for, and what stands around.
pub(super) const MAX_BODY_BYTES: usize = 6 * MAX_SQL_BYTES + 1024;

/// How long a body may take to come.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// The longest that may be allowed for an answer.
const MAX_DEADLINE: Duration = Duration::from_secs(300);

/// Rows that are written at a time.
const PIECE_ROWS: usize = 4096;

const JSON: &str = "application/json";
const ARROW: &str = "application/vnd.apache.arrow.stream";

/// `Question` in `docs/openapi.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    sql: String,
    rows: Option<usize>,
    deadline_ms: Option<u64>,
}

pub(super) async fn answer(
    State(desk): State<Arc<Desk>>,
    request: Request,
) -> Result<Response, Refusal> {
    let begun = Instant::now();
    let content_type = accepted(request.headers())?;
    let question = read(request).await?;
    let mut limits = Limits::default();
    if let Some(rows) = question.rows {
        limits.rows = rows.min(limits.rows);
    }
    if let Some(deadline) = question.deadline_ms {
        limits.deadline = Duration::from_millis(deadline).min(MAX_DEADLINE);
    }
    let answer = find(&desk, question.sql, limits).await?;
    let pieces = Pieces::new(answer, content_type == ARROW, begun);
    let pieces = pieces.map_err(|e| Refusal::bad(e.to_string()))?;
    let pieces = stream::iter(pieces);
    Ok(([(CONTENT_TYPE, content_type)], Body::from_stream(pieces)).into_response())
}

async fn find(desk: &Arc<Desk>, sql: String, limits: Limits) -> Result<Answer, Refusal> {
    let engine = &desk.inside.engine;
    if let Some(answer) = engine.point(&sql) {
        let is_short = answer.rows() <= limits.rows;
        return if is_short { Ok(answer) } else { Err(Error::TooManyRows(limits.rows).into()) };
    }
    let turn = desk.queries.clone().try_acquire_owned();
    let turn = turn.map_err(|_| Refusal::too_many("questions are computed"))?;
    let (engine, running) = (engine.clone(), desk.counts.run());
    // On its own, so that the connection sees its client go away however long a step takes; when it
    // does, this function is dropped, and ends the task.
    let task = tokio::spawn(async move {
        let _turn = turn;
        let answer = engine.query(&sql, &limits).await;
        running.done();
        answer
    });
    let mut task = EndsWithMe(task);
    match (&mut task.0).await {
        Ok(answer) => Ok(answer?),
        Err(e) => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string())),
    }
}

struct EndsWithMe<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for EndsWithMe<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The content type of an answer that the client takes.
fn accepted(headers: &HeaderMap) -> Result<&'static str, Refusal> {
    let mut is_any = true;
    for value in headers.get_all(ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            is_any = false;
            let (range, parameters) = range.split_once(';').unwrap_or((range, ""));
            if parameters.replace(' ', "").split(';').any(|p| matches!(p, "q=0" | "q=0.0")) {
                continue;
            }
            match range.trim().to_ascii_lowercase().as_str() {
                ARROW => return Ok(ARROW),
                JSON | "*/*" | "application/*" => return Ok(JSON),
                _ => {}
            }
        }
    }
    if is_any {
        return Ok(JSON);
    }
    Err(Refusal::new(
        StatusCode::NOT_ACCEPTABLE,
        "no answer can be had as any of what `Accept` has",
    )
    .hint(format!("an answer is `{JSON}` or `{ARROW}`")))
}

/// A content type without its parameters.
fn kind_of(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

async fn read(request: Request) -> Result<Question, Refusal> {
    let kind = kind_of(request.headers());
    if !matches!(kind.as_str(), JSON | "application/sql" | "text/plain") {
        let error = format!("a statement does not come as `{kind}`");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error).hint(
            "send `content-type: application/sql` and the statement, or `application/json` and \
             {\"sql\":\"…\"}",
        ));
    }
    let bytes = within_bounds(request).await?;
    if kind == JSON {
        return serde_json::from_slice(&bytes).map_err(|e| {
            Refusal::bad(format!("not a question: {e}"))
                .hint("write {\"sql\":\"SELECT …\"}, with `rows` and `deadline_ms` if you like")
        });
    }
    match String::from_utf8(bytes.into()) {
        Ok(sql) => Ok(Question { sql, rows: None, deadline_ms: None }),
        Err(_) => Err(Refusal::bad("the statement is not UTF-8")),
    }
}

/// The body, if it is not longer than the route takes.
async fn within_bounds(request: Request) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(BODY_PATIENCE, Bytes::from_request(request, &())).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(e)) if e.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let error = format!("a question has {MAX_BODY_BYTES} bytes at the most");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error))
        }
        Ok(Err(_)) => Err(Refusal::bad("the body cannot be read")),
        Err(_) => Err(Refusal::too_slow("body")),
    }
}

/// An answer in pieces.
struct Pieces {
    batches: VecDeque<RecordBatch>,
    rows: Option<Rows>,
}

enum Rows {
    Json(Box<JsonRows>),
    Arrow(Box<ArrowRows>),
}

impl Pieces {
    fn new(answer: Answer, is_arrow: bool, begun: Instant) -> Result<Self, ArrowError> {
        let rows = match is_arrow {
            true => Rows::Arrow(Box::new(ArrowRows::new(&answer.schema)?)),
            false => Rows::Json(Box::new(JsonRows::new(&answer, begun.elapsed())?)),
        };
        let slices = answer.batches.iter().flat_map(|batch| {
            let starts = (0..batch.num_rows()).step_by(PIECE_ROWS);
            starts.map(|at| batch.slice(at, PIECE_ROWS.min(batch.num_rows() - at)))
        });
        Ok(Self { batches: slices.collect(), rows: Some(rows) })
    }
}

impl Iterator for Pieces {
    type Item = Result<Bytes, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = match (self.batches.pop_front(), self.rows.as_mut()?) {
            (Some(batch), Rows::Json(rows)) => rows.piece(&batch),
            (Some(batch), Rows::Arrow(rows)) => rows.piece(&batch),
            (None, _) => match self.rows.take()? {
                Rows::Json(rows) => rows.end(),
                Rows::Arrow(rows) => rows.end(),
            },
        };
        Some(piece.map(Bytes::from))
    }
}
