//! The control protocol between verbs and the agent: a JSON document on each line of a UNIX socket beside the
//! segment.
//!
//! Readers of facts do not need it. The socket is for work that only the agent can do: publish for a script
//! that ends at once, poll a sensor before its time, and show its state.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use skopos_model::Value;

use skopos_term::Failure;

/// The longest request. The longest structured value, escaped, fits three times.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// The longest answer. A socket's buffer holds it at once, so that the agent never waits for a client.
pub const MAX_ANSWER_BYTES: usize = 128 * 1024;

/// Most outcomes of a request: with names of sixty bytes they fit into the longest request. The clients in
/// `clients/c/skopos_report.h` and `clients/python/skopos_shm/report.py` keep both bounds.
pub const MAX_OUTCOMES: usize = 256;

/// A sensor that was polled this recently is not polled again for a request.
pub(crate) const MIN_REFRESH: Duration = Duration::from_millis(100);

/// Timeout of a request to the agent. A tick of all sensors takes milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A request of a verb.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Publish a value; register its topic first if it is new.
    Publish {
        /// The topic, with or without the node.
        topic: String,
        /// The value as typed.
        value: String,
        /// The name of its type.
        value_type: String,
        /// Its unit.
        unit: String,
        /// The name of its kind.
        kind: String,
    },
    /// Remove a published topic.
    Remove {
        /// The topic, with or without the node.
        topic: String,
    },
    /// Poll the sensor of this topic now.
    Refresh {
        /// The topic in full.
        topic: String,
    },
    /// Show the state of all sensors.
    Status,
    /// Show a page of vertices of the graph, in the order of topics.
    Vertices {
        /// The pattern of their topics.
        pattern: String,
        /// True to leave out facts.
        insights_only: bool,
        /// The last topic of the previous page.
        after: Option<String>,
    },
    /// Show the state of each built-in insight.
    Definitions,
    /// Show a page of current findings, in the order of topics and then rules.
    Findings {
        /// Topic and rule of the last finding of the previous page.
        after: Option<(String, String)>,
    },
    /// Show a page of a ranking, in the order of places.
    Rank {
        /// The profile; the only one without a name.
        profile: Option<String>,
        /// The candidates to show; all without a name.
        #[serde(default)]
        candidates: Vec<String>,
        /// The place of the last candidate of the previous page.
        #[serde(default)]
        after: usize,
    },
    /// Take outcomes of requests that candidates served, at most [`MAX_OUTCOMES`].
    Outcomes {
        /// The profile; the only one without a name.
        profile: Option<String>,
        /// The outcomes.
        outcomes: Vec<OutcomeReport>,
    },
}

/// An answer of the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request succeeded.
    Done {
        /// The topic in full.
        topic: String,
    },
    /// The state of all sensors.
    Status(Status),
    /// A page of vertices of the graph.
    Vertices {
        /// The vertices.
        vertices: Vec<VertexStatus>,
        /// True if another page follows.
        more: bool,
    },
    /// The built-in insights.
    Definitions {
        /// The state of each.
        definitions: Vec<DefinitionStatus>,
        /// The first insights that could not be added to the graph.
        refused: Vec<RefusedInput>,
        /// Number of all insights that could not be added.
        refused_total: usize,
    },
    /// A page of current findings, in the form of their events.
    Findings {
        /// The findings.
        findings: Vec<serde_json::Value>,
        /// Number of findings on all pages.
        total: usize,
        /// True if another page follows.
        more: bool,
    },
    /// A page of a ranking.
    Rank(Box<RankPage>),
    /// Outcomes were taken.
    Outcomes {
        /// Number of outcomes that were taken.
        taken: usize,
        /// Number of outcomes that were refused.
        refused: usize,
        /// The reason of the first refusal.
        first_refusal: Option<String>,
    },
    /// The request failed.
    Refused {
        /// The reason.
        error: String,
        /// A hint for the user.
        hint: Option<String>,
    },
}

/// The state of the agent's sensors.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Status {
    /// The node's name.
    pub node: String,
    /// The agent's version.
    pub version: String,
    /// The state of each sensor.
    pub sensors: Vec<SensorStatus>,
    /// The families that are not sensed, with the reasons.
    pub skips: Vec<SkipStatus>,
    /// Number of facts that users published.
    pub user_facts: usize,
    /// Number of attempts to register a fact that were refused so far.
    pub facts_refused: u64,
}

