//! Facts that scripts publish through the agent, because a segment ends with its process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use skopos_model::{Kind, Origin, Sample, Topic, Unit, ValueType};
use skopos_shm::{Host, Publisher, VertexSpec, VertexWriter};

use crate::control::{Answer, NOT_FINITE_HINT, not_finite};
use crate::insights::{Insights, TrackedFact};
use crate::names::SEGMENT_NAME;

/// Largest number of user facts: a quarter of the segment's entries, so that a script with ever new topics
/// leaves room for the facts of sensors.
const MAX_USER_FACTS: usize = 4096;

/// Largest number of structured user facts. A structured fact takes 20 KiB and a number 4 KiB, and the memory of
/// a removed fact serves the next of its type, so user facts take at most 36 MiB of the segment's 128.
const MAX_STRUCTURED_FACTS: usize = 1024;

/// First segments, after the node, of topics that only the agent publishes. Without this rule a user fact could
/// pass for one of them, and an insight that is loaded later would find its topic taken.
const RESERVED: [&str; 6] = ["self", "insight", "anomaly", "predicted", "rank", "rank_profile"];

/// The user facts by topic.
pub(crate) struct UserFacts {
    dir: PathBuf,
    facts: HashMap<Topic, UserFact>,
}

struct UserFact {
    writer: VertexWriter,
    value_type: ValueType,
    unit: Unit,
    kind: Kind,
    /// Its vertex in the graph; `None` if the graph has no room.
    followed: Option<TrackedFact>,
}

impl UserFacts {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.into(), facts: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.facts.len()
    }

    /// Publishes a value. The array holds value, type, unit and kind as typed.
    pub(crate) fn publish(
        &mut self,
        publisher: &Publisher,
        insights: &mut Insights,
        topic: Topic,
        [value, value_type, unit, kind]: [&str; 4],
    ) -> Result<Answer, Answer> {
        let wrong = |e: skopos_model::Error| refused(e, "`skopos publish --help` shows how");
        let value_type: ValueType = value_type.parse().map_err(wrong)?;
        let unit: Unit = unit.parse().map_err(wrong)?;
        let kind: Kind = kind.parse().map_err(wrong)?;
        let value = value_type.parse_value(value).map_err(wrong)?;
        if let Some(why) = not_finite(&value) {
            return Err(refused(why, NOT_FINITE_HINT));
        }
        if !self.facts.contains_key(&topic) {
            self.register((publisher, insights), &topic, (value_type, unit, kind))?;
        }
        let Some(fact) = self.facts.get(&topic) else {
            return Err(refused("the fact is gone", "publish it again"));
        };
        if (fact.value_type, fact.unit, fact.kind) != (value_type, unit, kind) {
            let unit =
                if fact.unit == Unit::NONE { "no unit".into() } else { fact.unit.to_string() };
            return Err(refused(
                format!(
                    "`{topic}` is a {} of type {} with {unit} already",
                    fact.kind, fact.value_type
                ),
                "give the same --type, --unit and --kind, or remove it first with --remove",
            ));
        }
        let sample = Sample { time: skopos_shm::now(), value, origin: Origin::Measured };
        if let Some(followed) = &fact.followed {
            insights.set(followed, sample.time, &sample.value);
        }
        match fact.writer.publish_sample(&sample) {
            Ok(_) => Ok(Answer::Done { topic: topic.to_string() }),
            Err(e) => Err(refused(e, "publish it again")),
        }
    }

    fn register(
        &mut self,
        (publisher, insights): (&Publisher, &mut Insights),
        topic: &Topic,
        (value_type, unit, kind): (ValueType, Unit, Kind),
    ) -> Result<(), Answer> {
        if self.facts.len() >= MAX_USER_FACTS {
            return Err(refused(
                format!("{MAX_USER_FACTS} facts are published already, which is the limit"),
                "remove some with `skopos publish TOPIC --remove`",
            ));
        }
        let is_structured = |f: &UserFact| f.value_type == ValueType::Structured;
        if value_type == ValueType::Structured
            && self.facts.values().filter(|f| is_structured(f)).count() >= MAX_STRUCTURED_FACTS
        {
            return Err(refused(
                format!(
                    "{MAX_STRUCTURED_FACTS} structured facts are published already, which is the limit"
                ),
                "publish numbers, or remove some with `skopos publish TOPIC --remove`",
            ));
        }
        let elsewhere = Host::open_dirs(vec![self.dir.clone()]).and_then(|h| h.find(topic));
        if let Ok(vertex) = elsewhere
            && vertex.segment().name() != SEGMENT_NAME
        {
            let (name, pid) = (vertex.segment().name(), vertex.segment().pid());
            return Err(refused(
                format!("`{topic}` is published by `{name}`, process {pid}"),
                "choose another topic",
            ));
        }
        if let Some(reserved) = topic.segments().nth(1).filter(|s| RESERVED.contains(s)) {
            return Err(refused(
                format!("only the agent publishes topics under `{reserved}/`"),
                "choose another topic, such as one under `app/`",
            ));
        }
        let spec = VertexSpec::new(topic.clone(), value_type).unit(unit).kind(kind);
        let writer = publisher.register(spec).map_err(|e| match e {
            skopos_shm::Error::Duplicate(_) => {
                refused(format!("`{topic}` is measured by a sensor"), "choose another topic")
            }
            e => refused(e, "`skopos doctor` checks the memory"),
        })?;
        let followed = insights.follow(topic.clone(), unit, kind, publisher);
        self.facts.insert(topic.clone(), UserFact { writer, value_type, unit, kind, followed });
        Ok(())
    }

    /// Removes a fact.
    pub(crate) fn remove(
        &mut self,
        publisher: &Publisher,
        insights: &mut Insights,
        topic: &Topic,
    ) -> Result<Answer, Answer> {
        match self.facts.remove(topic) {
            Some(fact) => {
                publisher.unregister(&fact.writer);
                if let Some(followed) = fact.followed {
                    insights.unfollow(followed, publisher);
                }
                Ok(Answer::Done { topic: topic.to_string() })
            }
            None => Err(refused(
                format!("`{topic}` was not published through this agent"),
                "only a published fact can be removed; `skopos ls` shows all topics",
            )),
        }
    }
}

fn refused(error: impl ToString, hint: &str) -> Answer {
    Answer::Refused { error: error.to_string(), hint: Some(hint.to_owned()) }
}
