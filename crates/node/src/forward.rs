//! Requests to measure facts of other nodes now, for clients of this node's agent.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use skopos_model::Topic;
use skopos_wire::{Error, Refresher};

use skopos_agent::control::Answer;

/// Timeout of another node: shorter than that of a verb for the agent, so that the verb gets the reason.
const DEADLINE: Duration = Duration::from_secs(3);

/// Largest number of concurrent requests, each on a thread that waits. Further requests are refused.
const MAX_ASKING: usize = 16;

/// Sends requests to other nodes, each on a thread of its own. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Forward {
    refresher: Refresher,
    asking: Arc<AtomicUsize>,
}

impl Forward {
    pub(crate) fn new(refresher: Refresher) -> Self {
        Self { refresher, asking: Arc::default() }
    }

    /// Has `topic` measured by its node, then answers on `stream`. Returns at once.
    pub(crate) fn refresh(&self, topic: Topic, stream: UnixStream) {
        let leave = |asking: &AtomicUsize| asking.fetch_sub(1, Ordering::Relaxed);
        if self.asking.fetch_add(1, Ordering::Relaxed) >= MAX_ASKING {
            leave(&self.asking);
            answer(
                &stream,
                &refused("too many requests to other nodes are under way", "try again"),
            );
            return;
        }
        let (refresher, asking) = (self.refresher.clone(), self.asking.clone());
        let ask = move || {
            answer(
                &stream,
                &match refresher.refresh(&topic, DEADLINE) {
                    Ok(()) => Answer::Done { topic: topic.to_string() },
                    Err(e) => refused(&e.to_string(), hint(&e)),
                },
            );
            leave(&asking);
        };
        // Without a thread the connection closes, and the client reports that it got no answer.
        if std::thread::Builder::new().name("forward".to_owned()).spawn(ask).is_err() {
            leave(&self.asking);
        }
    }
}

fn hint(e: &Error) -> &'static str {
    match e {
        Error::NotMirrored(_) => "start the agent with a `--mirror` that matches it",
        Error::Unreachable(_) | Error::NoAnswer { .. } => "the age of its values says since when",
        _ => "only the topic of a sensor of that node can be refreshed",
    }
}

fn refused(error: &str, hint: &str) -> Answer {
    Answer::Refused { error: error.to_owned(), hint: Some(hint.to_owned()) }
}

/// Sends the answer and closes the connection. A client that is gone loses it.
fn answer(mut stream: &UnixStream, answer: &Answer) {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    let _ = stream.write_all(&line);
}
