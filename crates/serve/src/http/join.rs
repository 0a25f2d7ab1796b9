//! `GET /api/v1/authority` and `POST /api/v1/join`: how a node gets its certificate.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use skopos_access::Caller;
use skopos_hub::Pki;
use skopos_hub::pki::{JoinError, hex, unhex};

use super::context::HttpContext;
use super::guard::PeerAddress;
use super::refusal::Refusal;
use super::sql::within_bounds;

/// The longest request: the name of a node, a key and a signature.
pub(super) const MAX_BODY_BYTES: usize = 4096;

/// `JoinRequest` in `docs/openapi.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinRequest {
    node: String,
    /// The public key and its signature, in hexadecimal digits.
    request: String,
}

/// `Joined` in `docs/openapi.json`.
#[derive(Serialize)]
pub(super) struct JoinAnswer {
    /// The certificates in DER, in hexadecimal digits.
    authority: String,
    certificate: String,
}

/// Answers with the certificate of the authority in DER.
pub(super) async fn authority(
    State(context): State<Arc<HttpContext>>,
) -> Result<Response, Refusal> {
    let authority = pki(&context)?.identity().authority().to_vec();
    Ok(([(CONTENT_TYPE, "application/pkix-cert")], authority).into_response())
}

/// Answers with the certificate of a node, whose token is that of the request.
pub(super) async fn answer(
    State(context): State<Arc<HttpContext>>,
    Extension(caller): Extension<Caller>,
    Extension(from): Extension<PeerAddress>,
    request: Request,
) -> Result<Json<JoinAnswer>, Refusal> {
    let body = within_bounds(request, MAX_BODY_BYTES).await?;
    let request: JoinRequest = serde_json::from_slice(&body)
        .map_err(|e| Refusal::bad(format!("not a request to join: {e}")))?;
    let signed = unhex(&request.request)
        .ok_or_else(|| Refusal::bad("`request` has other characters than hexadecimal digits"))?;
    let pki = pki(&context)?.clone();
    // It writes files.
    let joined =
        tokio::task::spawn_blocking(move || pki.join(&caller, &request.node, &signed, from.0));
    let joined = joined.await.map_err(|e| Refusal::internal(e.to_string()))?;
    let joined = joined.map_err(refusal)?;
    let (authority, certificate) = (hex(&joined.authority), hex(&joined.certificate));
    Ok(Json(JoinAnswer { authority, certificate }))
}

fn refusal(error: JoinError) -> Refusal {
    match &error {
        JoinError::Denied(denied) => Refusal::denied(denied),
        JoinError::Invalid(_) => Refusal::bad(error.to_string()),
        JoinError::Taken(_) => Refusal::new(StatusCode::CONFLICT, error.to_string()),
        JoinError::Unable(_) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

fn pki(context: &HttpContext) -> Result<&Arc<Pki>, Refusal> {
    let none = || {
        Refusal::new(StatusCode::NOT_FOUND, "this hub has no certificates")
            .hint("`skopos pki init` makes them, on the machine of the hub")
    };
    context.admittance.pki.as_ref().ok_or_else(none)
}
