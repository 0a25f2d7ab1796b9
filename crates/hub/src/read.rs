//! Latest values of topics and patterns, without SQL, for `skopos get` and for HTTP.
//!
//! Values that are older than the client allows are measured first: by the agent of this machine, or by their
//! node. Nodes measure in parallel, each one topic after another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use skopos_model::{Timestamp, Topic, unpoisoned};
use skopos_query::{Row, Source, Wanted};

use crate::backend::Backend;
use crate::topics::{json, nearest, resolve, wanted};
use skopos_agent::fresh::{Freshness, MaxAge, Refusal};
use skopos_term::Failure;
use skopos_term::reading::ReadingJson;

/// Maximum time that a client waits for measurements. Later values are in the next answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of nodes that measure at one time for one answer. A thread waits for each of them.
const MAX_NODES_AT_ONCE: usize = 16;

/// Maximum number of answers that wait for measurements at one time. Further answers get no measurements.
const MAX_ANSWERS_AT_ONCE: usize = 8;

/// Maximum number of topics of one answer: the facts of two hundred nodes.
const MAX_TOPICS: usize = 65_536;

/// Maximum time in which topics are looked up for one answer.
const LOOKUP_TIME: Duration = Duration::from_secs(2);

/// The answer to `skopos get` and to `GET /api/v1/get`: `Readings` in `docs/openapi.json`.
#[derive(Serialize)]
pub struct Readings {
    readings: Vec<ReadingJson>,
    /// Topics whose value is not shown, each with the reason.
    refused: Vec<RefusedTopic>,
}

#[derive(Serialize)]
struct RefusedTopic {
    topic: String,
    reason: String,
}

/// The reason why a request for latest values has no answer.
pub enum ReadError {
    /// A text is not a topic or a pattern.
    Invalid(Failure),
    /// No topic matches.
    NoMatch(Failure),
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        Self::Invalid(failure)
    }
}

/// The latest value of a topic; `None` if it has no value yet.
type Lookup = Option<(ReadingJson, Freshness)>;

/// Reads the latest values of the topics that `texts` name. With `max_age`, older values are measured or refused, and
/// the call may block.
///
/// # Errors
/// Fails if a text is not a topic or a pattern, or if no topic matches any text.
pub fn read(
    backend: &Backend,
    texts: &[String],
    max_age: Option<Duration>,
) -> Result<Readings, ReadError> {
    let source: &dyn Source = &*backend.source;
    // Each topic once, in order.
    let mut found: BTreeMap<Topic, Lookup> = BTreeMap::new();
    let (mut missing, mut known, begun) = (Vec::new(), BTreeSet::new(), Instant::now());
    for text in texts {
        let Some(pattern) = resolve(source, text)? else {
            missing.push(text);
            continue;
        };
        if !known.insert(pattern.as_str().to_owned()) {
            continue;
        }
        if begun.elapsed() > LOOKUP_TIME {
            return Err(too_many());
        }
        let wanted = wanted(&pattern);
        source.topics(&wanted, &mut |described| {
            if found.len() <= MAX_TOPICS && pattern.matches(described.topic) {
                found.entry(described.topic.clone()).or_insert(None);
            }
        });
        if found.len() > MAX_TOPICS {
            return Err(too_many());
        }
        let now = source.now();
        source.latest(&wanted, &mut |row: &Row<'_>| {
            // A topic that has come since is in the next answer.
            if found.contains_key(row.of.topic) {
                found.insert(row.of.topic.clone(), Some((json(row, now), looked(row, now))));
            }
        });
    }
    if let (Some(text), true) = (missing.first(), found.is_empty()) {
        let failure = Failure::no(format!("no topic matches `{text}`"));
        return Err(ReadError::NoMatch(match nearest(source, text) {
            Some(topic) => failure.hint(format!("did you mean `{topic}`?")),
            None => failure.hint("the statement `SELECT topic FROM topics` lists every topic"),
        }));
    }
    let no_match = |text: &&String| {
        let reason = "no topic matches".to_owned();
        RefusedTopic { topic: (*text).clone(), reason }
    };
    let refused = missing.iter().map(no_match).collect();
    let mut all = Readings { readings: Vec::new(), refused };
    for (topic, reading) in judge(backend, found, max_age) {
        match reading {
            Ok(reading) => {
                let reading = reading.with_reason(|| backend.source.insight_info(&topic).reason);
                all.readings.push(reading);
            }
            Err(reason) => all.refused.push(RefusedTopic { topic: topic.to_string(), reason }),
        }
    }
    Ok(all)
}

