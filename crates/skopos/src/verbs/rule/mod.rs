//! `skopos rule list|history|test`: the rules of the hub, what they did, and what one would have done.

mod test;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use skopos_hub::client::Client;
use skopos_model::nearest_name;
use skopos_query::Limits;
use skopos_term::{Failure, Global};

use self::test::TestArgs;
use super::job::hub::{Hub, quoted};
use super::sql;

#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    #[command(subcommand)]
    pub(crate) verb: RuleVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RuleVerb {
    /// List the rules of the hub with their states
    #[command(before_help = "Example: skopos rule list")]
    List,
    /// Show what happened: events of rules and outcomes of actions, the latest first
    #[command(before_help = "Example: skopos rule history disk-full --limit 10")]
    History {
        /// Name of a rule [default: all rules]
        name: Option<String>,
        /// Most entries
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
    /// Try a rule of the configuration on recorded samples. Nothing is done. The exit code is 1 if it would not have fired
    #[command(before_help = "Example: skopos rule test disk-full --since 6h")]
    Test(TestArgs),
}

pub(crate) fn run(global: &Global, args: &RuleArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        RuleVerb::List => asked(
            global,
            "SELECT rule, state, firing, pending, action, target, dry_run, evaluated_at, reason \
             FROM rules ORDER BY rule",
        ),
        RuleVerb::History { name, limit } => {
            let only = match name {
                Some(name) => {
                    expect_known(global, name)?;
                    format!("WHERE rule = {} ", quoted(name))
                }
                None => String::new(),
            };
            let sql = format!(
                "SELECT time, rule, event, subject, outcome, attempts, why FROM rule_events \
                 {only}ORDER BY time DESC LIMIT {limit}"
            );
            asked(global, &sql)
        }
        RuleVerb::Test(args) => test::run(global, args),
    }
}

/// Checks that the hub has a rule, or that it had: a rule that is not configured any more has a past.
fn expect_known(global: &Global, name: &str) -> Result<(), Failure> {
    expect_hub(global)?;
    let hub = Hub::open(global)?;
    let past = format!("SELECT rule FROM rule_events WHERE rule = {} LIMIT 1", quoted(name));
    if !hub.rows(&past)?.is_empty() {
        return Ok(());
    }
    let rows = hub.rows("SELECT rule FROM rules ORDER BY rule")?;
    let names: Vec<&str> = rows.iter().filter_map(|row| row.get("rule")?.as_str()).collect();
    if names.contains(&name) {
        return Ok(());
    }
    let failure =
        Failure::no(format!("no rule `{name}` has acted, and the hub has no rule of this name"));
    Err(failure.hint(match nearest_name(name, names) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`skopos rule list` lists the rules".to_owned(),
    }))
}

/// Asks the hub, which alone knows.
fn asked(global: &Global, statement: &str) -> Result<ExitCode, Failure> {
    expect_hub(global)?;
    sql::answer_for(global, statement)
}

fn expect_hub(global: &Global) -> Result<(), Failure> {
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    if Client::open(&dir, Limits::default())?.is_none() {
        return Err(Failure::new("rules are evaluated by a hub, and no hub runs on this machine")
            .hint("start one with `skopos up` or `skopos hub`; `skopos rule test` needs none"));
    }
    Ok(())
}
