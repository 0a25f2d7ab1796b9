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
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file)
        .and_then(|opened| opened.take(MAX_TOKEN_BYTES + 1).read_to_end(&mut bytes));
    let read = read.map_err(|e| format!("the token in {} cannot be read: {e}", file.display()))?;
    if read as u64 > MAX_TOKEN_BYTES {
        let file = file.display();
        return Err(format!("{file} has more than {MAX_TOKEN_BYTES} bytes; a token is shorter"));
    }
    let token = str::from_utf8(&bytes).unwrap_or_default().trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.to_owned()),
        false => Err(format!("{} does not have a token on one line", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_whole_or_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("token");
        let read = |bytes: &[u8]| {
            std::fs::write(&file, bytes).expect("written");
            token(&file)
        };
        let longest = "t".repeat(MAX_TOKEN_BYTES as usize);
        assert_eq!(read(longest.as_bytes()), Ok(longest.clone()));
        let too_long = read(format!("{longest}t").as_bytes());
        assert!(too_long.is_err_and(|why| why.contains("more than 8192 bytes")));
        assert_eq!(read(b" t0ken\n"), Ok("t0ken".to_owned()));
        for odd in [b"".as_slice(), b"a b", b"a\nb", b"\xff"] {
            assert!(read(odd).is_err_and(|why| why.contains("on one line")), "{odd:?}");
        }
    }
}
