//! How verbs talk to the agent: one JSON document a line over a UNIX socket beside the segment.
//!
//! Reading needs none of this. The socket is for what only the agent can do: publish on behalf of a
//! script that ends at once, poll a sensor before its time, and say what it senses.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The longest request or answer. A structured value of the greatest length, escaped, fits thrice.
pub(crate) const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// How long a verb waits for the agent. A tick of all sensors takes milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a verb may ask for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Publish a value; register its topic first if it is new.
    Publish { topic: String, value: String, value_type: String, unit: String, kind: String },
    /// Take a published topic away.
    Remove { topic: String },
    /// Poll the sensor of this topic now.
    Refresh { topic: String },
    /// Say what is sensed and what is not.
    Status,
}

/// What the agent answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Done.
    Done {
        /// The topic in full.
        topic: String,
    },
    /// What is sensed and what is not.
    Status(Status),
    /// Not done.
    Refused {
        /// What went wrong.
        error: String,
        /// What the user can do.
        hint: Option<String>,
    },
}

/// What the agent senses.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The node's name.
    pub(crate) node: String,
    /// The agent's version.
    pub(crate) version: String,
    /// One line a sensor.
    pub(crate) sensors: Vec<SensorStatus>,
    /// What is not sensed, and why.
    pub(crate) skips: Vec<SkipStatus>,
    /// Facts that users published.
    pub(crate) user_facts: usize,
    /// Attempts to register a fact that were refused so far.
    pub(crate) facts_refused: u64,
}

/// One sensor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SensorStatus {
    /// Its family.
    pub(crate) name: String,
    /// How many facts it has registered.
    pub(crate) facts: usize,
    /// Polls made.
    pub(crate) polls: u64,
    /// Time between polls.
    pub(crate) interval_seconds: f64,
    /// What decides about that time.
    pub(crate) policy: String,
    /// How many times longer than wanted it is, for the sake of the budget.
    pub(crate) stretch: f64,
    /// Processor time of the latest poll.
    pub(crate) poll_seconds: f64,
    /// Why the latest poll failed, if it did.
    pub(crate) error: Option<String>,
}

/// Something that is not sensed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SkipStatus {
    /// A family or a part of one.
    pub(crate) what: String,
    /// Why.
    pub(crate) reason: String,
}

/// The agent's socket in `dir`.
pub(crate) fn socket_path(dir: &Path) -> PathBuf {
    dir.join("agent.sock")
}

/// Why the agent cannot be asked, told apart by what the user can do.
fn unreachable_agent(path: &Path, e: &std::io::Error) -> Failure {
    use std::io::ErrorKind::{PermissionDenied, TimedOut, WouldBlock};
    let at = path.display();
    match e.kind() {
        WouldBlock | TimedOut => Failure::new(format!(
            "the agent at {at} does not answer; it may still do what was asked later"
        ))
        .hint("it lives but does not work: `skopos doctor` looks closer"),
        PermissionDenied => Failure::new(format!("the agent at {at} is another user's"))
            .because(e)
            .hint("start one of your own with `skopos agent`; it runs beside the other"),
        _ => Failure::new(format!("no agent answers at {at}"))
            .because(e)
            .hint("start one with `skopos up` or `skopos agent`"),
    }
}

/// Asks the agent whose runtime directory is `dir`.
///
/// # Errors
/// A failure that says that no agent listens there, or what the agent refused.
pub(crate) fn ask(dir: &Path, request: &Request) -> Result<Answer, Failure> {
    let path = socket_path(dir);
    let io = |e: std::io::Error| unreachable_agent(&path, &e);
    let mut stream = UnixStream::connect(&path).map_err(io)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(io)?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(io)?;
    let mut line = serde_json::to_vec(request).map_err(|e| io(e.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(io)?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_MESSAGE_BYTES as u64)).read_line(&mut answer).map_err(io)?;
    match serde_json::from_str(&answer).map_err(|e| io(e.into()))? {
        Answer::Refused { error, hint } => {
            let failure = Failure::refusal(error);
            Err(match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
        answer => Ok(answer),
    }
}