/// The state of a sensor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SensorStatus {
    /// The name of its family.
    pub name: String,
    /// Number of registered facts.
    pub facts: usize,
    /// Number of polls.
    pub polls: u64,
    /// Time between two polls.
    pub interval_seconds: f64,
    /// The policy that chooses this time.
    pub policy: String,
    /// Ratio of this time to the wanted one: more than 1 if the budget stretches it.
    pub stretch: f64,
    /// Processor time of the latest poll.
    pub poll_seconds: f64,
    /// The error of the latest poll.
    pub error: Option<String>,
}

/// The state of a vertex of the graph.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VertexStatus {
    /// Its topic.
    pub topic: String,
    /// The unit of its values.
    pub unit: String,
    /// The name of its kind.
    pub kind: String,
    /// True for an insight, false for a fact.
    pub is_insight: bool,
    /// The name of an insight.
    pub name: Option<String>,
    /// The formula of an insight.
    pub formula: Option<String>,
    /// Its value; null if it is unknown.
    pub value: serde_json::Value,
    /// The reason why it is unknown.
    pub unknown: Option<String>,
    /// The time since which this value holds.
    pub since_ns: i64,
    /// The time of the last poll of its source; of an insight, that of its oldest needed input.
    pub checked_at_ns: i64,
    /// The topic of that input.
    pub oldest: Option<String>,
    /// The inputs of an insight.
    pub inputs: Vec<InputStatus>,
    /// Topics that match an input and are refused, with the reasons.
    pub refused: Vec<RefusedInput>,
    /// Topics of the first insights that are computed from it.
    pub dependents: Vec<String>,
    /// Number of insights that are computed from it.
    pub dependents_total: usize,
    /// Number of insights on the longest path up to it.
    pub height: u8,
    /// Number of evaluations.
    pub runs: u64,
    /// Duration of the latest evaluation.
    pub last_ns: u64,
    /// Duration of all evaluations.
    pub total_ns: u64,
    /// Number of changes of its value.
    pub changes: u64,
    /// Recent rate of changes.
    pub changes_per_second: Option<f64>,
}

/// The state of an input of an insight.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InputStatus {
    /// Its name in the formula.
    pub name: String,
    /// The pattern of its topics.
    pub pattern: String,
    /// True if the insight is unknown without it.
    pub needed: bool,
    /// The reason why no topic matches.
    pub missing: Option<String>,
    /// The first topics that match.
    pub matched: Vec<String>,
    /// Number of topics that match.
    pub matched_total: usize,
}

/// A topic that an insight refuses, or an insight that the graph refuses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RefusedInput {
    /// The topic.
    pub topic: String,
    /// The reason.
    pub reason: String,
}

/// The state of a built-in insight.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DefinitionStatus {
    /// Its name.
    pub name: String,
    /// Its row in Table 1 of the Apollo paper.
    pub row: u8,
    /// A sentence about its meaning.
    pub help: String,
    /// The unit of its values.
    pub unit: String,
    /// Its formula.
    pub formula: String,
    /// The source of the formula.
    pub source: String,
    /// Number of its vertices.
    pub vertices: usize,
    /// Number of vertices for which there is no room.
    pub refused: usize,
    /// The reason why it has no vertex.
    pub why_none: Option<String>,
}

/// The outcome of a request that a candidate served.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeReport {
    /// The candidate.
    pub candidate: String,
    /// Latency in seconds, or the time until the request failed.
    pub seconds: f64,
    /// True if the request failed.
    #[serde(default)]
    pub failed: bool,
    /// Probability with which the client chose the candidate, above 0 and at most 1, for the recording; by default the
    /// weight of the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
}

