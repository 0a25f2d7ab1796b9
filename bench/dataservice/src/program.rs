//! The program: its verbs, which another program can offer together with a recorder of its own.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::tracer::Start;
use crate::verbs;

/// A composed data service that Skopos watches.
#[derive(Parser, Debug)]
#[command(name = "skopos-dataservice", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Run a case of the paper with all its processes: `case c1 --trace FOLDER`.
    Case(verbs::case::Arguments),
    /// Run C1 to C7 in turn, and compare their times.
    Cases(verbs::cases::Arguments),
    /// Print where the time of the cases mobject and sonata goes, as JSON.
    Figures,
    /// Measure the overhead of recording.
    Overhead(verbs::overhead::Arguments),
    /// Run a server.
    Server(verbs::server::Arguments),
    /// Run a client.
    Client(verbs::client::Arguments),
}

/// Runs the verb that `words` name; the first word is the name of the program. `start` starts the recorder that the program
/// brings, for processes with a collector. Returns 2 after a failure, which is printed.
pub fn run(words: impl IntoIterator<Item = OsString>, start: Option<Start>) -> ExitCode {
    let result = match Arguments::parse_from(words).verb {
        Verb::Case(arguments) => verbs::case::run(&arguments),
        Verb::Cases(arguments) => {
            verbs::options::launcher().and_then(|launcher| verbs::cases::run(&arguments, &launcher))
        }
        Verb::Figures => {
            verbs::options::launcher().and_then(|launcher| verbs::figures::run(&launcher))
        }
        Verb::Overhead(arguments) => verbs::options::launcher()
            .and_then(|launcher| verbs::overhead::run(&arguments, &launcher)),
        Verb::Server(arguments) => verbs::server::run(&arguments, start),
        Verb::Client(arguments) => verbs::client::run(&arguments, start),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            verbs::say_failure(&error);
            ExitCode::from(2)
        }
    }
}
