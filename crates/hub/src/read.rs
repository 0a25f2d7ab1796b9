//! Latest values of topics and patterns, without SQL: for `skopos get` and for HTTP.
//!
//! What is older than is wanted is measured first: by the agent of this machine, or by the node that it is
//! of. Nodes are asked side by side, each for one topic after the other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use skopos_model::{Timestamp, Topic, unpoisoned};
use skopos_query::{Row, Source, Wanted};
use skopos_wire::{Error, Refresher};

use crate::inside::Inside;
use crate::topics::{json, nearest, reading, wanted};
use skopos_agent::fresh::{Freshness, MaxAge, Refusal, by_agent};
use skopos_term::Failure;
use skopos_term::reading::ReadingJson;

/// How long whoever asks waits for all that is measured. What comes later is in the next answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long one node may take for one topic.
const NODE_PATIENCE: Duration = Duration::from_secs(3);

/// Nodes that are asked at one time for one answer, each by a thread that waits.
const MAX_NODES_AT_ONCE: usize = 16;

/// Answers for which something is measured at one time. For more, nothing is.
const MAX_ANSWERS_AT_ONCE: usize = 8;

/// `Readings` in `docs/openapi.json`, and what `skopos get` is answered.
#[derive(Serialize)]
pub struct Readings {
    readings: Vec<ReadingJson>,
    /// Topics without a value that may be shown, each with its reason.
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Refused {
    topic: String,
    reason: String,
}

/// Why there is no answer at all.
pub enum Unread {
    /// What was typed is no topic.
    Wrong(Failure),
    /// Nothing matches.
    Nothing(Failure),
}

impl From<Failure> for Unread {
    fn from(failure: Failure) -> Self {
        Self::Wrong(failure)
    }
}

/// Has facts measured: those of this machine by its agent, others by their nodes.
pub struct Measuring {
    /// Of the agent.
    dir: PathBuf,
    refresher: Option<Refresher>,
    at_work: AtomicUsize,
}

impl Measuring {
    pub fn new(dir: PathBuf, refresher: Option<Refresher>) -> Self {
        Self { dir, refresher, at_work: AtomicUsize::new(0) }
    }

    fn measure(&self, topic: &Topic, is_here: bool, until: Instant) -> Result<(), Refusal> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::Source("there was no time left to have it measured".to_owned()));
        }
        match &self.refresher {
            _ if is_here => by_agent(&self.dir, topic),
            None => Err(Refusal::Topic("this hub follows no other nodes".to_owned())),
            Some(refresher) => {
                refresher.refresh(topic, left.min(NODE_PATIENCE)).map_err(|e| match e {
                    Error::Refused(_) | Error::NotMirrored(_) => Refusal::Topic(e.to_string()),
                    _ => Refusal::Source(e.to_string()),
                })
            }
        }
    }
}

/// What is known of a topic: nothing before it has a value.
type Found = Option<(ReadingJson, Freshness)>;

/// Reads what these texts stand for; with `max_age`, what is older is measured or refused. Then it may wait.
pub fn read(
    inside: &Inside,
    texts: &[String],
    max_age: Option<Duration>,
) -> Result<Readings, Unread> {
    let source: &dyn Source = &*inside.source;
    // Each topic once, in order.
    let mut found: BTreeMap<Topic, Found> = BTreeMap::new();
    let mut missing = Vec::new();
    for text in texts {
        let Some(pattern) = reading(source, text)? else {
            missing.push(text);
            continue;
        };
        let wanted = wanted(&pattern);
        source.topics(&wanted, &mut |described| {
            if pattern.matches(described.topic) {
                found.entry(described.topic.clone()).or_insert(None);
            }
        });
        let now = source.now();
        source.latest(&wanted, &mut |row: &Row<'_>| {
            if pattern.matches(row.of.topic) {
                found.insert(row.of.topic.clone(), Some((json(row, now), looked(row, now))));
            }
        });
    }
    if let (Some(text), true) = (missing.first(), found.is_empty()) {
        let failure = Failure::no(format!("no topic matches `{text}`"));
        return Err(Unread::Nothing(match nearest(source, text) {
            Some(topic) => failure.hint(format!("did you mean `{topic}`?")),
            None => failure.hint("`SELECT topic FROM topics` shows every topic"),
        }));
    }
    let nothing = |text: &&String| {
        let reason = "no topic matches".to_owned();
        Refused { topic: (*text).clone(), reason }
    };
    let mut all = Readings { readings: Vec::new(), refused: missing.iter().map(nothing).collect() };
    for (topic, reading) in judged(inside, found, max_age) {
        match reading {
            Ok(reading) => all.readings.push(reading),
            Err(reason) => all.refused.push(Refused { topic: topic.to_string(), reason }),
        }
    }
    Ok(all)
}