/// A page of a ranking.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankPage {
    /// The node that ranks.
    pub node: String,
    /// The profile.
    pub profile: String,
    /// The method of its scores.
    pub method: String,
    /// Time of the ranking.
    pub at_ns: i64,
    /// Time after it for which it is valid.
    pub valid_seconds: f64,
    /// Processor time of the ranking.
    pub rank_seconds: f64,
    /// True if the order is that of the configuration, because nothing recent is known.
    pub native: bool,
    /// Number of outcomes that were taken.
    pub outcomes_total: u64,
    /// Number of outcomes that were refused.
    pub outcomes_refused_total: u64,
    /// Number of outcomes that were recorded.
    pub recorded_total: u64,
    /// Number of outcomes that were not recorded.
    pub record_left_out_total: u64,
    /// The reason why the last outcome could not be recorded.
    pub record_error: Option<String>,
    /// The metrics of the profile.
    pub metrics: Vec<RankMetric>,
    /// Number of candidates on all pages.
    pub candidates_total: usize,
    /// The candidates, from the best to the worst.
    pub candidates: Vec<RankedCandidate>,
    /// True if another page follows.
    pub more: bool,
}

/// A metric of a ranking.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankMetric {
    /// Its name.
    pub name: String,
    /// Its weight; the weights sum to 1.
    pub weight: f64,
    /// Share of requests that would go elsewhere without it, 0 to 1.
    pub utility: f64,
    /// True if its collection is relaxed, because its utility is nil.
    pub relaxed: bool,
}

/// A candidate of a ranking.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankedCandidate {
    /// Its name.
    pub candidate: String,
    /// The node with its facts.
    pub node: String,
    /// Its place, from 1.
    pub place: usize,
    /// Share of requests.
    pub weight: f64,
    /// The sum of its parts: 0 is the best, 1 twice as bad.
    pub score: f64,
    /// Mean trust of its values, 0 to 1.
    pub trust: f64,
    /// Fewest samples behind a value that counts.
    pub samples: u32,
    /// Age of the oldest value that counts; null if no value does.
    pub age_seconds: Option<f64>,
    /// The state: known, flapping, contradicted, unknown or excluded.
    pub state: String,
    /// The largest parts of its score.
    pub reasons: Vec<String>,
    /// The parts of its score, in the order in which they sum to it.
    pub parts: Vec<RankPart>,
}

/// A part of a score.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankPart {
    /// The name of a metric, or of a rule.
    pub name: String,
    /// The part; `held` can be negative.
    pub part: f64,
    /// The value of the metric, if it counts.
    pub value: Option<f64>,
    /// The fault of the value.
    pub fault: Option<String>,
}

/// A family of facts, or a part of one, that is not sensed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SkipStatus {
    /// The family, or the part of a family.
    pub what: String,
    /// The reason.
    pub reason: String,
}

/// Returns the path of the agent's socket in `dir`.
pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join("agent.sock")
}

/// Makes the failure of a request that did not reach the agent, with a hint for each cause.
fn unreachable_agent(path: &Path, e: &std::io::Error) -> Failure {
    use std::io::ErrorKind::{PermissionDenied, TimedOut, WouldBlock};
    let at = path.display();
    match e.kind() {
        WouldBlock | TimedOut => Failure::new(format!(
            "the agent at {at} does not answer; it may still carry out the request later"
        ))
        .hint("the process lives but does not respond: `skopos doctor` says more"),
        PermissionDenied => Failure::new(format!("the agent at {at} belongs to another user"))
            .because(e)
            .hint("start your own agent with `skopos agent`; it runs beside the other"),
        _ => Failure::new(format!("no agent answers at {at}"))
            .because(e)
            .hint("start an agent with `skopos up` or `skopos agent`"),
    }
}

/// Sends a request to the agent of the runtime directory `dir`, and returns its answer.
///
/// # Errors
/// No agent listens there, it does not answer in time, or it refuses the request.
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
        let text =
            format!("the agent's answer is incomplete: it ends after {} bytes", answer.len());
        return Err(Failure::new(text).hint("try again; `skopos doctor` says more"));
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

/// The hint for a value that is not a finite number.
pub const NOT_FINITE_HINT: &str =
    "publish nothing while there is no value, or remove the fact with --remove";

/// Returns an error if the value is not finite: JSON cannot hold it, and insights cannot compute with it.
pub fn not_finite(value: &Value) -> Option<String> {
    match value {
        Value::F64(number) if !number.is_finite() => {
            Some(format!("`{number}` is not a finite number"))
        }
        _ => None,
    }
}
