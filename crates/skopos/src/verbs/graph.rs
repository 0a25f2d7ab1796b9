//! `skopos graph [PATTERN]`: facts and insights with their inputs, their rates of change and their ages, as
//! text or as DOT for Graphviz.

use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde::Serialize;
use skopos_model::{Timestamp, duration};

use skopos_agent::ask::{insights, named, vertices_of};
use skopos_agent::control::VertexStatus;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style};

/// `docs/json/graph.schema.json`.
#[derive(Serialize)]
struct Graph<'a> {
    vertices: Vec<&'a VertexStatus>,
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Insights to show, as a topic or a pattern [default: all]
    pub(crate) pattern: Option<String>,
    /// Print DOT, the language of Graphviz
    #[arg(long, conflicts_with_all = ["json", "plain"])]
    pub(crate) dot: bool,
}

pub(crate) fn run(global: &Global, args: &GraphArgs) -> Result<ExitCode, Failure> {
    let asked = match &args.pattern {
        Some(name) => named(global, name)?,
        None => insights(global, None)?,
    };
    let known = with_inputs(global, asked)?;
    let now = skopos_shm::now();
    let mut out = Out::new(global.style());
    if args.dot {
        print_dot(&mut out, &known, now)?;
    } else if out.style == Style::Json {
        out.json(&Graph { vertices: known.values().collect() })?;
    } else {
        print_text(&mut out, &known, now)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Adds all inputs, direct and indirect.
pub(crate) fn with_inputs(
    global: &Global,
    asked: Vec<VertexStatus>,
) -> Result<BTreeMap<String, VertexStatus>, Failure> {
    let mut known: BTreeMap<_, _> = asked.into_iter().map(|v| (v.topic.clone(), v)).collect();
    loop {
        let inputs = known.values().flat_map(|v| &v.inputs).flat_map(|input| &input.matched);
        let wanted: BTreeSet<String> =
            inputs.filter(|topic| !known.contains_key(*topic)).cloned().collect();
        let found = vertices_of(global, wanted.iter().map(String::as_str))?;
        // No input is left, or the inputs were removed between two requests.
        if found.is_empty() {
            return Ok(known);
        }
        known.extend(found.into_iter().map(|v| (v.topic.clone(), v)));
    }
}

/// Prints layer by layer, the highest first: each insight with its inputs below it.
fn print_text(
    out: &mut Out,
    known: &BTreeMap<String, VertexStatus>,
    now: Timestamp,
) -> Result<(), Failure> {
    let mut by_height: Vec<&VertexStatus> = known.values().filter(|v| v.is_insight).collect();
    by_height.sort_by_key(|v| (std::cmp::Reverse(v.height), &v.topic));
    let mut rows = Vec::new();
    for insight in &by_height {
        rows.push(row(out.bold(&insight.topic), insight, now));
        for input in &insight.inputs {
            for topic in &input.matched {
                let named = format!("  <- {topic}");
                rows.push(known.get(topic).map_or(vec![named.clone()], |v| row(named, v, now)));
            }
            let more = input.matched_total - input.matched.len();
            if more > 0 {
                rows.push(vec![format!("  <- and {more} more of {}", input.pattern)]);
            }
            if input.matched_total == 0 {
                rows.push(vec![format!("  <- {}", input.pattern), "missing".to_owned()]);
            }
        }
    }
    out.table(&rows, &[])?;
    let facts = known.len() - by_height.len();
    let height = by_height.first().map_or(0, |v| v.height);
    out.line(
        out.dim(&format!("{} insights in {height} layers over {facts} facts", by_height.len())),
    )?;
    Ok(())
}

fn row(name: String, vertex: &VertexStatus, now: Timestamp) -> Vec<String> {
    vec![name, rate(vertex), age(vertex, now)]
}

/// Formats the rate of change.
fn rate(vertex: &VertexStatus) -> String {
    match vertex.changes_per_second {
        None => "rate unknown".to_owned(),
        Some(0.0) => "unchanged".to_owned(),
        Some(rate) => format!("{rate:.2} changes/s"),
    }
}

/// Formats the age, or states that there is no value.
fn age(vertex: &VertexStatus, now: Timestamp) -> String {
    if vertex.unknown.is_some() {
        return "unknown".to_owned();
    }
    let checked_at = Timestamp::from_nanos(vertex.checked_at_ns);
    format!("{} old", duration::human(now.since(checked_at)))
}

fn print_dot(
    out: &mut Out,
    known: &BTreeMap<String, VertexStatus>,
    now: Timestamp,
) -> Result<(), Failure> {
    out.line("digraph skopos {")?;
    out.line("  rankdir = LR;")?;
    for vertex in known.values() {
        let shape = if vertex.is_insight { "box" } else { "ellipse" };
        let style = if vertex.unknown.is_some() { ", style = dashed" } else { "" };
        let label = format!("{}\\n{}, {}", vertex.topic, rate(vertex), age(vertex, now));
        out.line(format!("  \"{}\" [shape = {shape}, label = \"{label}\"{style}];", vertex.topic))?;
    }
    for vertex in known.values() {
        for input in &vertex.inputs {
            let style = if input.needed { "" } else { " [style = dotted]" };
            for topic in &input.matched {
                out.line(format!("  \"{topic}\" -> \"{}\"{style};", vertex.topic))?;
            }
        }
    }
    out.line("}")?;
    Ok(())
}
