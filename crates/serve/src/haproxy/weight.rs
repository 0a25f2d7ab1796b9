//! The weight of a server, from the facts that the ranks of a profile are published as.

use std::collections::BTreeMap;
use std::time::Duration;

use skopos_model::{Topic, Value};
use skopos_query::{Row, Source, Wanted};

/// The family of the facts of a candidate, and that of the facts of a profile.
const RANK: &str = "rank";
const PROFILE: &str = "rank_profile";

/// The value of `state` of a candidate that the profile excludes.
const EXCLUDED: f64 = 4.0;

/// The candidate that HAProxy asks about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    node: Option<String>,
    profile: String,
    candidate: String,
}

impl Asked {
    /// Reads `PROFILE/CANDIDATE` or `NODE/PROFILE/CANDIDATE`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let parts: Vec<&str> = line.split('/').collect();
        let (node, profile, candidate) = match parts.as_slice() {
            [profile, candidate] => (None, *profile, *candidate),
            [node, profile, candidate] => (Some(*node), *profile, *candidate),
            _ => return None,
        };
        let node = node.map(str::to_owned);
        let asked = Self { node, profile: profile.to_owned(), candidate: candidate.to_owned() };
        // Names that cannot be in a topic are not looked for.
        let is_name = |name: &str| !name.is_empty() && !name.contains('@');
        let is_valid = is_name(profile) && is_name(candidate);
        let topic = asked.node.as_deref().unwrap_or("node");
        let topic = format!("{topic}/{RANK}/{profile}@{candidate}/weight");
        (is_valid && Topic::new(&topic).is_ok()).then_some(asked)
    }
}

/// The ranks of a profile on one node.
#[derive(Debug, Default)]
struct Ranks {
    /// Weight and state of each candidate, and the time since the weight was checked.
    candidates: BTreeMap<String, Candidate>,
    valid_seconds: Option<f64>,
    is_native: bool,
}

#[derive(Debug, Default)]
struct Candidate {
    weight: Option<(f64, Duration)>,
    state: Option<f64>,
}

/// Returns the line for HAProxy.
pub(super) fn answer(source: &dyn Source, asked: &Asked) -> String {
    match percent(source, asked) {
        Ok(percent) => format!("up {percent}%\n"),
        Err(why) => format!("up 100% #{why}\n"),
    }
}

/// Returns the weight in percent of the best candidate's.
///
/// # Errors
/// The reason why no rank counts.
fn percent(source: &dyn Source, asked: &Asked) -> Result<u32, &'static str> {
    let mut all = ranks(source, asked);
    all.retain(|_, ranks| ranks.candidates.contains_key(&asked.candidate));
    let mut all = all.into_values();
    let ranks = match (all.next(), all.next()) {
        (None, _) => return Err("no node ranks it"),
        (Some(ranks), None) => ranks,
        (Some(_), Some(_)) => return Err("several nodes rank it: ask NODE/PROFILE/CANDIDATE"),
    };
    if ranks.is_native {
        return Err("nothing recent is known");
    }
    let valid = ranks.valid_seconds.ok_or("the ranks do not say how long they are valid")?;
    let own = ranks.candidates.get(&asked.candidate).ok_or("no node ranks it")?;
    let (weight, age) = own.weight.ok_or("it has no weight")?;
    if age.as_secs_f64() > valid {
        return Err("the rank is too old");
    }
    if own.state == Some(EXCLUDED) {
        return Ok(0);
    }
    let weights = ranks.candidates.values().filter_map(|candidate| candidate.weight);
    let best = weights.map(|(weight, _)| weight).fold(0.0, f64::max);
    let share = 100.0 * weight / best;
    match share.is_finite() && (0.0..=100.0).contains(&share) {
        // A candidate that is not excluded keeps some requests, or nothing would be learnt of it.
        true => Ok((share.round() as u32).max(1)),
        false => Err("the weights are not valid"),
    }
}

