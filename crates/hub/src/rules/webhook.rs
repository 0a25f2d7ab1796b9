//! Sends an event to a server by HTTP.

use std::io::Read as _;
use std::path::Path;

use ureq::Agent;

use crate::config::Webhook;

/// Longest token, in bytes. Tokens in use have some hundred.
const MAX_TOKEN_BYTES: u64 = 8192;

/// The result of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Accepted,
    /// Another attempt may succeed.
    Later(String),
    /// Another attempt would have the same result.
    Refused(String),
}

/// Sends `body` once. Redirects are not followed: they could lead the token and the event to another server.
pub(super) fn send(webhook: &Webhook, body: &[u8]) -> Sent {
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(webhook.timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("skopos/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let mut request = agent.post(webhook.url.whole()).header("Content-Type", "application/json");
    if let Some(file) = &webhook.bearer_file {
        match token(file) {
            Ok(token) => request = request.header("Authorization", format!("Bearer {token}")),
            Err(why) => return Sent::Refused(why),
        }
    }
    match request.send(body) {
        Ok(response) => match response.status().as_u16() {
            200..=299 => Sent::Accepted,
            status @ 300..=399 => Sent::Refused(format!(
                "the server answered {status}, and redirects are not followed"
            )),
            status @ (429 | 500..) => Sent::Later(format!("the server answered {status}")),
            status => Sent::Refused(format!("the server answered {status}")),
        },
        // The text of some errors has the URL.
        Err(ureq::Error::Timeout(_)) => {
            Sent::Later(format!("the server did not answer within {:?}", webhook.timeout))
        }
        Err(ureq::Error::HostNotFound) => Sent::Later("the host is not found".to_owned()),
        Err(ureq::Error::Io(e)) => Sent::Later(format!("the server cannot be reached: {e}")),
        Err(_) => Sent::Later("the request failed".to_owned()),
    }
}

/// Reads a token.
fn token(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = std::fs::File::open(file)
        .and_then(|opened| opened.take(MAX_TOKEN_BYTES).read_to_string(&mut text));
    read.map_err(|e| format!("the token in {} cannot be read: {e}", file.display()))?;
    let token = text.trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(format!("{} does not have a token on one line", file.display())),
    }
}
