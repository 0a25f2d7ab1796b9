//! `skopos jobs`: lists the jobs of the site.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use skopos_model::duration;
use skopos_model::job::JobState;
use skopos_model::nearest_name;
use skopos_model::task::{RESOURCES, Resource, parse_bytes};
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
    /// Only jobs with this node
    #[arg(long, value_name = "NODE")]
    host: Option<String>,
    /// Only jobs with this tag; repeat it for several, all of which a job must have
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only jobs of which the first process ended so
    #[arg(long, value_name = "KIND", value_parser = ["normal", "signal", "limit", "running", "unknown"])]
    exit: Option<String>,
    /// Only jobs with these words in name, command, tags, details or findings; `grom*` is the beginning of a word
    #[arg(long, value_name = "WORDS")]
    text: Option<String>,
    /// Only jobs that began within this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    since: Option<Duration>,
    /// Only jobs that began longer ago than this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    until: Option<Duration>,
    /// Only jobs that used as much of a resource: `memory>1GiB`, `cpu<=2h`; repeat it for several
    #[arg(long, value_name = "CONDITION", value_parser = Used::parse)]
    used: Vec<Used>,
    /// Order, greatest first
    #[arg(long, value_enum, default_value = "started")]
    sort: Sort,
    /// Most jobs
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
}

/// A condition on a resource that a job used.
#[derive(Clone, Debug, PartialEq)]
struct Used {
    resource: &'static str,
    operator: &'static str,
    value: f64,
}

impl Used {
    /// Reads `memory>1GiB`.
    fn parse(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` is not a condition; one looks like `memory>1GiB`");
        let at = text.find(['<', '>', '=']).ok_or_else(form)?;
        let (name, rest) = text.split_at(at);
        let operator = [">=", "<=", ">", "<", "="].into_iter().find(|it| rest.starts_with(it));
        let operator = operator.ok_or_else(form)?;
        let (name, value) = (name.trim(), rest[operator.len()..].trim());
        let is_it = |of: &&Resource| of.name == name || (!name.is_empty() && of.alias == name);
        let resource = RESOURCES.iter().find(is_it);
        let resource = resource.ok_or_else(|| match nearest_name(name, names()) {
            Some(near) => format!("there is no resource `{name}`; did you mean `{near}`?"),
            None => format!("there is no resource `{name}`"),
        })?;
        let (value, expected) = match resource.unit {
            "bytes" => (parse_bytes(value), "a size looks like `4GiB`, `500MB` or `1048576`"),
            "seconds" => (
                duration::parse(value).ok().map(|it| it.as_secs_f64()),
                "a time looks like `30s`, `1h30m` or `2h`",
            ),
            _ => (value.parse().ok(), "a number looks like `100`"),
        };
        let value = value.filter(|value: &f64| value.is_finite() && *value >= 0.0);
        let value = value.ok_or_else(|| format!("`{text}`: {expected}"))?;
        Ok(Self { resource: resource.name, operator, value })
    }
}

/// Returns all names of resources.
fn names() -> impl Iterator<Item = &'static str> {
    let all = RESOURCES.iter().flat_map(|of| [of.name, of.alias]);
    all.filter(|name| !name.is_empty())
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
        ("exit", &args.exit),
    ] {
        conditions.extend(value.as_ref().map(|value| format!("\"{column}\" = {}", quoted(value))));
    }
    conditions.extend(args.host.iter().map(|host| format!("has(hosts, {})", quoted(host))));
    conditions.extend(args.tag.iter().map(|tag| format!("has(tags, {})", quoted(tag))));
    conditions.extend(args.text.iter().map(|text| format!("has_words(text, {})", quoted(text))));
    conditions.extend(args.used.iter().map(|used| {
        let Used { resource, operator, value } = used;
        format!("{resource} {operator} {value:?}")
    }));
    for (ago, operator) in [(args.since, ">="), (args.until, "<")] {
        let Some(ago) = ago else { continue };
        let time = now.checked_sub(ago).unwrap_or(UNIX_EPOCH);
        let nanos = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        conditions.push(format!("started_at {operator} to_timestamp_nanos({nanos})"));
    }
    let conditions = match conditions.is_empty() {
        true => String::new(),
        false => format!("WHERE {} ", conditions.join(" AND ")),
    };
    format!(
        "SELECT job, \"user\", project, application, state, started_at, ended_at, nodes, cpu_seconds, \
         resident_bytes_max, samples, lost, copy_of FROM jobs {conditions}ORDER BY {} DESC NULLS LAST, job LIMIT {}",
        args.sort.column(),
        args.limit
    )
}

/// Returns a text of SQL. A quote within it is doubled, so that it does not end the text.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: JobsArgs,
    }

    fn parsed(words: &str) -> Result<JobsArgs, String> {
        let words = ["jobs"].into_iter().chain(words.split_whitespace());
        Command::try_parse_from(words).map(|it| it.args).map_err(|e| e.to_string())
    }

    #[test]
    fn options_become_conditions_that_the_catalogue_applies() {
        let args = parsed(
            "--host n01 --tag a --tag it's --exit limit --text grom* --since 10s --until 5s \
             --used memory>=1GiB --used cpu_seconds<2m --limit 3",
        );
        let statement = statement(&args.expect("arguments"), UNIX_EPOCH + Duration::from_secs(15));
        let expected = "WHERE \"exit\" = 'limit' AND has(hosts, 'n01') AND has(tags, 'a') AND \
             has(tags, 'it''s') AND has_words(text, 'grom*') AND resident_bytes_max >= 1073741824.0 AND \
             cpu_seconds < 120.0 AND started_at >= to_timestamp_nanos(5000000000) AND \
             started_at < to_timestamp_nanos(10000000000) ORDER BY started_at DESC NULLS LAST, job LIMIT 3";
        assert!(statement.ends_with(expected), "{statement}");
    }

    #[test]
    fn conditions_on_resources_that_are_not_valid_are_refused_with_what_would_be() {
        for (text, expected) in [
            ("memory", "one looks like `memory>1GiB`"),
            ("memry>1", "did you mean `memory`?"),
            ("memory>1h", "a size looks like `4GiB`"),
            ("cpu>=1GiB", "a time looks like `30s`"),
            ("cores<x", "a number looks like `100`"),
        ] {
            let refused = parsed(&format!("--used {text}")).expect_err("a refusal");
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    #[test]
    fn values_of_options_stay_texts() {
        let mut args = parsed("--state out_of_memory --since 5s --sort cpu --limit 3");
        if let Ok(args) = &mut args {
            args.user = Some("o'hara' OR 1=1 --".to_owned());
        }
        let args = args.expect("arguments");
        let statement = statement(&args, UNIX_EPOCH + Duration::from_secs(15));
        let expected = "WHERE \"user\" = 'o''hara'' OR 1=1 --' AND \"state\" = 'out_of_memory' AND \
             started_at >= to_timestamp_nanos(10000000000) ORDER BY cpu_seconds DESC NULLS LAST, job LIMIT 3";
        assert!(statement.ends_with(expected), "{statement}");
    }
}
