//! From what a user typed to vertices: the node may be left out, a mistyped name finds its nearest.

use std::collections::BTreeSet;

use skopos_model::TopicPattern;
use skopos_shm::{Host, Vertex};

use crate::failure::Failure;
use crate::options::Global;

/// How alike two names must be, from 0 to 1, before one is suggested for the other.
pub const LIKENESS: f64 = 0.7;

/// The machine's live segments; a failure with a hint if there is none.
pub fn open_host(global: &Global) -> Result<Host, Failure> {
    let host = match &global.dir {
        Some(dir) => Host::open_dirs(vec![dir.clone()])?,
        None => Host::open()?,
    };
    if host.segments().is_empty() {
        return Err(match host.refused().first() {
            Some(refused) => Failure::new("nothing that can be read is publishing here")
                .because(refused)
                .hint("`skopos doctor` looks closer"),
            None => Failure::new("nothing is running: no agent publishes on this machine")
                .hint("start one in another terminal: `skopos up`"),
        });
    }
    Ok(host)
}

/// What a user's text stands for, widest last: as typed, with any node in front, anywhere.
pub fn readings_of(text: &str) -> Result<Vec<TopicPattern>, Failure> {
    let typed = TopicPattern::new(text.trim_end_matches('/'))?;
    let wider = |prefix: &str| TopicPattern::new(&format!("{prefix}{typed}")).ok();
    Ok([Some(typed.clone()), wider("*/"), wider("**/")].into_iter().flatten().collect())
}

/// The first of [`readings_of`] that selects anything on this host, with what it selects; none if
/// nothing matches at all.
pub fn resolve(host: &Host, text: &str) -> Result<Vec<Vertex>, Failure> {
    let mut found = readings_of(text)?.into_iter().map(|pattern| host.select(&pattern));
    Ok(found.find(|vertices| !vertices.is_empty()).unwrap_or_default())
}

/// What several texts stand for, each topic once; and those that nothing matches.
pub fn resolve_all(host: &Host, texts: &[String]) -> Result<(Vec<Vertex>, Vec<String>), Failure> {
    let mut vertices: Vec<Vertex> = Vec::new();
    let mut missing = Vec::new();
    for text in texts {
        let found = resolve(host, text)?;
        if found.is_empty() {
            missing.push(text.clone());
        }
        for vertex in found {
            if !vertices.iter().any(|v| v.topic() == vertex.topic()) {
                vertices.push(vertex);
            }
        }
    }
    Ok((vertices, missing))
}

/// "No topic matches", with the nearest one as a hint.
pub fn no_match(host: &Host, text: &str) -> Failure {
    let failure = Failure::no(format!("no topic matches `{text}`"));
    let nearest =
        if text.contains('*') { nearest_pattern(host, text) } else { nearest(host, text) };
    match nearest {
        Some(topic) => failure.hint(format!("did you mean `{topic}`?")),
        None => failure.hint("`skopos ls` shows every topic"),
    }
}

/// The topic that looks most like `text`, compared as a whole and without its node.
pub fn nearest(host: &Host, text: &str) -> Option<String> {
    let likeness = |topic: &str| {
        let below_node = topic.split_once('/').map_or(topic, |(_, rest)| rest);
        strsim::normalized_damerau_levenshtein(topic, text)
            .max(strsim::normalized_damerau_levenshtein(below_node, text))
    };
    host.segments()
        .iter()
        .flat_map(|segment| segment.vertices())
        .map(|vertex| (likeness(vertex.topic().as_str()), vertex.topic().to_string()))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, topic)| topic)
}

/// The pattern `text` with each mistyped segment replaced by the most similar segment of any topic; `None`
/// if a segment resembles no other, or if the result matches nothing either.
fn nearest_pattern(host: &Host, text: &str) -> Option<String> {
    let topics: Vec<String> = host
        .segments()
        .iter()
        .flat_map(|segment| segment.vertices())
        .map(|vertex| vertex.topic().to_string())
        .collect();
    let known: BTreeSet<&str> = topics.iter().flat_map(|topic| topic.split('/')).collect();
    let mended: Option<Vec<&str>> = text
        .split('/')
        .map(|typed| match typed.contains('*') || known.contains(typed) {
            true => Some(typed),
            false => most_similar(typed, known.iter().copied()),
        })
        .collect();
    let mended = mended?.join("/");
    let is_match = mended != text && resolve(host, &mended).is_ok_and(|found| !found.is_empty());
    is_match.then_some(mended)
}

fn most_similar<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (strsim::normalized_damerau_levenshtein(name, typed), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
