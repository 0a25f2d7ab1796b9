//! How verbs talk to the agent: one JSON document a line over a UNIX socket beside the segment.
//!
//! Reading needs none of this. The socket is for what only the agent can do: publish on behalf of a
//! script that ends at once, poll a sensor before its time, and say what it senses.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use skopos_model::Value;

use skopos_term::Failure;

/// The longest request. A structured value of the greatest length, escaped, fits thrice.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// The longest answer: what a socket takes at once, so that the agent never waits for a reader.
pub const MAX_ANSWER_BYTES: usize = 128 * 1024;

/// How long a verb waits for the agent. A tick of all sensors takes milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a verb may ask for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Publish a value; register its topic first if it is new.
    Publish { topic: String, value: String, value_type: String, unit: String, kind: String },
    /// Take a published topic away.
    Remove { topic: String },
    /// Poll the sensor of this topic now.
    Refresh { topic: String },
    /// Say what is sensed and what is not.
    Status,
    /// Show vertices of the graph whose topics match a pattern, in the order of topics, from the one
    /// after `after` on.
    Vertices { pattern: String, insights_only: bool, after: Option<String> },
    /// Say how each built-in insight stands.
    Definitions,
    /// Say what is unusual now, in the order of topics and then rules, from the one after `after`,
    /// such a pair, on.
    Findings { after: Option<(String, String)> },
}

/// What the agent answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done.
    Done {
        /// The topic in full.
        topic: String,
    },
    /// What is sensed and what is not.
    Status(Status),
    /// Vertices of the graph.
    Vertices {
        vertices: Vec<VertexStatus>,
        /// True if there are more than fit.
        more: bool,
    },
    /// The built-in insights.
    Definitions {
        definitions: Vec<DefinitionStatus>,
        /// Those that could not be added to the graph: the first ones, and how many.
        refused: Vec<RefusedInput>,
        refused_total: usize,
    },
    /// What is unusual now, as events have it.
    Findings {
        findings: Vec<serde_json::Value>,
        /// How many there are on all pages.
        total: usize,
        /// True if there are more than fit.
        more: bool,
    },
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
pub struct Status {
    /// The node's name.
    pub node: String,
    /// The agent's version.
    pub version: String,
    /// One line a sensor.
    pub sensors: Vec<SensorStatus>,
    /// What is not sensed, and why.
    pub skips: Vec<SkipStatus>,
    /// Facts that users published.
    pub user_facts: usize,
    /// Attempts to register a fact that were refused so far.
    pub facts_refused: u64,
}

/// One sensor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SensorStatus {
    /// Its family.
    pub name: String,
    /// How many facts it has registered.
    pub facts: usize,
    /// Polls made.
    pub polls: u64,
    /// Time between polls.
    pub interval_seconds: f64,
    /// What decides about that time.
    pub policy: String,
    /// How many times longer than wanted it is, for the sake of the budget.
    pub stretch: f64,
    /// Processor time of the latest poll.
    pub poll_seconds: f64,
    /// Why the latest poll failed, if it did.
    pub error: Option<String>,
}

/// One vertex of the graph.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VertexStatus {
    pub topic: String,
    pub unit: String,
    pub kind: String,
    pub is_insight: bool,
    /// Name and formula of an insight.
    pub name: Option<String>,
    pub formula: Option<String>,
    /// Its value; null if it is unknown, and then why.
    pub value: serde_json::Value,
    pub unknown: Option<String>,
    /// Since when that holds.
    pub since_ns: i64,
    /// When its source, of an insight its oldest needed input, was last looked at.
    pub checked_at_ns: i64,
    /// The topic of that input.
    pub oldest: Option<String>,
    pub inputs: Vec<InputStatus>,
    /// Topics that match an input and are not taken, each with the reason.
    pub refused: Vec<RefusedInput>,
    /// Insights that are computed from it: the first ones, and how many.
    pub dependents: Vec<String>,
    pub dependents_total: usize,
    /// How many insights lie on the longest path up to it.
    pub height: u8,
    /// Evaluations, and what they took.
    pub runs: u64,
    pub last_ns: u64,
    pub total_ns: u64,
    /// How often its value changed, and how often a second of late.
    pub changes: u64,
    pub changes_per_second: Option<f64>,
}

/// One input of an insight.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InputStatus {
    pub name: String,
    pub pattern: String,
    pub needed: bool,
    /// Why nothing matches.
    pub missing: Option<String>,
    /// Topics that match: the first ones, and how many.
    pub matched: Vec<String>,
    pub matched_total: usize,
}

/// A topic that an insight does not take, or an insight that the graph does not.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RefusedInput {
    pub topic: String,
    pub reason: String,
}

/// How a built-in insight stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DefinitionStatus {
    pub name: String,
    /// Its row in Table 1 of the Apollo paper.
    pub row: u8,
    pub help: String,
    pub unit: String,
    pub formula: String,
    pub source: String,
    /// How many vertices there are of it.
    pub vertices: usize,
    /// How many more there would be, were there room.
    pub refused: usize,
    /// Why there is none, if there is none.
    pub why_none: Option<String>,
}

/// Something that is not sensed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SkipStatus {
    /// A family or a part of one.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// The agent's socket in `dir`.
pub fn socket_path(dir: &Path) -> PathBuf {
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
pub fn ask(dir: &Path, request: &Request) -> Result<Answer, Failure> {
    let path = socket_path(dir);
    let io = |e: std::io::Error| unreachable_agent(&path, &e);
    let mut stream = UnixStream::connect(&path).map_err(io)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(io)?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(io)?;
    let mut line = serde_json::to_vec(request).map_err(|e| io(e.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(io)?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_ANSWER_BYTES as u64)).read_line(&mut answer).map_err(io)?;
    if !answer.is_empty() && !answer.ends_with('\n') {
        let told = format!("the agent's answer ends after {} bytes, unfinished", answer.len());
        return Err(Failure::new(told).hint("ask again; `skopos doctor` looks closer"));
    }
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

/// What a user can do about a value that is no number.
pub const NO_NUMBER_HINT: &str =
    "publish nothing while there is no value, or take the fact away with --remove";

/// Why a value is none that readers can compute with: no JSON has it, and no insight takes it.
pub fn no_number(value: &Value) -> Option<String> {
    match value {
        Value::F64(number) if !number.is_finite() => {
            Some(format!("`{number}` is no finite number"))
        }
        _ => None,
    }
}
