//! Resolves typed topics to vertices. The node may be omitted, and a mistyped topic gets a suggestion.

use std::collections::BTreeSet;

use skopos_model::{TopicPattern, nearest_name, nearest_topic};
use skopos_shm::{Host, Vertex};

use crate::failure::Failure;
use crate::options::Global;

/// Opens the live segments of this machine.
///
/// # Errors
/// The directory cannot be read, or it has no live segment; the failure has a hint.
pub fn open_host(global: &Global) -> Result<Host, Failure> {
    let host = match &global.dir {
        Some(dir) => Host::open_dirs(vec![dir.clone()])?,
        None => Host::open()?,
    };
    if host.segments().is_empty() {
        return Err(match host.refused().first() {
            Some(refused) => Failure::new("no publisher here has a segment that can be read")
                .because(refused)
                .hint("`skopos doctor` says more"),
            None => Failure::new("nothing is running: no agent publishes on this machine")
                .hint("start one in another terminal: `skopos up`"),
        });
    }
    Ok(host)
}

/// Returns the patterns that a typed text can mean, the widest last: as typed, with any node in front,
/// and anywhere below a node.
///
/// # Errors
/// The text is not a pattern.
pub fn readings_of(text: &str) -> Result<Vec<TopicPattern>, Failure> {
    let typed = TopicPattern::new(text.trim_end_matches('/'))?;
    let wider = |prefix: &str| TopicPattern::new(&format!("{prefix}{typed}")).ok();
    Ok([Some(typed.clone()), wider("*/"), wider("**/")].into_iter().flatten().collect())
}

/// Returns the vertices that the first matching pattern of [`readings_of`] selects on this host; empty if
/// no pattern matches.
///
/// # Errors
/// The text is not a pattern.
pub fn resolve(host: &Host, text: &str) -> Result<Vec<Vertex>, Failure> {
    let mut found = readings_of(text)?.into_iter().map(|pattern| host.select(&pattern));
    Ok(found.find(|vertices| !vertices.is_empty()).unwrap_or_default())
}

/// Resolves several texts. Returns the vertices, each topic once, and the texts that match no topic.
///
/// # Errors
/// A text is not a pattern.
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

/// Makes the failure for a text that matches no topic, with the nearest topic as a hint.
pub fn no_match(host: &Host, text: &str) -> Failure {
    let failure = Failure::no(format!("no topic matches `{text}`"));
    let nearest =
        if text.contains('*') { nearest_pattern(host, text) } else { nearest(host, text) };
    match nearest {
        Some(topic) => failure.hint(format!("did you mean `{topic}`?")),
        None => failure.hint("`skopos ls` shows every topic of this machine"),
    }
}

/// Returns the topic that is most like `text`, compared with and without its node.
pub fn nearest(host: &Host, text: &str) -> Option<String> {
    let segments = host.segments();
    let vertices = segments.iter().flat_map(|segment| segment.vertices());
    nearest_topic(text, vertices.map(|vertex| vertex.topic().to_string()))
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
            false => nearest_name(typed, known.iter().copied()),
        })
        .collect();
    let mended = mended?.join("/");
    let is_match = mended != text && resolve(host, &mended).is_ok_and(|found| !found.is_empty());
    is_match.then_some(mended)
}