/// Reads the ranks of a profile, by node.
fn ranks(source: &dyn Source, asked: &Asked) -> BTreeMap<String, Ranks> {
    let nodes = match &asked.node {
        Some(node) => vec![node.clone()],
        None => source.nodes().into_iter().map(|node| node.name).collect(),
    };
    let profile = &asked.profile;
    let starts = nodes.iter().flat_map(|node| {
        [format!("{node}/{RANK}/{profile}@"), format!("{node}/{PROFILE}/{profile}/")]
    });
    let (mut all, now) = (BTreeMap::<String, Ranks>::new(), source.now());
    source.latest(&Wanted::Starting(starts.collect()), &mut |row: &Row<'_>| {
        let value = match row.sample.value {
            Value::F64(value) => value,
            Value::U64(value) => value as f64,
            Value::I64(value) => value as f64,
            Value::Structured(_) => return,
        };
        let mut segments = row.of.topic.segments();
        let (Some(node), Some(family), Some(instance), Some(column), None) =
            (segments.next(), segments.next(), segments.next(), segments.next(), segments.next())
        else {
            return;
        };
        let ranks = all.entry(node.to_owned()).or_default();
        match (family, instance.split_once('@'), column) {
            (PROFILE, None, "valid_seconds") => ranks.valid_seconds = Some(value),
            (PROFILE, None, "native") => ranks.is_native = value != 0.0,
            (RANK, Some((_, candidate)), "weight") => {
                let candidate = ranks.candidates.entry(candidate.to_owned()).or_default();
                candidate.weight = Some((value, row.age(now)));
            }
            (RANK, Some((_, candidate)), "state") => {
                ranks.candidates.entry(candidate.to_owned()).or_default().state = Some(value);
            }
            _ => {}
        }
    });
    all
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use skopos_model::{Kind, Sample, Timestamp, Unit};
    use skopos_query::{Described, Node};

    use super::*;

    const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    /// Facts with their ages in seconds.
    #[derive(Debug)]
    struct Facts(Vec<(Topic, Sample, u64)>);

    impl Source for Facts {
        fn now(&self) -> Timestamp {
            NOW
        }

        fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>)) {
            for (topic, sample, age) in self.0.iter().filter(|f| wanted.selects(f.0.as_str())) {
                let (kind, value_type) = (Kind::Gauge, sample.value.value_type());
                let of = Described { topic, unit: Unit::NONE, kind, value_type, publisher: "test" };
                let age = Some(Duration::from_secs(*age));
                visit(&Row { of, sample, checked_at: NOW, ahead: 0, age });
            }
        }

        fn samples(&self, _: &Wanted, _: RangeInclusive<Timestamp>, _: &mut dyn FnMut(&Row<'_>)) {}

        fn topics(&self, _: &Wanted, _: &mut dyn FnMut(&Described<'_>)) {}

        fn nodes(&self) -> Vec<Node> {
            let nodes = ["n01", "n02"].into_iter().map(|name| Node {
                name: name.to_owned(),
                alive: true,
                topics: 0,
                seen_at: NOW,
                lost_batches: 0,
                malformed_batches: 0,
                clock_offset: None,
            });
            nodes.collect()
        }
    }

    fn facts(all: &[(&str, f64, u64)]) -> Facts {
        let fact = |(topic, value, age): &(&str, f64, u64)| {
            let topic = Topic::new(topic).expect("a topic");
            (topic, Sample::measured(NOW, Value::F64(*value)), *age)
        };
        Facts(all.iter().map(fact).collect())
    }

    fn check(facts: &Facts, line: &str, expected: &str) {
        let asked = Asked::parse(line).expect(line);
        assert_eq!(answer(facts, &asked).trim_end(), expected, "{line}");
    }

    #[test]
    fn weights_are_in_percent_of_the_best() {
        let mut all = vec![
            ("n01/rank_profile/db/valid_seconds", 10.0, 0),
            ("n01/rank_profile/db/native", 0.0, 0),
            ("n01/rank/db@a/weight", 0.6, 1),
            ("n01/rank/db@a/state", 0.0, 1),
            ("n01/rank/db@b/weight", 0.3, 1),
            ("n01/rank/db@c/weight", 0.001, 1),
            ("n01/rank/db@d/weight", 0.099, 1),
            ("n01/rank/db@d/state", 4.0, 1),
            ("n01/rank/db@10.0.0.2:9042/weight", 0.6, 60),
            ("n01/rank/other@e/weight", 0.6, 1),
        ];
        let known = facts(&all);
        for (line, expected) in [
            ("db/a", "up 100%"),
            ("n01/db/a", "up 100%"),
            ("db/b", "up 50%"),
            ("db/c", "up 1%"),
            ("db/d", "up 0%"),
            ("db/10.0.0.2:9042", "up 100% #the rank is too old"),
            ("db/e", "up 100% #no node ranks it"),
            ("n02/db/a", "up 100% #no node ranks it"),
            ("other/e", "up 100% #the ranks do not say how long they are valid"),
        ] {
            check(&known, line, expected);
        }
        all.push(("n02/rank/db@a/weight", 0.5, 1));
        let several = "up 100% #several nodes rank it: ask NODE/PROFILE/CANDIDATE";
        check(&facts(&all), "db/a", several);
        check(&facts(&all), "n01/db/a", "up 100%");
        all.retain(|(topic, ..)| !topic.ends_with("native"));
        all.push(("n01/rank_profile/db/native", 1.0, 0));
        check(&facts(&all), "db/b", "up 100% #nothing recent is known");
    }

    #[test]
    fn weights_that_are_not_numbers_do_not_count() {
        for weight in [f64::NAN, -1.0, f64::INFINITY] {
            let known = facts(&[
                ("n01/rank_profile/db/valid_seconds", 10.0, 0),
                ("n01/rank/db@a/weight", weight, 1),
                ("n01/rank/db@b/weight", 0.0, 1),
            ]);
            check(&known, "db/a", "up 100% #the weights are not valid");
        }
    }

    #[test]
    fn lines_that_name_no_candidate_are_refused() {
        for line in ["", "db", "a/b/c/d", "db/", "/a", "d b/a", "db//a", "db@x/a", "DB/é"] {
            assert_eq!(Asked::parse(line), None, "{line}");
        }
    }
}
