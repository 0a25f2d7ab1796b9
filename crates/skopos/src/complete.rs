//! Candidates for the shell's completion: topics and names of insights, read when the user presses Tab.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use skopos_shm::Host;

/// The variable by which a completion script asks for candidates.
pub(crate) const VARIABLE: &str = "SKOPOS_COMPLETE";

/// Verbs that take topics, with the name of that argument.
const OF_TOPICS: [(&str, &str); 4] =
    [("get", "topics"), ("watch", "patterns"), ("ls", "patterns"), ("record", "topics")];

/// Verbs below `insight` that take an insight, with the name of that argument.
const OF_INSIGHTS: [(&str, &str); 3] = [("ls", "pattern"), ("show", "name"), ("explain", "name")];

/// The first segment below the node of each topic that is an insight.
const INSIGHT: &str = "insight/";

/// Adds the candidates to the arguments of `command`.
pub(crate) fn with_candidates(command: Command) -> Command {
    let topics = || ArgValueCompleter::new(|typed: &OsStr| candidates(typed, topics()));
    let insights = || ArgValueCompleter::new(|typed: &OsStr| candidates(typed, insights()));
    let command = OF_TOPICS.into_iter().fold(command, |command, (verb, argument)| {
        command.mut_subcommand(verb, |verb| verb.mut_arg(argument, |arg| arg.add(topics())))
    });
    command.mut_subcommand("insight", |insight| {
        OF_INSIGHTS.into_iter().fold(insight, |insight, (verb, argument)| {
            insight.mut_subcommand(verb, |verb| verb.mut_arg(argument, |arg| arg.add(insights())))
        })
    })
}

fn candidates(typed: &OsStr, names: BTreeSet<String>) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    names.into_iter().filter(|name| name.starts_with(typed)).map(CompletionCandidate::new).collect()
}

/// Every topic, with and without its node.
fn topics() -> BTreeSet<String> {
    published().into_iter().flat_map(|(below, topic)| [below, topic]).collect()
}

/// Every insight, by its name and by its topic.
fn insights() -> BTreeSet<String> {
    let insights = published().into_iter().filter(|(below, _)| below.starts_with(INSIGHT));
    let name = |below: &str| below.rsplit('/').next().unwrap_or_default().to_owned();
    insights.flat_map(|(below, topic)| [name(&below), below, topic]).collect()
}

/// Topics of the live segments of this machine, without and with their nodes. An error has no candidates:
/// a shell has no place to show it.
fn published() -> Vec<(String, String)> {
    let host = match directory(std::env::args_os()) {
        Some(dir) => Host::open_dirs(vec![dir]),
        None => Host::open(),
    };
    let Ok(host) = host else { return Vec::new() };
    let vertices = host.segments().iter().flat_map(|segment| segment.vertices());
    let names = vertices.filter_map(|vertex| {
        let topic = vertex.topic().to_string();
        Some((topic.split_once('/')?.1.to_owned(), topic))
    });
    names.collect()
}

/// The value of `--dir` on the line that is being completed.
fn directory(line: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut words = line.filter_map(|word| word.into_string().ok());
    while let Some(word) = words.next() {
        match word.strip_prefix("--dir") {
            Some("") => return words.next().map(PathBuf::from),
            Some(rest) if rest.starts_with('=') => return Some(PathBuf::from(&rest[1..])),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_completed_argument_exists() {
        // `mut_arg` adds an argument that does not exist, and `debug_assert` refuses it.
        let command = with_candidates(crate::cli::Cli::command());
        command.debug_assert();
    }

    #[test]
    fn the_directory_is_read_from_the_line() {
        for (line, expected) in [
            ("skopos -- skopos get me", None),
            ("skopos -- skopos --dir /d get me", Some("/d")),
            ("skopos -- skopos get --dir=/d me", Some("/d")),
        ] {
            let words = line.split(' ').map(OsString::from);
            assert_eq!(directory(words), expected.map(PathBuf::from), "{line}");
        }
    }
}
