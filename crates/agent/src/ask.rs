//! Asking the agent for its graph, page by page.

use std::path::PathBuf;

use crate::control::{
    self, Answer, DefinitionStatus, RefusedInput, Request, VertexStatus, socket_path,
};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::find::{LIKENESS, readings_of};

/// Where insights are, below the node.
const INSIGHTS: &str = "*/insight/**";

/// The runtime directory of the agent to ask: the first in which one listens.
pub fn agent_dir(global: &Global) -> PathBuf {
    let dirs = match &global.dir {
        Some(dir) => vec![dir.clone()],
        None => skopos_shm::search_path(),
    };
    let listens = |dir: &&PathBuf| socket_path(dir).exists();
    dirs.iter().find(listens).or(dirs.first()).cloned().unwrap_or_default()
}

/// Insights that the graph could not take.
pub struct RefusedInsights {
    /// The first ones.
    pub first: Vec<RefusedInput>,
    /// How many there are.
    pub total: usize,
}

/// The built-in insights, and those that the graph could not take.
pub fn definitions(global: &Global) -> Result<(Vec<DefinitionStatus>, RefusedInsights), Failure> {
    match control::ask(&agent_dir(global), &Request::Definitions)? {
        Answer::Definitions { definitions, refused: first, refused_total: total } => {
            Ok((definitions, RefusedInsights { first, total }))
        }
        _ => Err(another_version()),
    }
}

/// What is unusual now, as events have it, by topic and rule.
pub fn raised(global: &Global) -> Result<Vec<serde_json::Value>, Failure> {
    let dir = agent_dir(global);
    let mut all: Vec<serde_json::Value> = Vec::new();
    loop {
        let text = |of: &serde_json::Value, name| of[name].as_str().map(str::to_owned);
        let key = |of| Some((text(of, "topic")?, text(of, "rule")?));
        let after = all.last().and_then(key);
        let Answer::Findings { findings, more, .. } =
            control::ask(&dir, &Request::Findings { after })?
        else {
            return Err(another_version());
        };
        let is_last = !more || findings.is_empty();
        all.extend(findings);
        if is_last {
            return Ok(all);
        }
    }
}

/// The vertices whose topics match `pattern`, by topic.
pub fn vertices(
    global: &Global,
    pattern: &str,
    insights_only: bool,
) -> Result<Vec<VertexStatus>, Failure> {
    let dir = agent_dir(global);
    let mut all: Vec<VertexStatus> = Vec::new();
    loop {
        let after = all.last().map(|v| v.topic.clone());
        let request = Request::Vertices { pattern: pattern.to_owned(), insights_only, after };
        let Answer::Vertices { vertices, more } = control::ask(&dir, &request)? else {
            return Err(another_version());
        };
        let is_last = !more || vertices.is_empty();
        all.extend(vertices);
        if is_last {
            return Ok(all);
        }
    }
}

/// The insights that a user's text stands for; all of them without one.
pub fn insights(global: &Global, pattern: Option<&str>) -> Result<Vec<VertexStatus>, Failure> {
    let Some(text) = pattern else { return vertices(global, "**", true) };
    for pattern in readings_of(text)? {
        let found = vertices(global, pattern.as_str(), true)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The insights of this name or topic: `msca`, `vda/msca`, a pattern.
///
/// # Errors
/// There is none; the failure says why, or suggests the nearest name.
pub fn named(global: &Global, name: &str) -> Result<Vec<VertexStatus>, Failure> {
    let found = insights(global, Some(name))?;
    if !found.is_empty() {
        return Ok(found);
    }
    let (definitions, _) = definitions(global)?;
    if let Some(definition) = definitions.iter().find(|d| d.name == name)
        && let Some(why) = &definition.why_none
    {
        return Err(Failure::no(format!("{name} is unknown: {why}"))
            .hint(format!("it is computed as: {}", definition.formula)));
    }
    let all = vertices(global, INSIGHTS, true)?;
    let names = definitions.iter().map(|d| d.name.as_str());
    let names = names.chain(all.iter().map(|v| v.topic.as_str()));
    let likeness = |other: &str| strsim::normalized_damerau_levenshtein(other, name);
    let nearest = names
        .map(|other| (likeness(other), other))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let failure = Failure::no(format!("there is no insight `{name}`"));
    Err(match nearest {
        Some((_, other)) => failure.hint(format!("did you mean `{other}`?")),
        None => failure.hint("`skopos insight ls` shows all of them"),
    })
}

/// The vertices of these topics, as far as they are still there.
pub fn vertices_of<'a>(
    global: &Global,
    topics: impl Iterator<Item = &'a str>,
) -> Result<Vec<VertexStatus>, Failure> {
    let mut found = Vec::new();
    for topic in topics {
        found.extend(vertices(global, topic, false)?);
    }
    Ok(found)
}

fn another_version() -> Failure {
    Failure::new("the agent answered something else than it was asked")
        .hint("it may be of another version: start it again")
}
