//! The command line, and the verb that does what it says.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};
use skopos_model::nearest_name;
use skopos_node::NodeArgs;
use skopos_term::{Failure, Global};

use crate::{complete, verbs};

/// Monitoring whose first reader is a program.
#[derive(Debug, Parser)]
#[command(
    name = "skopos",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    before_help = "Example: skopos up            watch this machine until Ctrl-C\n         \
                   skopos top           look at it, from another terminal\n         \
                   skopos get mem/available_bytes"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Watch this machine until Ctrl-C: an agent, and a hub for this machine
    #[command(before_help = "Example: skopos up --for 30s")]
    Up(verbs::up::UpArgs),
    /// Watch this machine as a lean daemon
    #[command(before_help = "Example: skopos agent --interval 5s")]
    Agent(NodeArgs),
    /// Run one command, measure what it uses and keep it within limits
    #[command(
        before_help = "Example: skopos run --limit memory=4GiB,wall=2h --report out -- make -j2"
    )]
    Run(verbs::run::RunArgs),
    /// Keep reports of tasks, and show the resources that the tasks of a class used
    #[command(before_help = "Example: skopos archive import out && skopos archive stats make")]
    Archive(verbs::archive::ArchiveArgs),
    /// List the jobs of the site, running and finished
    #[command(before_help = "Example: skopos jobs --user ann --state failed")]
    Jobs(verbs::jobs::JobsArgs),
    /// Record the jobs of Slurm: a prolog and an epilog for slurm.conf
    #[command(before_help = "Example: skopos slurm prolog   (in the program of PrologSlurmctld)")]
    Slurm(verbs::slurm::SlurmArgs),
    /// Make the catalogue of jobs again from the segments, print it, or compare the two
    #[command(before_help = "Example: skopos mds verify")]
    Mds(verbs::mds::MdsArgs),
    /// Show, compare, export or tag a job, or import tasks of an archive
    #[command(before_help = "Example: skopos job show 4711")]
    Job(verbs::job::JobArgs),
    /// Analyse calls of RPC services: callpaths, requests, critical paths
    #[command(before_help = "Example: skopos trace profile --trace traces")]
    Trace(verbs::trace::TraceArgs),
    /// Propose an allocation for the next task of a class
    #[command(before_help = "Example: skopos estimate make --minimize waste")]
    Estimate(verbs::estimate::EstimateArgs),
    /// Show this machine live
    #[command(before_help = "Example: skopos top   (? for help, q to leave)")]
    Top(verbs::top::TopArgs),
    /// List topics
    #[command(before_help = "Example: skopos ls 'block/**'")]
    Ls(verbs::ls::LsArgs),
    /// Read topics once
    #[command(before_help = "Example: skopos get mem/available_bytes load/load_1m")]
    Get(verbs::get::GetArgs),
    /// Follow topics: each change as it happens
    #[command(before_help = "Example: skopos watch 'cpu/total/*'")]
    Watch(verbs::watch_args::WatchArgs),
    /// Record topics into trace files, to be replayed
    #[command(
        before_help = "Example: skopos record 'block/*/written_bytes_total' --for 5m --out traces"
    )]
    Record(verbs::record::RecordArgs),
    /// Publish a fact of your own
    #[command(before_help = "Example: skopos publish my-app/queue/depth 17")]
    Publish(verbs::publish::PublishArgs),
    /// Follow many nodes, and answer questions about all of them
    #[command(before_help = "Example: skopos hub --listen tls/0.0.0.0:7447")]
    Hub(verbs::hub::HubArgs),
    /// Certificates and tokens of a site: who joins, and who asks
    #[command(before_help = "Example: skopos pki ls")]
    Pki(verbs::pki::PkiArgs),
    /// Get the certificate of this node from the hub of a site
    #[command(before_help = "Example: skopos join hub1 --token $(ssh hub1 skopos pki token)")]
    Join(verbs::join::JoinArgs),
    /// Join a hub with simulated nodes, to see how it copes with many
    #[command(
        before_help = "Example: skopos simulate --nodes 100 --for 1m --connect tls/127.0.0.1:7447"
    )]
    Simulate(verbs::simulate::SimulateArgs),
    /// Ask in SQL
    #[command(
        before_help = "Example: skopos sql \"SELECT * FROM latest WHERE topic LIKE '%/load/%'\""
    )]
    Sql(verbs::sql::SqlArgs),
    /// Measure the speed of a device once, for insights that compare with it
    #[command(before_help = "Example: skopos calibrate nvme0n1   (or any folder on it)")]
    Calibrate(verbs::calibrate::CalibrateArgs),
    /// Show insights: values computed from facts, with their formulas and inputs
    #[command(before_help = "Example: skopos insight explain msca")]
    Insight(verbs::insight::InsightArgs),
    /// Show rules and what they did, or try one on recorded samples
    #[command(before_help = "Example: skopos rule test disk-full --since 6h")]
    Rule(verbs::rule::RuleArgs),
    /// Show which topics are computed from which, how often they change and how old they are
    #[command(before_help = "Example: skopos graph --dot | dot -Tsvg > graph.svg")]
    Graph(verbs::graph::GraphArgs),
    /// Show the order of candidates that the agent ranks, such as replicas, with weights and reasons
    #[command(before_help = "Example: skopos rank --profile reads --explain")]
    Rank(verbs::rank::RankArgs),
    /// Build a small network on this machine, to learn and to test with
    #[command(before_help = "Example: skopos lab up --example --agents")]
    Lab(verbs::lab::LabArgs),
    /// Check what this machine allows and what is running
    #[command(before_help = "Example: skopos doctor")]
    Doctor,
    /// Train the predictor, or measure its errors
    #[command(before_help = "Example: skopos delphi score mem/available_bytes")]
    Delphi(verbs::delphi::DelphiArgs),
    /// Print a shell's completion script
    #[command(before_help = "Example: echo 'source <(skopos completion bash)' >> ~/.bashrc")]
    Completion(verbs::completion::CompletionArgs),
    /// Print the manual page
    #[command(before_help = "Example: skopos man | man -l -")]
    Man(verbs::man::ManArgs),
}

