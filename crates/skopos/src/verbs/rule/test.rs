//! `skopos rule test NAME`: when a rule would have fired on recorded samples.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use skopos_agent::config::Config;
use skopos_hub::Local;
use skopos_hub::config::{HubConfig, RuleConfig};
use skopos_hub::rule_trial::{Trial, try_rule};
use skopos_model::{Timestamp, duration, nearest_name};
use skopos_shm::Host;
use skopos_steer::rule::{Event, Kind};
use skopos_term::format::{count, printable};
use skopos_term::{Failure, Global, Out, Style};

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Name of the rule
    name: String,
    /// Read this configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Begin this long ago
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse, allow_hyphen_values = true)]
    since: Duration,
    /// End this long ago
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse, allow_hyphen_values = true)]
    until: Duration,
    /// Time between two evaluations [default: as configured]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    every: Option<Duration>,
    /// Include the history in this folder
    #[arg(long, value_name = "DIR")]
    history: Option<PathBuf>,
}

/// `docs/json/rule_test.schema.json`.
#[derive(Serialize)]
struct TrialJson<'a> {
    rule: &'a str,
    from: String,
    to: String,
    moments: u64,
    samples: usize,
    topics: usize,
    /// Number of times that a subject began to fire.
    fired: usize,
    /// Number of subjects that fire at the end.
    firing: usize,
    events: Vec<EventJson<'a>>,
}

#[derive(Serialize)]
struct EventJson<'a> {
    time: String,
    time_ns: i64,
    event: &'static str,
    subject: &'a str,
    since: String,
    since_ns: i64,
    firing: bool,
    /// `due`, or the reason why no action is due.
    action: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
}

impl<'a> EventJson<'a> {
    fn of(event: &'a Event) -> Self {
        Self {
            time: event.at.to_string(),
            time_ns: event.at.as_nanos(),
            event: event.kind.name(),
            subject: &event.subject,
            since: event.since.to_string(),
            since_ns: event.since.as_nanos(),
            firing: event.is_firing,
            action: event.due.reason().unwrap_or("due"),
            reason: &event.reason,
        }
    }
}

pub(crate) fn run(global: &Global, args: &TestArgs) -> Result<ExitCode, Failure> {
    let config = Config::load(args.config.as_deref())?;
    let mut rule = rule(HubConfig::of(&config)?.rules, &args.name)?;
    if let Some(every) = args.every {
        if every.is_zero() {
            return Err(Failure::new("`--every` is above zero"));
        }
        rule.every = every;
    }
    if args.until >= args.since {
        return Err(Failure::new("`--until` is shorter ago than `--since`"));
    }
    let host = match &global.dir {
        Some(dir) => Host::open_dirs(vec![dir.clone()])?,
        None => Host::open()?,
    };
    let mut local = Local::new(host);
    if let Some(folder) = &args.history {
        if !folder.is_dir() {
            return Err(Failure::new(format!("there is no folder {}", folder.display())));
        }
        local = local.with_history(folder.clone());
    }
    let now = skopos_shm::now();
    let (from, to) = (now.saturating_sub(args.since), now.saturating_sub(args.until));
    let trial = try_rule(&rule, Arc::new(local), from..=to)?;
    let fired = trial.events.iter().filter(|event| event.kind == Kind::Firing).count();
    let mut out = Out::new(global.style());
    match out.style {
        Style::Json => out.json(&TrialJson {
            rule: &rule.name,
            from: from.to_string(),
            to: to.to_string(),
            moments: trial.moments,
            samples: trial.samples,
            topics: trial.topics,
            fired,
            firing: trial.firing,
            events: trial.events.iter().map(EventJson::of).collect(),
        })?,
        Style::Plain => {
            for event in &trial.events {
                let EventJson { time, event, subject, action, reason, .. } = EventJson::of(event);
                let (subject, reason) = (printable(subject), printable(reason));
                out.line(format!("{time}\t{event}\t{subject}\t{action}\t{reason}"))?;
            }
        }
        Style::Human => human(&mut out, (&rule, from), &trial, fired)?,
    }
    out.flush()?;
    Ok(if fired > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Returns the rule of a name.
fn rule(rules: Vec<RuleConfig>, name: &str) -> Result<RuleConfig, Failure> {
    let names: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    rules.into_iter().find(|rule| rule.name == name).ok_or_else(|| {
        let failure = Failure::new(format!("the configuration has no rule `{name}`"));
        match nearest_name(name, names.iter().map(String::as_str)) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None if names.is_empty() => {
                failure.hint("`--config FILE` names the file with the rules")
            }
            None => failure.hint(format!("the rules are `{}`", names.join("`, `"))),
        }
    })
}

fn human(
    out: &mut Out,
    (rule, from): (&RuleConfig, Timestamp),
    trial: &Trial,
    fired: usize,
) -> Result<(), Failure> {
    let mut rows = vec![["TIME", "EVENT", "ACTION", "SUBJECT"].map(str::to_owned).to_vec()];
    for event in &trial.events {
        let EventJson { time, event, subject, action, reason, .. } = EventJson::of(event);
        let subject = printable(if reason.is_empty() { subject } else { reason });
        rows.push([time.as_str(), event, action, subject.as_str()].map(str::to_owned).to_vec());
    }
    if rows.len() > 1 {
        out.table(&rows, &[])?;
    }
    let title = match fired {
        0 => format!("{}: would not have fired", rule.name),
        1 => format!("{}: would have fired once", rule.name),
        times => format!("{}: would have fired {times} times", rule.name),
    };
    let title = out.bold(&title);
    out.line(title)?;
    let firing = match trial.firing {
        1 => "1 subject fires".to_owned(),
        subjects => format!("{subjects} subjects fire"),
    };
    out.line(format!(
        "  evaluated at {} from {from}, over {} of {}; {firing} at the end",
        count(trial.moments, "moment"),
        count(trial.samples as u64, "sample"),
        count(trial.topics as u64, "topic")
    ))?;
    Ok(())
}
