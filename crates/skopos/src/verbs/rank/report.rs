//! `skopos rank report CANDIDATE SECONDS`: the outcome of a request. Programs send many at once to the control socket.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use skopos_agent::ask::report_outcomes;
use skopos_agent::control::OutcomeReport;
use skopos_steer::rank::MAX_OUTCOME_SECONDS;
use skopos_term::{Failure, Global, Out, Style};

/// `docs/json/rank_report.schema.json`.
#[derive(Serialize)]
struct Response<'a> {
    candidate: &'a str,
    taken: usize,
}

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Candidate that served the request
    candidate: String,
    /// Latency in seconds, or the time until the request failed
    seconds: f64,
    /// Profile of the ranking [default: the only one of the agent]
    #[arg(long)]
    profile: Option<String>,
    /// The request failed
    #[arg(long)]
    failed: bool,
    /// Probability with which the candidate was chosen [default: its weight]
    #[arg(long, value_name = "SHARE")]
    probability: Option<f64>,
}

pub(super) fn run(global: &Global, args: &ReportArgs) -> Result<ExitCode, Failure> {
    let ReportArgs { candidate, seconds, profile, failed, probability } = args;
    // The request to the agent is JSON, which has no NaN and no infinity.
    if !(0.0..=MAX_OUTCOME_SECONDS).contains(seconds) {
        return Err(Failure::new(format!("`{seconds}` is not a latency"))
            .hint(format!("a number of seconds from 0 to {MAX_OUTCOME_SECONDS}, such as 0.0012")));
    }
    if let Some(wrong) = probability.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
        return Err(Failure::new(format!("`{wrong}` is not the probability of a choice"))
            .hint("a number above 0 and at most 1; without it, the weight of the candidate"));
    }
    let outcome = OutcomeReport {
        candidate: candidate.clone(),
        seconds: *seconds,
        failed: *failed,
        probability: *probability,
    };
    let (taken, refusal) = report_outcomes(global, profile.as_deref(), vec![outcome])?;
    if let Some(refusal) = refusal {
        return Err(Failure::no(refusal)
            .hint("`skopos rank` shows the candidates; a latency is a number of seconds"));
    }
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&Response { candidate, taken })?,
        Style::Plain => out.line(candidate)?,
        Style::Human => out.line(format!("reported {seconds} s of {candidate}"))?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
