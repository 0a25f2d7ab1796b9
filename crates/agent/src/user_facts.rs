//! Facts that scripts publish through the agent, because they end before anybody could read them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use skopos_model::{Kind, Origin, Sample, Topic, Unit, ValueType};
use skopos_shm::{Host, Publisher, VertexSpec, VertexWriter};

use crate::control::{Answer, NO_NUMBER_HINT, no_number};
use crate::insights::{Followed, Insights};
use crate::names::SEGMENT_NAME;

/// How many there may be: a quarter of the segment's entries, so that a script that makes up a new
/// name each time cannot push out the sensors' facts.
const MAX_USER_FACTS: usize = 4096;

/// How many structured ones there ever may be: they take 20 KiB each, numbers 4 KiB, and memory that
/// was one is kept for the next one. So user facts never take more than 36 MiB of the segment's 128.
const MAX_STRUCTURED_FACTS: usize = 1024;

/// The facts by topic.
pub(crate) struct UserFacts {
    dir: PathBuf,
    facts: HashMap<Topic, UserFact>,
}

struct UserFact {
    writer: VertexWriter,
    value_type: ValueType,
    unit: Unit,
    kind: Kind,
    /// Its place in the graph; `None` if there is no room.
    followed: Option<Followed>,
}

impl UserFacts {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.into(), facts: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.facts.len()
    }

    /// Publishes `[value, type, unit, kind]` as they were typed.
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
        if let Some(why) = no_number(&value) {
            return Err(refused(why, NO_NUMBER_HINT));
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
                "give the same --type, --unit and --kind, or take it away first with --remove",
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
                format!("{MAX_USER_FACTS} facts are published already, which is the most"),
                "take some away with `skopos publish TOPIC --remove`",
            ));
        }
        let is_structured = |f: &UserFact| f.value_type == ValueType::Structured;
        if value_type == ValueType::Structured
            && self.facts.values().filter(|f| is_structured(f)).count() >= MAX_STRUCTURED_FACTS
        {
            return Err(refused(
                format!("{MAX_STRUCTURED_FACTS} structured facts are published already, the most"),
                "publish numbers, or take some away with `skopos publish TOPIC --remove`",
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
        let spec = VertexSpec::new(topic.clone(), value_type).unit(unit).kind(kind);
        let writer = publisher.register(spec).map_err(|e| match e {
            skopos_shm::Error::Duplicate(_) => {
                refused(format!("`{topic}` is {}", owner(topic)), "choose another topic")
            }
            e => refused(e, "`skopos doctor` looks at the memory"),
        })?;
        let followed = insights.follow(topic.clone(), unit, kind, publisher);
        self.facts.insert(topic.clone(), UserFact { writer, value_type, unit, kind, followed });
        Ok(())
    }

    /// Takes a fact away.
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
                format!("nobody published `{topic}` through this agent"),
                "only a published fact can be taken away; `skopos ls` shows what there is",
            )),
        }
    }
}

/// Whose a topic is that the agent has, and no user published.
fn owner(topic: &Topic) -> &'static str {
    match topic.segments().nth(1) {
        Some("insight") => "an insight: it is computed here",
        Some("anomaly") => "where the events of an anomaly rule appear",
        Some("predicted") => "a prediction: it is computed here",
        _ => "measured by a sensor",
    }
}

fn refused(error: impl ToString, hint: &str) -> Answer {
    Answer::Refused { error: error.to_string(), hint: Some(hint.to_owned()) }
}
