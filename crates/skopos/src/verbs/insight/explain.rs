//! `skopos insight explain NAME`: from an insight back to its facts, and where those come from.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde::Serialize;
use skopos_model::{Topic, schema};

use crate::verbs::graph::with_inputs;
use crate::verbs::insight::shown::{age, value};
use skopos_agent::ask::named;
use skopos_agent::control::VertexStatus;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style};

/// `docs/json/insight_explain.schema.json`.
#[derive(Serialize)]
struct Explained<'a> {
    /// The topics that were asked for.
    topics: Vec<&'a str>,
    /// They and all that they are computed from, by topic.
    vertices: Vec<&'a VertexStatus>,
}

pub(crate) fn run(global: &Global, name: &str) -> Result<ExitCode, Failure> {
    let asked = named(global, name)?;
    let known = with_inputs(global, asked.clone())?;
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&Explained {
            topics: asked.iter().map(|v| v.topic.as_str()).collect(),
            vertices: known.values().collect(),
        })?,
        _ => {
            let mut tree = Tree { out: &mut out, known: &known, told: BTreeSet::new() };
            for insight in &asked {
                tree.tell(&insight.topic, "", "", "")?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints vertices and what is below them, each once.
struct Tree<'a> {
    out: &'a mut Out,
    known: &'a BTreeMap<String, VertexStatus>,
    told: BTreeSet<String>,
}

impl Tree<'_> {
    /// One vertex; `first` leads its line, `rest` those below it, `name` is what its parent calls
    /// it.
    fn tell(&mut self, topic: &str, first: &str, rest: &str, name: &str) -> Result<(), Failure> {
        let now = skopos_shm::now();
        let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
        let Some(vertex) = self.known.get(topic) else {
            self.out.line(format!("{first}{name}{topic}  gone"))?;
            return Ok(());
        };
        let bold = self.out.bold(topic);
        let told = match vertex.unknown {
            None => format!("{}  ({})", value(vertex), age(vertex, now)),
            Some(_) => value(vertex),
        };
        self.out.line(format!("{first}{name}{bold}  {told}"))?;
        if !self.told.insert(topic.to_owned()) {
            if !vertex.inputs.is_empty() {
                self.out.line(format!("{rest}  (explained above)"))?;
            }
            return Ok(());
        }
        if let Some(formula) = &vertex.formula {
            self.out.line(format!("{rest}  = {formula}"))?;
        } else if let Some(source) = source(topic) {
            self.out.line(self.out.dim(&format!("{rest}  from {source}")))?;
        }
        self.inputs(vertex, rest)
    }

    fn inputs(&mut self, vertex: &VertexStatus, rest: &str) -> Result<(), Failure> {
        let mut branches: Vec<(&str, Result<&str, String>)> = Vec::new();
        for input in &vertex.inputs {
            if input.matched_total == 0 {
                let why = input.missing.as_deref().unwrap_or("no such topic");
                branches.push((&input.name, Err(format!("{}  missing: {why}", input.pattern))));
            }
            let matched = input.matched.iter().map(|topic| (&*input.name, Ok(topic.as_str())));
            branches.extend(matched);
            let more = input.matched_total - input.matched.len();
            if more > 0 {
                branches.push((&input.name, Err(format!("and {more} more"))));
            }
        }
        let last = branches.len().saturating_sub(1);
        for (at, (name, branch)) in branches.into_iter().enumerate() {
            let (fork, below) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            match branch {
                Ok(topic) => {
                    self.tell(topic, &format!("{rest}{fork}"), &format!("{rest}{below}"), name)?;
                }
                Err(note) => self.out.line(format!("{rest}{fork}{name}: {note}"))?,
            }
        }
        Ok(())
    }
}

/// The kernel file or program that a fact comes from.
fn source(topic: &str) -> Option<&'static str> {
    let (family, _) = schema::lookup_in_family(&Topic::new(topic).ok()?)?;
    Some(family.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_says_where_it_comes_from() {
        assert_eq!(source("n01/load/load_1m"), Some("/proc/loadavg"));
        assert_eq!(source("n01/my/own"), None);
    }
}
