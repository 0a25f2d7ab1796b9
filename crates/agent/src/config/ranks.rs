//! The tables `[[rank]]`: candidates that the agent ranks, each by a profile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use skopos_model::{Topic, TopicPattern};
use skopos_steer::rank::{Metric, Profile};
use skopos_term::Failure;

use super::bytes;

/// Most profiles of an agent: applications of a node, each with a group of facts of its own.
const MAX_PROFILES: usize = 16;

/// Most candidates of all profiles: the thousand for which the cost of a ranking is promised. Seven facts of each are
/// less than half of the entries of the agent's segment.
const MAX_CANDIDATES: usize = 1024;

/// Time between two rankings, unless another one is configured.
const EVERY: Duration = Duration::from_secs(1);

/// The shortest time: the sensors whose facts are ranked are not polled more often.
const MIN_EVERY: Duration = Duration::from_millis(200);

/// The longest time: after an hour a ranking says nothing.
const MAX_EVERY: Duration = Duration::from_secs(3600);

/// Size of a recording, unless another one is configured: a day of ten outcomes a second among three candidates.
const RECORD_BYTES: u64 = 128 << 20;

/// Most patterns that all profiles mirror. Beyond it, a pattern selects all nodes and not those of its candidates. It
/// leaves room for patterns of `--mirror`.
const MAX_EXACT_PATTERNS: usize = 32;

/// A ranking that the agent computes and publishes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankConfig {
    /// The candidates, in the order that is used while nothing is known of them.
    pub candidates: Vec<Candidate>,
    /// Time between two rankings.
    #[serde(default, deserialize_with = "skopos_score::duration::optional")]
    pub every: Option<Duration>,
    /// File for reported outcomes, which `skopos rank replay` reads.
    pub record: Option<PathBuf>,
    /// Size at which the file is moved to `FILE.1` and begins again.
    #[serde(default, deserialize_with = "bytes")]
    pub record_max_bytes: Option<u64>,
    /// The profile.
    pub profile: Profile,
}

/// A candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The name under which it is ranked: a node or an address.
    pub name: String,
    /// The node that publishes facts about it.
    pub node: String,
}

impl<'de> Deserialize<'de> for Candidate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a name, or a table with `name` and `node`")]
        enum Text {
            Name(String),
            Both { name: String, node: String },
        }
        let (name, node) = match Text::deserialize(from)? {
            Text::Name(name) => {
                // The facts of `n02:9042` are those of the node `n02`.
                let node = name.rsplit_once(':').map_or(&*name, |(host, _)| host).to_owned();
                (name, node)
            }
            Text::Both { name, node } => (name, node),
        };
        if !is_segment(&name) || name.contains('@') {
            return Err(D::Error::custom(format!(
                "`{name}` is not the name of a candidate, such as `n02` or `10.0.0.2:9042`"
            )));
        }
        if !is_segment(&node) {
            return Err(D::Error::custom(format!(
                "`{node}` is not the name of a node, such as `n02`"
            )));
        }
        Ok(Self { name, node })
    }
}

fn is_segment(text: &str) -> bool {
    Topic::new(text).is_ok_and(|topic| topic.segments().count() == 1)
}

impl RankConfig {
    /// Returns the time between two rankings.
    pub fn every(&self) -> Duration {
        self.every.unwrap_or(EVERY)
    }

    /// Returns the size at which a recording begins again.
    pub fn record_max_bytes(&self) -> u64 {
        self.record_max_bytes.unwrap_or(RECORD_BYTES)
    }