fn looked(row: &Row<'_>, now: Timestamp) -> Freshness {
    Freshness { age: row.age(now), checked_at: row.checked_at }
}

type Judged = BTreeMap<Topic, Result<ReadingJson, String>>;

/// What may be shown, and why others may not.
fn judged(inside: &Inside, found: BTreeMap<Topic, Found>, max_age: Option<Duration>) -> Judged {
    let mut judged = Judged::new();
    let mut old: BTreeMap<String, Vec<Topic>> = BTreeMap::new();
    let allowed = max_age.map(new_max_age);
    for (topic, found) in found {
        match found {
            None => drop(judged.insert(topic, Err("no value yet".to_owned()))),
            Some((_, looked))
                if allowed.as_ref().is_some_and(|allowed| !allowed.allows(looked)) =>
            {
                old.entry(topic.node().to_owned()).or_default().push(topic);
            }
            Some((reading, _)) => drop(judged.insert(topic, Ok(reading))),
        }
    }
    if let (Some(most), false) = (max_age, old.is_empty()) {
        judged.extend(measured(inside, old, most));
    }
    judged
}

fn new_max_age(most: Duration) -> MaxAge {
    MaxAge::new(most, "max_age")
}

/// Has topics measured, some nodes at a time.
fn measured(inside: &Inside, old: BTreeMap<String, Vec<Topic>>, most: Duration) -> Judged {
    let (until, at_work) = (Instant::now() + PATIENCE, &inside.measuring.at_work);
    let is_busy = at_work.fetch_add(1, Ordering::Relaxed) >= MAX_ANSWERS_AT_ONCE;
    let threads = if is_busy { 1 } else { old.len().min(MAX_NODES_AT_ONCE) };
    let nodes = Mutex::new(old.into_iter());
    let work = || {
        let mut judged = Judged::new();
        loop {
            // The lock is not held while a node is asked.
            let next = unpoisoned(nodes.lock()).next();
            let Some((node, topics)) = next else { return judged };
            let mut allowed = new_max_age(most);
            for topic in topics {
                let measure = || match is_busy {
                    true => Err(Refusal::Source(
                        "too much is measured for others; ask again".to_owned(),
                    )),
                    false => {
                        let is_here = inside.source.is_here(&node);
                        inside.measuring.measure(&topic, is_here, until)
                    }
                };
                let reading = allowed.read(&node, || look(inside, &topic), measure);
                judged.insert(topic, reading);
            }
        }
    };
    let judged = std::thread::scope(|scope| {
        // One thread is this one; where no other can be started it does all by itself.
        let start =
            |_| std::thread::Builder::new().name("measure".to_owned()).spawn_scoped(scope, work);
        let others: Vec<_> = (1..threads).map_while(|at| start(at).ok()).collect();
        let mut judged = work();
        judged.extend(others.into_iter().filter_map(|other| other.join().ok()).flatten());
        judged
    });
    at_work.fetch_sub(1, Ordering::Relaxed);
    judged
}

/// One topic as it is now.
fn look(inside: &Inside, topic: &Topic) -> Result<(ReadingJson, Freshness), String> {
    let (source, mut found) = (&inside.source, None);
    let now = source.now();
    source.latest(&Wanted::These(vec![topic.clone()]), &mut |row| {
        found = Some((json(row, now), looked(row, now)));
    });
    found.ok_or_else(|| "it is gone".to_owned())
}
