//! `skopos insight show NAME`: one insight with its inputs as they are now.

use std::process::ExitCode;

use serde::Serialize;
use skopos_model::{Timestamp, schema};

use crate::verbs::insight::shown::{age, value};
use skopos_agent::ask::{named, vertices_of};
use skopos_agent::control::VertexStatus;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style};

/// `docs/json/insight_show.schema.json`.
#[derive(Serialize)]
struct Shown {
    insights: Vec<ShownInsight>,
}

#[derive(Serialize)]
struct ShownInsight {
    insight: VertexStatus,
    /// Its inputs as they are now.
    inputs: Vec<VertexStatus>,
}

pub(crate) fn run(global: &Global, name: &str) -> Result<ExitCode, Failure> {
    let mut shown = Vec::new();
    for insight in named(global, name)? {
        let topics = insight.inputs.iter().flat_map(|input| &input.matched);
        let inputs = vertices_of(global, topics.map(String::as_str))?;
        shown.push(ShownInsight { insight, inputs });
    }
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&Shown { insights: shown })?,
        _ => {
            let now = skopos_shm::now();
            for of in &shown {
                print(&mut out, &of.insight, &of.inputs, now)?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print(
    out: &mut Out,
    insight: &VertexStatus,
    inputs: &[VertexStatus],
    now: Timestamp,
) -> Result<(), Failure> {
    out.line(out.bold(&insight.topic))?;
    out.line(format!("  {}", value(insight)))?;
    if let Ok(topic) = insight.topic.parse()
        && let Some(metric) = schema::lookup(&topic)
    {
        out.line(format!("  {}", metric.help))?;
    }
    if let Some(formula) = &insight.formula {
        out.line(format!("  = {formula}"))?;
    }
    // The age of its inputs is not the reason why an insight is unknown.
    match &insight.oldest {
        _ if insight.unknown.is_some() => {}
        Some(oldest) => out.line(format!("  {}, as {oldest} is", age(insight, now)))?,
        None => out.line(format!("  {}", age(insight, now)))?,
    }
    let mut rows = Vec::new();
    for input in &insight.inputs {
        if input.matched_total == 0 {
            let why = input.missing.as_deref().unwrap_or("no such topic");
            rows.push(vec![format!("  {}", input.name), input.pattern.clone(), why.to_owned()]);
        }
        for topic in &input.matched {
            let known = inputs.iter().find(|v| v.topic == *topic);
            let told = known.map_or("gone".to_owned(), |v| match v.unknown {
                None => format!("{}  ({})", value(v), age(v, now)),
                Some(_) => value(v),
            });
            rows.push(vec![format!("  {}", input.name), topic.clone(), told]);
        }
        let more = input.matched_total - input.matched.len();
        if more > 0 {
            rows.push(vec![format!("  {}", input.name), format!("and {more} more")]);
        }
    }
    out.table(&rows, &[])?;
    for refused in &insight.refused {
        out.line(format!("  not taken: {}: {}", refused.topic, refused.reason))?;
    }
    let mean = insight.total_ns.checked_div(insight.runs).unwrap_or(0);
    out.line(out.dim(&format!(
        "  computed {} times, {mean} ns each; {} topics are computed from it",
        insight.runs, insight.dependents_total
    )))?;
    Ok(())
}
