//! `skopos rank [CANDIDATE]...`: the last ranking of the agent of this machine.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use skopos_agent::ask::ranking;
use skopos_agent::control::{RankPage, RankedCandidate};
use skopos_model::{Timestamp, Unit, Value, duration};
use skopos_term::{Failure, Global, Out, Style, format};

use super::remote::{self, HubArgs};

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Candidates to show [default: all]
    candidates: Vec<String>,
    /// Profile of the ranking [default: the only one of the agent]
    #[arg(long)]
    profile: Option<String>,
    /// Show the parts of each score, which sum to it
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    remote: HubArgs,
}

pub(super) fn run(global: &Global, args: &ShowArgs) -> Result<ExitCode, Failure> {
    if let (Some(url), Some(profile)) = (&args.remote.hub, &args.profile) {
        return remote::run(global, &args.remote, (url, profile), &args.candidates);
    }
    let page = ranking(global, args.profile.as_deref(), &args.candidates)?;
    let mut out = Out::new(global.style());
    match out.style {
        // `docs/json/rank.schema.json`.
        Style::Json => out.json(&page)?,
        Style::Plain => {
            for c in &page.candidates {
                let RankedCandidate { place, candidate, weight, score, trust, state, .. } = c;
                out.line(format!("{place}\t{candidate}\t{weight}\t{score}\t{trust}\t{state}"))?;
            }
        }
        Style::Human => human(&mut out, &page, args.explain)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn human(out: &mut Out, page: &RankPage, explain: bool) -> Result<(), Failure> {
    let age = skopos_shm::now().since(Timestamp::from_nanos(page.at_ns));
    out.line(format!(
        "{}: ranked by {} {} ago, method {}",
        out.bold(&page.profile),
        page.node,
        duration::human(age),
        page.method
    ))?;
    if age.as_secs_f64() > page.valid_seconds {
        out.line("this ranking is not valid any more: the agent ranks no longer")?;
    }
    if page.native {
        out.line("nothing recent is known: the order is that of the configuration")?;
    }
    if explain {
        return explained(out, page);
    }
    let heads = ["", "candidate", "weight", "score", "confidence", "reasons"];
    let mut rows: Vec<Vec<String>> = vec![heads.map(|head| out.dim(head)).into()];
    for c in &page.candidates {
        rows.push(vec![
            c.place.to_string(),
            out.bold(&c.candidate),
            format!("{:.1} %", c.weight * 100.0),
            format!("{:.2}", c.score),
            confidence(c),
            c.reasons.join(", "),
        ]);
    }
    out.table(&rows, &[0, 2, 3])?;
    if let Some(error) = &page.record_error {
        out.line(format!("outcomes are not recorded: {error}"))?;
    }
    Ok(())
}

/// Prints each candidate with the parts of its score.
fn explained(out: &mut Out, page: &RankPage) -> Result<(), Failure> {
    for c in &page.candidates {
        let name = out.bold(&c.candidate);
        let weight = c.weight * 100.0;
        out.line(format!("{}. {name}  {weight:.1} % of requests, {}", c.place, confidence(c)))?;
        let mut rows = Vec::new();
        for part in &c.parts {
            let value = part.value.map(Value::F64);
            let value = value.map(|value| format!("value {}", format::value(&value, Unit::NONE)));
            let metric = page.metrics.iter().find(|metric| metric.name == part.name);
            let weight = metric.map(|m| format!("weight {:.2}", m.weight));
            let relaxed = metric.filter(|m| m.relaxed).map(|_| "collected less often".to_owned());
            let notes = [value, weight, part.fault.clone(), relaxed];
            let notes: Vec<String> = notes.into_iter().flatten().collect();
            // Rules that add nothing explain nothing.
            if metric.is_some() || part.part != 0.0 {
                let part_text = format!("{:+.4}", part.part);
                rows.push(vec![format!("   {}", part.name), part_text, notes.join(", ")]);
            }
        }
        rows.push(vec!["   score".to_owned(), format!("{:.4}", c.score), String::new()]);
        out.table(&rows, &[1])?;
    }
    Ok(())
}

/// Describes the measurements behind a score.
fn confidence(c: &RankedCandidate) -> String {
    let state = if c.state == "known" { String::new() } else { format!("{}, ", c.state) };
    let Some(age) = c.age_seconds.and_then(|age| Duration::try_from_secs_f64(age).ok()) else {
        return format!("{state}no recent value");
    };
    let (trust, samples) = (c.trust * 100.0, format::count(c.samples.into(), "sample"));
    format!("{state}{trust:.0} %, {samples}, {} old", duration::human(age))
}
