//! `POST /api/v1/sql`: answers as JSON or as an Arrow stream, sent piece by piece.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, FromRequest as _, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Deserialize;
use skopos_access::Caller;
use skopos_query::arrow::array::RecordBatch;
use skopos_query::arrow::error::ArrowError;
use skopos_query::{Answer, BoxError, Error, Limits, MAX_SQL_BYTES};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::accept::Accept;
use super::context::HttpContext;
use super::refusal::Refusal;
use super::sending::{SEND_TIME, sent};
use skopos_hub::pieces::{ArrowRows, JsonRows};

/// The longest request: a statement, for whose bytes JSON needs up to six bytes each, and the rest of the document.
pub(super) const MAX_BODY_BYTES: usize = 6 * MAX_SQL_BYTES + 1024;

/// Maximum time for the arrival of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest deadline that a client can ask for.
const MAX_DEADLINE: Duration = Duration::from_secs(300);

/// Number of rows in one piece.
const PIECE_ROWS: usize = 4096;

const JSON: &str = "application/json";
const ARROW: &str = "application/vnd.apache.arrow.stream";

/// `Question` in `docs/openapi.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementRequest {
    sql: String,
    rows: Option<usize>,
    deadline_ms: Option<u64>,
}

pub(super) async fn answer(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Refusal> {
    let begun = Instant::now();
    let content_type = content_type(request.headers())?;
    let statement = read(request).await?;
    let mut limits = Limits::default();
    if let Some(rows) = statement.rows {
        limits.rows = rows.min(limits.rows);
    }
    if let Some(deadline) = statement.deadline_ms {
        limits.deadline = Duration::from_millis(deadline).min(MAX_DEADLINE);
    }
    let answer = run(&context, caller, statement.sql, limits).await?;
    let is_held = answer.is_held();
    let pieces = Pieces::new(answer, content_type == ARROW, begun.elapsed());
    let pieces = pieces.map_err(|e| Refusal::bad(e.to_string()))?;
    let until = begun + limits.deadline.max(SEND_TIME);
    let body = match is_held {
        true => Body::from_stream(sent(pieces, until)),
        false => Body::from_stream(stream::iter(pieces)),
    };
    Ok(([(CONTENT_TYPE, content_type)], body).into_response())
}

/// Answers a statement.
async fn run(
    context: &Arc<HttpContext>,
    caller: Caller,
    sql: String,
    limits: Limits,
) -> Result<Answer, Refusal> {
    let engine = &context.backend.engine;
    if let Some(answer) = engine.read(&caller, &sql).await? {
        let is_short = answer.rows() <= limits.rows;
        return if is_short { Ok(answer) } else { Err(Error::TooManyRows(limits.rows).into()) };
    }
    let (engine, running) = (engine.clone(), context.counts.run());
    // A task of its own lets the connection notice that its client is gone, however long a step takes. The connection
    // then drops this function, and the set aborts the task.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let answer = async { engine.planned(&caller, &sql, &limits).await?.collect().await }.await;
        running.done();
        answer
    });
    match tasks.join_next().await {
        Some(Ok(answer)) => Ok(answer?),
        Some(Err(e)) => Err(Refusal::internal(e.to_string())),
        None => Err(Refusal::internal("the statement did not run")),
    }
}

/// Returns the content type of the answer, by the header `Accept`.
fn content_type(headers: &HeaderMap) -> Result<&'static str, Refusal> {
    let accept = Accept::new(headers);
    if accept.is_absent() {
        return Ok(JSON);
    }
    let offer = |name: &str| match name {
        ARROW => Some(ARROW),
        JSON | "*/*" | "application/*" => Some(JSON),
        _ => None,
    };
    accept.best(offer).ok_or_else(|| {
        let error = "`Accept` has no type in which an answer can be sent";
        Refusal::new(StatusCode::NOT_ACCEPTABLE, error)
            .hint(format!("an answer is `{JSON}` or `{ARROW}`"))
    })
}

/// Returns the content type of a request without its parameters.
fn kind_of(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

async fn read(request: Request) -> Result<StatementRequest, Refusal> {
    let kind = kind_of(request.headers());
    if !matches!(kind.as_str(), JSON | "application/sql") {
        let error = format!("a statement cannot be sent as `{kind}`");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error).hint(
            "send `content-type: application/sql` and the statement, or `application/json` and \
             {\"sql\":\"…\"}",
        ));
    }
    let bytes = within_bounds(request, MAX_BODY_BYTES).await?;
    if kind == JSON {
        return serde_json::from_slice(&bytes).map_err(|e| {
            Refusal::bad(format!("not a request: {e}"))
                .hint("write {\"sql\":\"SELECT …\"}; `rows` and `deadline_ms` are optional")
        });
    }
    match String::from_utf8(bytes.into()) {
        Ok(sql) => Ok(StatementRequest { sql, rows: None, deadline_ms: None }),
        Err(_) => Err(Refusal::bad("the statement is not UTF-8")),
    }
}

/// Reads the body, within the limits of size and time.
pub(super) async fn within_bounds(request: Request, most: usize) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(e)) if e.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let error = format!("a request can have at most {most} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error))
        }
        Ok(Err(_)) => Err(Refusal::bad("the body cannot be read")),
        Err(_) => Err(Refusal::too_slow("body")),
    }
}

/// Iterates over an answer in encoded pieces.
struct Pieces {
    batches: VecDeque<RecordBatch>,
    rows: Option<Rows>,
    /// It holds the permit of its statement.
    _answer: Answer,
}

enum Rows {
    Json(Box<JsonRows>),
    Arrow(Box<ArrowRows>),
}

impl Pieces {
    fn new(answer: Answer, is_arrow: bool, took: Duration) -> Result<Self, ArrowError> {
        let rows = match is_arrow {
            true => Rows::Arrow(Box::new(ArrowRows::new(&answer.schema)?)),
            false => Rows::Json(Box::new(JsonRows::new(&answer, took)?)),
        };
        let slices = answer.batches.iter().flat_map(|batch| {
            let starts = (0..batch.num_rows()).step_by(PIECE_ROWS);
            starts.map(|at| batch.slice(at, PIECE_ROWS.min(batch.num_rows() - at)))
        });
        Ok(Self { batches: slices.collect(), rows: Some(rows), _answer: answer })
    }
}

impl Iterator for Pieces {
    type Item = Result<Bytes, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        let piece = match (self.batches.pop_front(), self.rows.as_mut()?) {
            (Some(batch), Rows::Json(rows)) => rows.piece(&batch),
            (Some(batch), Rows::Arrow(rows)) => rows.piece(&batch),
            (None, _) => match self.rows.take()? {
                Rows::Json(rows) => rows.end(),
                Rows::Arrow(rows) => rows.end(),
            },
        };
        Some(piece.map(Bytes::from).map_err(Into::into))
    }
}
