//! Sends batches in order, one after another. Each is repeated until the store accepts or refuses it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ureq::Agent;

use super::encode::{Entry, encode};
use super::nap::NAP;
use super::queue::Queue;
use crate::config::RemoteWriteConfig;

/// Maximum time for an answer of the store.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The first pause after a failure. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause after a failure, unless the store asks for one.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The longest pause that a store may ask for. A longer one is shortened.
const LONGEST_ASKED_PAUSE: Duration = Duration::from_secs(300);

/// The sending thread.
pub(super) struct Sender {
    url: String,
    headers: BTreeMap<String, String>,
    agent: Agent,
    queue: Arc<Queue>,
    stop: Arc<AtomicBool>,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Accepted,
    /// The store refuses it, and would refuse a repetition.
    Refused,
    /// The request has to be repeated, after the time that the store asks for, if it does.
    Retry(Option<Duration>),
}

impl Sender {
    pub(super) fn new(
        config: &RemoteWriteConfig,
        queue: Arc<Queue>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let agent = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("skopos/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let (url, headers) = (config.url.to_string(), config.headers.clone());
        Self { url, headers, agent, queue, stop }
    }

    /// Sends until it is stopped.
    pub(super) fn run(&self) {
        let mut pause = FIRST_PAUSE;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(batch) = self.queue.first(NAP) else { continue };
            let counts = &self.queue.counts;
            match self.send(&batch) {
                Outcome::Retry(asked) => {
                    counts.retries.fetch_add(1, Ordering::Relaxed);
                    self.sleep(asked.unwrap_or(pause));
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                outcome => {
                    pause = FIRST_PAUSE;
                    // A batch that the queue dropped meanwhile is counted there.
                    if self.queue.done(&batch) {
                        let is_accepted = outcome == Outcome::Accepted;
                        let count = if is_accepted { &counts.sent } else { &counts.refused };
                        count.fetch_add(batch.len() as u64, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    fn sleep(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while !self.stop.load(Ordering::Relaxed) && Instant::now() < until {
            std::thread::sleep(NAP.min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn send(&self, batch: &[Entry]) -> Outcome {
        let Ok(body) = encode(batch) else { return Outcome::Refused };
        let mut request = self
            .agent
            .post(&self.url)
            .header("Content-Encoding", "snappy")
            .header("Content-Type", "application/x-protobuf")
            .header("X-Prometheus-Remote-Write-Version", "0.1.0");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        match request.send(&body[..]) {
            Ok(response) => {
                let retry_after = response.headers().get("retry-after");
                let retry_after = retry_after.and_then(|value| value.to_str().ok());
                outcome(response.status().as_u16(), retry_after)
            }
            // The store is not there, or does not answer.
            Err(_) => Outcome::Retry(None),
        }
    }
}

/// Returns the outcome that the specification of remote write gives for a status.
fn outcome(status: u16, retry_after: Option<&str>) -> Outcome {
    match status {
        200..=299 => Outcome::Accepted,
        429 | 500.. => {
            let asked = retry_after.and_then(|text| text.trim().parse().ok());
            Outcome::Retry(asked.map(|s| Duration::from_secs(s).min(LONGEST_ASKED_PAUSE)))
        }
        _ => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_outcomes_of_the_specification() {
        let seconds = |s| Some(Duration::from_secs(s));
        for (status, retry_after, expected) in [
            (200, None, Outcome::Accepted),
            (204, Some("7"), Outcome::Accepted),
            (302, None, Outcome::Refused),
            (400, None, Outcome::Refused),
            (401, Some("7"), Outcome::Refused),
            (429, None, Outcome::Retry(None)),
            (429, Some(" 7 "), Outcome::Retry(seconds(7))),
            (503, Some("99999999999"), Outcome::Retry(seconds(300))),
            (500, Some("Wed, 21 Oct 2026 07:28:00 GMT"), Outcome::Retry(None)),
        ] {
            assert_eq!(outcome(status, retry_after), expected, "{status} {retry_after:?}");
        }
    }
}
