//! `skopos-dataservice`: the service, its cases, and measurements of the overhead of watching it.
#![forbid(unsafe_code)]

mod verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Case(arguments) => verbs::case::run(&arguments),
        Verb::Cases(arguments) => {
            verbs::options::launcher().and_then(|launcher| verbs::cases::run(&arguments, &launcher))
        }
        Verb::Figures => {
            verbs::options::launcher().and_then(|launcher| verbs::figures::run(&launcher))
        }
        Verb::Overhead(arguments) => verbs::options::launcher()
            .and_then(|launcher| verbs::overhead::run(&arguments, &launcher)),
        Verb::Server(arguments) => verbs::server::run(&arguments),
        Verb::Client(arguments) => verbs::client::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            verbs::say_failure(&error);
            ExitCode::from(2)
        }
    }
}
