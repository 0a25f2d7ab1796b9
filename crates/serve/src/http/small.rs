//! Small answers: nodes, health, and the description of the interface.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};
use skopos_access::{Action, Caller, may};
use skopos_query::{Node, Source as _};

use super::context::HttpContext;

/// The description, in OpenAPI 3.1.
const OPENAPI: &str = include_str!("../../../../docs/openapi.json");

#[derive(Serialize)]
struct NodeJson {
    node: String,
    alive: bool,
    topics: u64,
    /// Time of its last message, by the hub's clock; absent before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_at_ns: Option<i64>,
    lost_batches: u64,
    malformed_batches: u64,
    /// Seconds that its clock is ahead of the hub's; absent while unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_offset: Option<f64>,
}

impl From<Node> for NodeJson {
    fn from(node: Node) -> Self {
        let seen_at = Some(node.seen_at).filter(|time| time.as_nanos() > 0);
        Self {
            node: node.name,
            alive: node.alive,
            topics: node.topics,
            seen_at: seen_at.map(|time| time.to_string()),
            seen_at_ns: seen_at.map(|time| time.as_nanos()),
            lost_batches: node.lost_batches,
            malformed_batches: node.malformed_batches,
            clock_offset: node.clock_offset.map(|nanos| nanos as f64 / 1e9),
        }
    }
}

pub(super) async fn nodes(State(context): State<Arc<HttpContext>>) -> Json<Value> {
    let nodes = context.backend.source.nodes().into_iter().map(NodeJson::from);
    Json(json!({ "nodes": nodes.collect::<Vec<_>>() }))
}

/// Answers whoever asks that the hub works, and whoever may read facts with its counts.
pub(super) async fn health(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
) -> Json<Value> {
    let version = env!("CARGO_PKG_VERSION");
    if may(&caller, Action::ReadFacts).is_err() {
        return Json(json!({ "status": "ok", "version": version }));
    }
    let nodes = context.backend.source.nodes();
    let listeners = context.backend.counts.iter().map(|(listener, counts)| {
        let counts = counts.all().map(|(metric, now)| (metric.name.to_owned(), Value::from(now)));
        ((*listener).to_owned(), Value::Object(counts.into_iter().collect()))
    });
    Json(json!({
        "status": "ok",
        "version": version,
        "nodes": nodes.len(),
        "nodes_alive": nodes.iter().filter(|node| node.alive).count(),
        "listeners": listeners.collect::<Map<_, _>>(),
    }))
}

pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