/// Returns a hint about wrong usage that is better than the parser's, if there is one.
pub(crate) fn hint(e: &clap::Error, args: &[String]) -> Option<String> {
    match e.kind() {
        ErrorKind::InvalidSubcommand => Some(nearest_verb(e, args)),
        ErrorKind::UnknownArgument => command_of_run(e, args),
        ErrorKind::ValueValidation => without_sign(e),
        _ => None,
    }
}

/// Suggests a verb for a mistyped one: `tpo` is `top`.
fn nearest_verb(e: &clap::Error, args: &[String]) -> String {
    let Some(ContextValue::String(typed)) = e.get(ContextKind::InvalidSubcommand) else {
        return "`skopos --help` lists the verbs".to_owned();
    };
    let root = Cli::command();
    let before = args.iter().skip(1).take_while(|word| *word != typed);
    let (path, parent) = before.fold(("skopos".to_owned(), &root), |(path, command), word| {
        match command.find_subcommand(word) {
            Some(verb) => (format!("{path} {word}"), verb),
            None => (path, command),
        }
    });
    match nearest_name(typed, parent.get_subcommands().map(clap::Command::get_name)) {
        Some(verb) => format!("did you mean `{path} {verb}`?"),
        None => format!("`{path} --help` lists the verbs"),
    }
}

/// Suggests `--` for `skopos run make -j2`, where the options of the command stand among those of the verb.
fn command_of_run(e: &clap::Error, args: &[String]) -> Option<String> {
    let ContextValue::String(wrong) = e.get(ContextKind::InvalidArg)? else { return None };
    if wrong.starts_with('-') {
        return None;
    }
    let verb = args.iter().position(|word| word == "run")?;
    let at = verb + args[verb..].iter().position(|word| word == wrong)?;
    let (own, command) = (args[verb..at].join(" "), args[at..].join(" "));
    Some(format!("the command comes after `--`: skopos {own} -- {command}"))
}

/// Suggests a value without its sign: an hour ago is `--since 1h`, and not `--since -1h`.
fn without_sign(e: &clap::Error) -> Option<String> {
    let ContextValue::String(typed) = e.get(ContextKind::InvalidValue)? else { return None };
    let value = typed.strip_prefix('-').filter(|it| it.starts_with(|c: char| c.is_ascii_digit()));
    value.map(|value| format!("the value is not negative; did you mean `{value}`?"))
}

/// Runs the verb that the user typed.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let global = &cli.global;
    match cli.verb {
        Verb::Up(args) => verbs::up::run(global, &args),
        Verb::Agent(args) => verbs::agent::run(global, &args),
        Verb::Run(args) => verbs::run::run(global, &args),
        Verb::Archive(args) => verbs::archive::run(global, &args),
        Verb::Jobs(args) => verbs::jobs::run(global, &args),
        Verb::Slurm(args) => verbs::slurm::run(global, &args),
        Verb::Mds(args) => verbs::mds::run(global, &args),
        Verb::Job(args) => verbs::job::run(global, &args),
        Verb::Trace(args) => verbs::trace::run(global, &args),
        Verb::Estimate(args) => verbs::estimate::run(global, &args),
        Verb::Top(args) => verbs::top::run(global, &args),
        Verb::Ls(args) => verbs::ls::run(global, &args),
        Verb::Get(args) => verbs::get::run(global, &args),
        Verb::Watch(args) => verbs::watch::run(global, &args),
        Verb::Record(args) => verbs::record::run(global, &args),
        Verb::Publish(args) => verbs::publish::run(global, &args),
        Verb::Hub(args) => verbs::hub::run(global, &args),
        Verb::Pki(args) => verbs::pki::run(global, &args),
        Verb::Join(args) => verbs::join::run(global, &args),
        Verb::Simulate(args) => verbs::simulate::run(global, &args),
        Verb::Sql(args) => verbs::sql::run(global, &args),
        Verb::Calibrate(args) => verbs::calibrate::run(global, &args),
        Verb::Insight(args) => verbs::insight::run(global, &args),
        Verb::Rule(args) => verbs::rule::run(global, &args),
        Verb::Graph(args) => verbs::graph::run(global, &args),
        Verb::Rank(args) => verbs::rank::run(global, &args),
        Verb::Lab(args) => verbs::lab::run(global, &args),
        Verb::Doctor => verbs::doctor::run(global),
        Verb::Delphi(args) => verbs::delphi::run(global, &args),
        Verb::Completion(args) => verbs::completion::run(complete::VARIABLE, &args),
        Verb::Man(args) => verbs::man::run(Cli::command(), &args),
    }
}
