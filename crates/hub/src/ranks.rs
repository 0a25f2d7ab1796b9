//! Ranks that agents publish, put together from their facts: for the table `ranks` and for HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use skopos_model::{Origin, Timestamp, Topic, Value, schema};
use skopos_query::{Row, Source, TopicFilter};

/// The second segment of the topics of ranks.
pub(crate) const SEGMENT: &str = "rank";

/// The second segment of the topics of profiles.
const PROFILES: &str = "rank_profile";

/// Names of the states of a candidate, by the value of the fact `state`.
const STATES: [&str; 5] = ["known", "flapping", "contradicted", "unknown", "excluded"];

/// The rank of a candidate, as the agent of a node published it last. A part that is missing was not received.
#[derive(Clone, Debug, PartialEq)]
pub struct Rank {
    /// The node whose agent ranks.
    pub node: String,
    /// The profile.
    pub profile: String,
    /// The candidate.
    pub candidate: String,
    /// Place, from 1 for the best.
    pub place: Option<u64>,
    /// Share of requests, 0 to 1.
    pub weight: Option<f64>,
    /// 0 for the best in everything, 1 for twice as bad.
    pub score: Option<f64>,
    /// Mean trust of the values, 0 to 1.
    pub trust: Option<f64>,
    /// Fewest samples behind a value that counts.
    pub samples: Option<u64>,
    /// Age of the oldest value that counts in seconds, when it was ranked; `None` if no value does.
    pub age_seconds: Option<f64>,
    /// The name of the state.
    pub state: Option<&'static str>,
    /// Time of the last change of a fact.
    pub time: Timestamp,
    /// Time of the last ranking.
    pub checked_at: Timestamp,
    /// Time since the last ranking, by the clock of the hub.
    pub age: Duration,
}

impl Rank {
    fn new(node: &str, profile: &str, candidate: &str) -> Self {
        Self {
            node: node.to_owned(),
            profile: profile.to_owned(),
            candidate: candidate.to_owned(),
            place: None,
            weight: None,
            score: None,
            trust: None,
            samples: None,
            age_seconds: None,
            state: None,
            time: Timestamp::from_nanos(i64::MIN),
            checked_at: Timestamp::from_nanos(i64::MIN),
            age: Duration::MAX,
        }
    }

    fn take(&mut self, row: &Row<'_>, now: Timestamp) {
        self.time = self.time.max(row.sample.time);
        self.checked_at = self.checked_at.max(row.checked_at);
        self.age = self.age.min(row.age(now));
        let number = match row.sample.origin {
            Origin::Unknown => None,
            _ => row.sample.value.as_f64(),
        };
        let count = number.map(|number| number as u64);
        match row.of.topic.metric() {
            "place" => self.place = count,
            "weight" => self.weight = number,
            "score" => self.score = number,
            "trust" => self.trust = number,
            "samples" => self.samples = count,
            "age_seconds" => self.age_seconds = number,
            "state" => {
                let at = count.and_then(|count| usize::try_from(count).ok());
                self.state = at.and_then(|at| STATES.get(at).copied());
            }
            _ => {}
        }
    }
}

/// Returns the ranks whose topics the filter selects, by node, profile and place.
pub(crate) fn ranks(source: &dyn Source, topics: &TopicFilter) -> Vec<Rank> {
    let now = source.now();
    let mut found: BTreeMap<(String, String), Rank> = BTreeMap::new();
    source.latest(topics.wanted(), &mut |row: &Row<'_>| {
        let topic = row.of.topic;
        let Some((profile, candidate)) = names(topic).filter(|_| topics.selects(topic)) else {
            return;
        };
        let key = (topic.node().to_owned(), format!("{profile}@{candidate}"));
        let new = || Rank::new(topic.node(), profile, candidate);
        found.entry(key).or_insert_with(new).take(row, now);
    });
    let mut ranks: Vec<Rank> = found.into_values().collect();
    for rank in &mut ranks {
        // The fact keeps its last value while nothing is known.
        if rank.trust == Some(0.0) {
            rank.age_seconds = None;
        }
    }
    let key = |rank: &Rank| (rank.node.clone(), rank.profile.clone(), rank.place);
    ranks.sort_by_cached_key(key);
    ranks
}

/// Returns the profile and the candidate of a fact of the family `rank`.
fn names(topic: &Topic) -> Option<(&str, &str)> {
    let (family, _) = schema::lookup_in_family(topic)?;
    if family.name != schema::rank::FAMILY.name {
        return None;
    }
    topic.segments().nth(2)?.split_once('@')
}

/// The last ranking of a profile by the agent of a node.
#[derive(Clone, Debug)]
pub struct RankedProfile {
    /// The node whose agent ranks.
    pub node: String,
    /// Seconds after a ranking for which it is valid.
    pub valid_seconds: Option<f64>,
    /// True if the order is that of the configuration, because nothing recent is known.
    pub is_native: bool,
    /// The candidates, by their places.
    pub ranks: Vec<Rank>,
    /// The reasons of candidates, as far as the agent has room for them.
    pub reasons: serde_json::Value,
}

/// Returns the rankings of `profile` by each node, or by `node` alone, in the order of nodes.
pub fn ranked(source: &dyn Source, profile: &str, node: Option<&str>) -> Vec<RankedProfile> {
    let all = || node.map_or_else(TopicFilter::all, |node| TopicFilter::of_nodes([node]));
    let mut found: BTreeMap<String, RankedProfile> = BTreeMap::new();
    for rank in ranks(source, &all().below(SEGMENT)) {
        if rank.profile == profile {
            let of_node = found.entry(rank.node.clone()).or_insert_with(|| RankedProfile {
                node: rank.node.clone(),
                valid_seconds: None,
                is_native: false,
                ranks: Vec::new(),
                reasons: serde_json::Value::Null,
            });
            of_node.ranks.push(rank);
        }
    }
    let topics = all().below(PROFILES);
    source.latest(topics.wanted(), &mut |row: &Row<'_>| {
        let topic = row.of.topic;
        if !topics.selects(topic) || topic.segments().nth(2) != Some(profile) {
            return;
        }
        let Some(of_node) = found.get_mut(topic.node()) else { return };
        match (topic.metric(), &row.sample.value) {
            ("valid_seconds", value) => of_node.valid_seconds = value.as_f64(),
            ("native", value) => of_node.is_native = value.as_f64() == Some(1.0),
            ("reasons", Value::Structured(reasons)) => {
                of_node.reasons = reasons.as_json().clone();
            }
            _ => {}
        }
    });
    found.into_values().collect()
}
