//! `skopos insight ls [PATTERN]`: every insight with its value, or why there is none.

use std::process::ExitCode;

use serde::Serialize;

use crate::verbs::insight::shown::{age, value};
use skopos_agent::ask::{definitions, insights};
use skopos_agent::control::{DefinitionStatus, VertexStatus};
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style};

/// `docs/json/insight_ls.schema.json`.
#[derive(Serialize)]
struct Listing<'a> {
    /// The built-in insights, by their row in the paper's table.
    definitions: &'a [DefinitionStatus],
    /// The vertices, by topic.
    insights: &'a [VertexStatus],
}

pub(crate) fn run(global: &Global, pattern: Option<&str>) -> Result<ExitCode, Failure> {
    let (definitions, refused) = definitions(global)?;
    let vertices = insights(global, pattern)?;
    if let Some(pattern) = pattern
        && vertices.is_empty()
    {
        return Err(Failure::no(format!("no insight matches `{pattern}`")).hint(
            "`skopos insight ls` shows every insight, and refused definitions with their reasons",
        ));
    }
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&Listing { definitions: &definitions, insights: &vertices })?,
        Style::Plain => {
            for v in &vertices {
                out.line(format!("{}\t{}\t{}", v.topic, plain(v), v.unit))?;
            }
        }
        Style::Human => {
            let rows = rows(&out, &definitions, &vertices, pattern.is_some());
            out.table(&rows, &[0])?;
            for refused in &refused.first {
                out.line(format!("refused: {}: {}", refused.topic, refused.reason))?;
            }
            if refused.total > refused.first.len() {
                out.line(format!("refused: {} more", refused.total - refused.first.len()))?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The part of a topic, below the node, that holds the built-in insights.
const BUILT_IN: &str = "insight";

/// The characters of a record that `ls` prints: `show` prints all of them.
const MAX_SHOWN: usize = 100;

/// Returns the rows of the built-in insights in the order of the paper's table, then those of the others.
/// A built-in insight without vertices has a row too, unless the user gave a pattern.
fn rows(
    out: &Out,
    definitions: &[DefinitionStatus],
    vertices: &[VertexStatus],
    only_matching: bool,
) -> Vec<Vec<String>> {
    let now = skopos_shm::now();
    let line = |row: String, v: &VertexStatus| {
        let known = v.unknown.is_none();
        let told = match (known, value(v)) {
            (false, reason) => reason,
            (true, value) if value.chars().count() > MAX_SHOWN => {
                let start: String = value.chars().take(MAX_SHOWN).collect();
                format!("{start}…  ({})", age(v, now))
            }
            (true, value) => format!("{value}  ({})", age(v, now)),
        };
        vec![row, v.topic.clone(), if known { told } else { out.dim(&told) }]
    };
    let mut rows = Vec::new();
    let is_of = |v: &VertexStatus, d: &DefinitionStatus| {
        // `NODE/insight/SUBJECT/NAME`; a user's may have the name further below.
        let mut segments = v.topic.split('/').skip(1);
        let (path, _subject, name) = (segments.next(), segments.next(), segments.next());
        path == Some(BUILT_IN) && name == Some(&*d.name) && segments.next().is_none()
    };
    for definition in definitions {
        let of_it = vertices.iter().filter(|v| is_of(v, definition));
        rows.extend(of_it.map(|v| line(definition.row.to_string(), v)));
        if let Some(why) = definition.why_none.as_ref().filter(|_| !only_matching) {
            let told = out.dim(&format!("unknown: {why}"));
            rows.push(vec![definition.row.to_string(), definition.name.clone(), told]);
        }
    }
    let others = vertices.iter().filter(|v| !definitions.iter().any(|d| is_of(v, d)));
    rows.extend(others.map(|v| line(String::new(), v)));
    rows
}

/// The value as it is; `unknown: reason` if there is none.
fn plain(vertex: &VertexStatus) -> String {
    match &vertex.unknown {
        Some(reason) => format!("unknown: {reason}"),
        None => vertex.value.to_string(),
    }
}
