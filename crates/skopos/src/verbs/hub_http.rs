//! Requests to the HTTP listener of a hub, for verbs on other machines.

use std::fmt::Display;
use std::time::Duration;

use serde::Deserialize;
use skopos_term::Failure;
use ureq::Agent;
use ureq::tls::TlsConfig;

/// Maximum time for an answer of the hub.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The error that a hub answers with.
#[derive(Deserialize)]
struct Refused {
    error: String,
    hint: Option<String>,
}

/// Returns a client. Statuses of refusals are not errors of it: the body has the reason.
pub(super) fn agent(tls: TlsConfig) -> Agent {
    let config = Agent::config_builder().tls_config(tls).timeout_global(Some(TIMEOUT));
    config.http_status_as_error(false).proxy(None).build().into()
}

/// Returns the failure of an answer whose status is not a success.
pub(super) fn refused(status: impl Display, body: &[u8]) -> Failure {
    match serde_json::from_slice::<Refused>(body) {
        Ok(Refused { error, hint: Some(hint) }) => Failure::new(error).hint(hint),
        Ok(Refused { error, hint: None }) => Failure::new(error),
        Err(_) => Failure::new(format!("the hub answers {status}")),
    }
}
