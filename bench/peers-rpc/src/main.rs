//! `peers-rpc span [ROUNDS]` and `peers-rpc echo [ROUNDS]`: the cost of recording, side by side, as JSON on stdout.
//! `peers-rpc export [ROUNDS] COLLECTOR FOLDER` is `echo` with the spans of OpenTelemetry sent to a collector; the trace of
//! Skopos stays in the folder, to be sent afterwards. `peers-rpc overhead --collector URL` measures the data service with
//! Skopos and with OpenTelemetry; `peers-rpc server` and `client` are its processes.
//!
//! All variants run in one process, in turns, so that a slow moment of the machine meets all of them. Every round is kept.

mod span;
mod echo;
mod dataservice;
mod peers;
mod statistics;

use std::process::ExitCode;

/// Rounds unless the command says otherwise.
const ROUNDS: usize = 21;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(ROUNDS);
    let report = match words.first().map(String::as_str) {
        Some("overhead" | "server" | "client") => {
            return skopos_dataservice::program::run(std::env::args_os(), Some(dataservice::start));
        }
        Some("span") => span::run(rounds),
        Some("echo") => echo::run(rounds, None),
        Some("export") if words.len() == 4 => {
            let to = echo::Export { collector: words[2].clone(), folder: words[3].clone().into() };
            echo::run(rounds, Some(to))
        }
        _ => {
            eprintln!(
                "usage: peers-rpc span|echo [ROUNDS], peers-rpc export ROUNDS COLLECTOR FOLDER, or peers-rpc overhead \
                 [--collector URL]"
            );
            return ExitCode::from(2);
        }
    };
    println!("{report:#}");
    ExitCode::SUCCESS
}