    /// Checks everything that does not depend on facts.
    ///
    /// # Errors
    /// The profile is not valid, a metric has no topic, or a name, a time or a number is out of range.
    fn check(&self) -> Result<(), Failure> {
        let name = &self.profile.name;
        let wrong = |text: String| Failure::new(format!("[[rank]] `{name}`: {text}"));
        if !is_segment(name) || name.contains('@') {
            let hint = "use the characters a-z 0-9 _ - .";
            return Err(wrong("this is not a valid name of a profile".to_owned()).hint(hint));
        }
        self.profile.check().map_err(|e| {
            let failure = wrong(e.to_string());
            match e.hint() {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
        let every = self.every();
        if !(MIN_EVERY..=MAX_EVERY).contains(&every) {
            return Err(wrong(format!("every = {every:?} is out of range"))
                .hint("choose a time from 200ms to 1h"));
        }
        if self.candidates.is_empty() {
            return Err(wrong("there are no candidates".to_owned())
                .hint("name some: candidates = [\"n01\", \"n02\"]"));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.candidates.iter().find(|c| !names.insert(&c.name)) {
            return Err(wrong(format!("the candidate `{}` occurs twice", twice.name))
                .hint("name each candidate once"));
        }
        for metric in &self.profile.metrics {
            if metric.topic.is_none() && metric.peers.is_none() {
                return Err(wrong(format!("the metric `{}` has no `topic`", metric.name))
                    .hint("for example topic = \"{node}/psi/io/some_avg10_ratio\""));
            }
            for template in templates(metric) {
                let example = &self.candidates[0];
                filled(template, "n01", example).map_err(|e| {
                    wrong(format!("the metric `{}`: {e}", metric.name)).hint(
                        "a pattern may have the placeholders {candidate}, {host}, {node} and {self}",
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Returns the files of its recording: the present one, the one before and the next one.
    fn record_files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.record.iter().flat_map(|path| {
            ["", ".1", ".new"].map(|suffix| {
                let mut file = path.clone().into_os_string();
                file.push(suffix);
                PathBuf::from(file)
            })
        })
    }

    /// Returns the patterns of topics of other nodes that its metrics name, for the mirror of node `own`.
    fn remote_patterns(&self, own: &str, exact: bool) -> BTreeSet<String> {
        let anything = Candidate { name: "*".to_owned(), node: "*".to_owned() };
        let all = std::slice::from_ref(&anything);
        let candidates = if exact { self.candidates.as_slice() } else { all };
        let templates = self.profile.metrics.iter().flat_map(templates);
        let remote = templates.filter(|template| !template.starts_with("{self}/"));
        let patterns = remote.flat_map(|template| {
            candidates.iter().filter_map(move |c| filled(template, own, c).ok())
        });
        patterns.map(|pattern| pattern.to_string()).collect()
    }
}

/// Checks all rankings of a configuration.
///
/// # Errors
/// A ranking is not valid, two have one name or a file of their recordings in common, or there are too many.
pub(crate) fn check(all: &[RankConfig]) -> Result<(), Failure> {
    let candidates: usize = all.iter().map(|rank| rank.candidates.len()).sum();
    if all.len() > MAX_PROFILES || candidates > MAX_CANDIDATES {
        return Err(Failure::new(format!(
            "there are {} tables [[rank]] with {candidates} candidates",
            all.len()
        ))
        .hint(format!("an agent has at most {MAX_PROFILES} with {MAX_CANDIDATES} candidates")));
    }
    let (mut names, mut files) = (BTreeSet::new(), BTreeMap::new());
    for rank in all {
        rank.check()?;
        if !names.insert(&rank.profile.name) {
            let name = &rank.profile.name;
            return Err(Failure::new(format!("two tables [[rank]] have the profile `{name}`"))
                .hint("give one of them another name"));
        }
        for file in rank.record_files() {
            let own = &rank.profile.name;
            if let Some(other) = files.get(&file) {
                let file = file.display();
                let text = format!("the recordings of `{other}` and `{own}` use one file: {file}");
                return Err(Failure::new(text)
                    .hint("give each its own `record`; FILE.1 and FILE.new belong to FILE"));
            }
            files.insert(file, own);
        }
    }
    Ok(())
}

/// Returns the patterns of topics of other nodes that these rankings read, for the mirror of node `own`.
pub fn remote_patterns(all: &[RankConfig], own: &str) -> Vec<TopicPattern> {
    let of = |exact| -> BTreeSet<String> {
        all.iter().flat_map(|rank| rank.remote_patterns(own, exact)).collect()
    };
    let mut patterns = of(true);
    if patterns.len() > MAX_EXACT_PATTERNS {
        patterns = of(false);
    }
    patterns.iter().filter_map(|pattern| TopicPattern::new(pattern).ok()).collect()
}

/// Returns the patterns of a metric, with placeholders.
fn templates(metric: &Metric) -> impl Iterator<Item = &str> {
    metric.topic.as_deref().into_iter().chain(metric.peers.as_deref())
}

/// Fills the placeholders of a pattern in for a candidate of the node `own`.
///
/// # Errors
/// The result is not a pattern.
pub(crate) fn filled(
    template: &str,
    own: &str,
    candidate: &Candidate,
) -> Result<TopicPattern, skopos_model::Error> {
    let Candidate { name, node } = candidate;
    // The sensor of TCP connections writes the colons of IPv6 as `-`.
    let host = name.rsplit_once(':').map_or(&**name, |(host, _)| host).replace(':', "-");
    let text = template
        .replace("{self}", own)
        .replace("{node}", node)
        .replace("{host}", &host)
        .replace("{candidate}", name);
    TopicPattern::new(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        candidates = ["n02", "n03:9042", { name = "10.0.0.4:9042", node = "n04" }]
        every = "500ms"
        [profile]
        name = "reads"
        [[profile.metrics]]
        name = "rtt"
        topic = "{self}/peer/{node}/rtt_seconds"
        floor = 1e-4
        [[profile.metrics]]
        name = "io"
        topic = "{node}/psi/io/some_avg10_ratio"
        peers = "*/app/{candidate}/io_ratio"
        floor = 0.01
    "#;

    fn parsed(text: &str) -> RankConfig {
        toml::from_str(text).expect(text)
    }

    #[test]
    fn candidates_are_names_or_tables() {
        let rank = parsed(TEXT);
        let nodes: Vec<&str> = rank.candidates.iter().map(|c| &*c.node).collect();
        assert_eq!(nodes, ["n02", "n03", "n04"]);
        check(std::slice::from_ref(&rank)).expect("valid");
        let host = filled("{self}/tcp_peer/{host}/rtt_seconds_mean", "n01", &rank.candidates[2]);
        assert_eq!(host.expect("a pattern").as_str(), "n01/tcp_peer/10.0.0.4/rtt_seconds_mean");
    }

    #[test]
    fn topics_of_other_nodes_are_mirrored() {
        let of = |rank: &RankConfig| {
            let patterns = remote_patterns(std::slice::from_ref(rank), "n01");
            patterns.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let mut rank = parsed(TEXT);
        rank.candidates.truncate(1);
        assert_eq!(of(&rank), ["*/app/n02/io_ratio", "n02/psi/io/some_avg10_ratio"]);
        let many = (0..40).map(|n| Candidate { name: format!("c{n}"), node: format!("n{n}") });
        rank.candidates = many.collect();
        assert_eq!(of(&rank), ["*/app/*/io_ratio", "*/psi/io/some_avg10_ratio"]);
    }

    #[test]
    fn recordings_have_no_file_in_common() {
        let of = |name: &str, record: &str| {
            let mut rank = parsed(TEXT);
            rank.profile.name = name.to_owned();
            rank.record = Some(PathBuf::from(record));
            rank
        };
        let pairs = [("r/a", "r/a"), ("r/a", "r/a.1"), ("r/a.new", "r/a"), ("r/./a", "r/a")];
        for (one, other) in pairs {
            let failure = check(&[of("one", one), of("other", other)]).expect_err(other);
            let message = failure.message();
            assert!(message.contains("`one` and `other` use one file: r/"), "{message}");
            assert!(failure.hint_text().is_some(), "{failure:?}");
        }
        check(&[of("one", "r/a"), of("other", "r/b")]).expect("two files");
    }

    #[test]
    fn an_error_says_what_is_wrong() {
        for (from, to, expected) in [
            ("\"n02\"", "\"N02\"", "`N02` is not the name of a candidate"),
            ("\"n02\"", "\"a@b\"", "`a@b` is not the name of a candidate"),
            ("\"n02\"", "17", "a name, or a table with `name` and `node`"),
            ("node = \"n04\"", "node = \"n/4\"", "`n/4` is not the name of a node"),
            ("every", "evry", "evry"),
            ("floor = 1e-4", "floor = 1e-4\nweigth = 2", "weigth"),
        ] {
            let text = TEXT.replacen(from, to, 1);
            let error = toml::from_str::<RankConfig>(&text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let refused = |from: &str, to: &str| {
            let failure = check(&[parsed(&TEXT.replacen(from, to, 1))]).expect_err(to);
            assert!(failure.hint_text().is_some(), "{failure:?}");
            failure.message().to_owned()
        };
        for (from, to, expected) in [
            ("\"n02\"", "\"n03:9042\"", "the candidate `n03:9042` occurs twice"),
            ("\"500ms\"", "\"1ms\"", "out of range"),
            ("name = \"reads\"", "name = \"a/b\"", "not a valid name of a profile"),
            ("topic = \"{self}/peer/{node}/rtt_seconds\"", "", "the metric `rtt` has no `topic`"),
            ("{self}/peer", "{Self}/peer", "the metric `rtt`"),
            ("floor = 1e-4", "floor = 0.0", "it must be above zero"),
            ("name = \"io\"", "name = \"rtt\"", "two metrics `rtt`"),
            (
                "name = \"reads\"",
                "name = \"reads\"\nmethod = \"latency\"",
                "the weights of the profile `reads` sum to zero",
            ),
        ] {
            let message = refused(from, to);
            assert!(message.contains(expected), "{to}: {message}");
        }
        assert!(check(&[parsed(TEXT), parsed(TEXT)]).is_err());
        let many: Vec<RankConfig> = (0..17).map(|_| parsed(TEXT)).collect();
        assert!(check(&many).is_err());
    }
}
