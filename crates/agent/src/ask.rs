//! Requests for the agent's graph, page by page.

use std::path::{Path, PathBuf};

use crate::control::{
    self, Answer, DefinitionStatus, OutcomeReport, RankPage, RankedCandidate, RefusedInput,
    Request, VertexStatus, socket_path,
};
use skopos_model::nearest_topic;
use skopos_term::find::readings_of;
use skopos_term::{Failure, Global};

/// The pattern of all insights.
const INSIGHTS: &str = "*/insight/**";

/// Returns the runtime directory of the agent: the first directory in which an agent listens.
fn agent_dir(global: &Global) -> PathBuf {
    let dirs = match &global.dir {
        Some(dir) => vec![dir.clone()],
        None => skopos_shm::search_path(),
    };
    let listens = |dir: &&PathBuf| socket_path(dir).exists();
    dirs.iter().find(listens).or(dirs.first()).cloned().unwrap_or_default()
}

/// Insights that could not be added to the graph.
pub struct RefusedInsights {
    /// The first of them.
    pub first: Vec<RefusedInput>,
    /// Their number.
    pub total: usize,
}

/// Returns the built-in insights, and the insights that could not be added to the graph.
///
/// # Errors
/// The agent does not answer.
pub fn definitions(global: &Global) -> Result<(Vec<DefinitionStatus>, RefusedInsights), Failure> {
    match control::ask(&agent_dir(global), &Request::Definitions)? {
        Answer::Definitions { definitions, refused: first, refused_total: total } => {
            Ok((definitions, RefusedInsights { first, total }))
        }
        _ => Err(another_version()),
    }
}

/// Returns the current findings in the form of their events, by topic and rule.
///
/// # Errors
/// The agent does not answer.
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

/// Returns the vertices whose topics match `pattern`, by topic.
///
/// # Errors
/// The agent does not answer, or `pattern` is not a pattern.
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

/// Returns the insights that a typed text selects; all insights without a text.
///
/// # Errors
/// The agent does not answer, or the text is not a pattern.
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

/// Returns the insights with this name or topic: `msca`, `vda/msca`, a pattern.
///
/// # Errors
/// No insight matches; the failure has the reason, or suggests the nearest name.
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
            .hint(format!("its formula: {}", definition.formula)));
    }
    let all = vertices(global, INSIGHTS, true)?;
    let names = definitions.iter().map(|d| d.name.as_str());
    let names = names.chain(all.iter().map(|v| v.topic.as_str()));
    let failure = Failure::no(format!("there is no insight `{name}`"));
    Err(match nearest_topic(name, names) {
        Some(other) => failure.hint(format!("did you mean `{other}`?")),
        None => failure.hint("`skopos insight ls` shows all of them"),
    })
}

/// Returns the vertices of these topics, without those that were removed.
///
/// # Errors
/// The agent does not answer.
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

/// Attempts to read all pages of one ranking. The pages of a thousand candidates are read in less than an interval.
const RANKING_ATTEMPTS: usize = 8;

/// Returns the ranking of a profile with the candidates of these names, all without a name; without a profile, the only
/// one.
///
/// # Errors
/// The agent does not answer, or does not know the profile or a candidate; rankings come faster than their pages are
/// read.
pub fn ranking(
    global: &Global,
    profile: Option<&str>,
    candidates: &[String],
) -> Result<RankPage, Failure> {
    for _ in 0..RANKING_ATTEMPTS {
        if let Some(whole) = whole_ranking(&agent_dir(global), profile, candidates)? {
            return Ok(whole);
        }
    }
    Err(Failure::new("the agent ranks again before all candidates are read")
        .hint("name some candidates, or rank at a longer interval"))
}

/// Reads the pages of a ranking; `None` if the agent ranked again meanwhile.
fn whole_ranking(
    dir: &Path,
    profile: Option<&str>,
    candidates: &[String],
) -> Result<Option<RankPage>, Failure> {
    let mut read: Vec<RankedCandidate> = Vec::new();
    let mut at = None;
    loop {
        let after = read.last().map_or(0, |candidate| candidate.place);
        let (profile, candidates) = (profile.map(str::to_owned), candidates.to_vec());
        let request = Request::Rank { profile, candidates, after };
        let Answer::Rank(mut page) = control::ask(dir, &request)? else {
            return Err(another_version());
        };
        if *at.get_or_insert(page.at_ns) != page.at_ns {
            return Ok(None);
        }
        let is_last = !page.more || page.candidates.is_empty();
        read.append(&mut page.candidates);
        if is_last {
            return Ok(Some(RankPage { candidates: read, ..*page }));
        }
    }
}

/// Reports outcomes of requests. Returns the number that was taken, and the reason of the first refusal.
///
/// # Errors
/// The agent does not answer, or does not know the profile.
pub fn report_outcomes(
    global: &Global,
    profile: Option<&str>,
    outcomes: Vec<OutcomeReport>,
) -> Result<(usize, Option<String>), Failure> {
    let request = Request::Outcomes { profile: profile.map(str::to_owned), outcomes };
    match control::ask(&agent_dir(global), &request)? {
        Answer::Outcomes { taken, first_refusal, .. } => Ok((taken, first_refusal)),
        _ => Err(another_version()),
    }
}

fn another_version() -> Failure {
    Failure::new("the agent's answer does not belong to the request")
        .hint("the agent may have another version: start it again")
}
