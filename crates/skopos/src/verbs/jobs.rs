//! `skopos jobs`: lists the jobs of the site.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use skopos_model::duration;
use skopos_model::job::JobState;
use skopos_term::{Failure, Global};

use super::sql;

#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// Only jobs of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only jobs of this project
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Only jobs of this application
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Only jobs in this state
    #[arg(long, value_name = "STATE", value_parser = states())]
    state: Option<String>,
    /// Only jobs that began within this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    since: Option<Duration>,
    /// Order, greatest first
    #[arg(long, value_enum, default_value = "started")]
    sort: Sort,
    /// Most jobs
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
}

/// Returns the parser of states, which have the names that SQL has.
fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(JobState::ALL.map(JobState::name))
}

/// The orders of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Started,
    Ended,
    Cpu,
    Memory,
    Nodes,
}

impl Sort {
    fn column(self) -> &'static str {
        match self {
            Self::Started => "started_at",
            Self::Ended => "ended_at",
            Self::Cpu => "cpu_seconds",
            Self::Memory => "resident_bytes_max",
            Self::Nodes => "nodes",
        }
    }
}

pub(crate) fn run(global: &Global, args: &JobsArgs) -> Result<ExitCode, Failure> {
    sql::answer_for(global, &statement(args, SystemTime::now()))
}

/// Returns the statement that lists the jobs.
fn statement(args: &JobsArgs, now: SystemTime) -> String {
    let mut conditions = Vec::new();
    for (column, value) in [
        ("user", &args.user),
        ("project", &args.project),
        ("application", &args.application),
        ("state", &args.state),
    ] {
        // A quote within a text is doubled, so a value cannot end it.
        conditions.extend(
            value.as_ref().map(|value| format!("\"{column}\" = '{}'", value.replace('\'', "''"))),
        );
    }
    if let Some(since) = args.since {
        let begin = now.checked_sub(since).unwrap_or(UNIX_EPOCH);
        let nanos = begin.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        conditions.push(format!("started_at >= to_timestamp_nanos({nanos})"));
    }
    let conditions = match conditions.is_empty() {
        true => String::new(),
        false => format!("WHERE {} ", conditions.join(" AND ")),
    };
    format!(
        "SELECT job, \"user\", project, application, state, started_at, ended_at, nodes, cpu_seconds, \
         resident_bytes_max, samples, lost FROM jobs {conditions}ORDER BY {} DESC NULLS LAST, job LIMIT {}",
        args.sort.column(),
        args.limit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_options_stay_texts() {
        let args = JobsArgs {
            user: Some("o'hara' OR 1=1 --".to_owned()),
            project: None,
            application: None,
            state: Some("out_of_memory".to_owned()),
            since: Some(Duration::from_secs(5)),
            sort: Sort::Cpu,
            limit: 3,
        };
        let statement = statement(&args, UNIX_EPOCH + Duration::from_secs(15));
        let expected = "WHERE \"user\" = 'o''hara'' OR 1=1 --' AND \"state\" = 'out_of_memory' AND \
             started_at >= to_timestamp_nanos(10000000000) ORDER BY cpu_seconds DESC NULLS LAST, job LIMIT 3";
        assert!(statement.ends_with(expected), "{statement}");
    }
}
