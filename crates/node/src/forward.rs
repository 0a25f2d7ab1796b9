//! Having facts of other nodes measured now, for programs that asked the agent of this one.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use skopos_model::Topic;
use skopos_wire::{Error, Refresher};

use skopos_agent::control::Answer;

/// How long another node may take: shorter than verbs wait for the agent, so that they hear why.
const DEADLINE: Duration = Duration::from_secs(3);

/// Questions at one time, each on a thread that waits. More are refused.
const MAX_ASKING: usize = 16;

/// Asks other nodes, without anybody waiting but who wants to know. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Forward {
    refresher: Refresher,
    asking: Arc<AtomicUsize>,
}

impl Forward {
    pub(crate) fn new(refresher: Refresher) -> Self {
        Self { refresher, asking: Arc::default() }
    }

    /// Has `topic` measured by its node, and then answers on `stream`.
    pub(crate) fn refresh(&self, topic: Topic, stream: UnixStream) {
        let leave = |asking: &AtomicUsize| asking.fetch_sub(1, Ordering::Relaxed);
        if self.asking.fetch_add(1, Ordering::Relaxed) >= MAX_ASKING {
            leave(&self.asking);
            answer(&stream, &refused("other nodes are asked too much already", "ask again"));
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
        // Without a thread the connection closes, and who asked is told that nobody answers.
        if std::thread::Builder::new().name("forward".to_owned()).spawn(ask).is_err() {
            leave(&self.asking);
        }
    }
}

fn hint(e: &Error) -> &'static str {
    match e {
        Error::NotMirrored(_) => "start the agent with a `--mirror` that matches it",
        Error::Unreachable(_) | Error::NoAnswer { .. } => "its age says when it was last heard of",
        _ => "only what a sensor of that node measures can be refreshed",
    }
}

fn refused(error: &str, hint: &str) -> Answer {
    Answer::Refused { error: error.to_owned(), hint: Some(hint.to_owned()) }
}

/// Answers and hangs up. Who has gone loses it.
fn answer(mut stream: &UnixStream, answer: &Answer) {
    let mut line = serde_json::to_vec(answer).unwrap_or_default();
    line.push(b'\n');
    let _ = stream.write_all(&line);
}