fn too_many() -> ReadError {
    let failure = Failure::no(format!("more than {MAX_TOPICS} topics match"));
    let hint = "ask for fewer, for example those of one node, or use SQL with a LIMIT";
    ReadError::Invalid(failure.hint(hint))
}

fn looked(row: &Row<'_>, now: Timestamp) -> Freshness {
    Freshness { age: row.age(now), checked_at: row.checked_at }
}

type Outcomes = BTreeMap<Topic, Result<ReadingJson, String>>;

/// Returns the values that may be shown, and a reason for each other topic.
fn judge(backend: &Backend, found: BTreeMap<Topic, Lookup>, max_age: Option<Duration>) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let mut old: BTreeMap<String, Vec<Topic>> = BTreeMap::new();
    let allowed = max_age.map(new_max_age);
    for (topic, found) in found {
        match found {
            None => drop(outcomes.insert(topic, Err("no value yet".to_owned()))),
            Some((_, looked))
                if allowed.as_ref().is_some_and(|allowed| !allowed.allows(looked)) =>
            {
                old.entry(topic.node().to_owned()).or_default().push(topic);
            }
            Some((reading, _)) => drop(outcomes.insert(topic, Ok(reading))),
        }
    }
    if let (Some(most), false) = (max_age, old.is_empty()) {
        outcomes.extend(measured(backend, old, most));
    }
    outcomes
}

fn new_max_age(most: Duration) -> MaxAge {
    MaxAge::new(most, "max_age")
}

/// Has topics measured, in parallel for several nodes.
fn measured(backend: &Backend, old: BTreeMap<String, Vec<Topic>>, most: Duration) -> Outcomes {
    let until = Instant::now() + TIMEOUT;
    let running = RunningMeasurement::new(&backend.measuring.running);
    let is_busy = running.number > MAX_ANSWERS_AT_ONCE;
    let threads = if is_busy { 1 } else { old.len().min(MAX_NODES_AT_ONCE) };
    let nodes = Mutex::new(old.into_iter());
    let work = || {
        let mut outcomes = Outcomes::new();
        loop {
            // The lock is released before the node is asked.
            let next = unpoisoned(nodes.lock()).next();
            let Some((node, topics)) = next else { return outcomes };
            let mut allowed = new_max_age(most);
            for topic in topics {
                let measure = || match is_busy {
                    true => Err(Refusal::Source(
                        "the hub measures for too many clients; ask again".to_owned(),
                    )),
                    false => {
                        let is_local = backend.source.is_local(&node);
                        backend.measuring.measure(&topic, is_local, until)
                    }
                };
                let reading = allowed.read(&node, || look(backend, &topic), measure);
                outcomes.insert(topic, reading);
            }
        }
    };
    let outcomes = std::thread::scope(|scope| {
        // This thread takes part. If no other can be started, it does all the work.
        let start =
            |_| std::thread::Builder::new().name("measure".to_owned()).spawn_scoped(scope, work);
        let others: Vec<_> = (1..threads).map_while(|at| start(at).ok()).collect();
        let mut outcomes = work();
        outcomes.extend(others.into_iter().filter_map(|other| other.join().ok()).flatten());
        outcomes
    });
    drop(running);
    outcomes
}

/// Counts an answer that waits for measurements until it is dropped, also by a panic.
struct RunningMeasurement<'c> {
    count: &'c AtomicUsize,
    /// Its number among those that run.
    number: usize,
}

impl<'c> RunningMeasurement<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        Self { count, number: count.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for RunningMeasurement<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads one topic again.
fn look(backend: &Backend, topic: &Topic) -> Result<(ReadingJson, Freshness), String> {
    let (source, mut found) = (&backend.source, None);
    let now = source.now();
    source.latest(&Wanted::These(vec![topic.clone()]), &mut |row| {
        found = Some((json(row, now), looked(row, now)));
    });
    found.ok_or_else(|| "the topic is gone".to_owned())
}
