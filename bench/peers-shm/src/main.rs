//! `skopos-peers-shm [ROUNDS]`: the cost of the latest value in shared memory, side by side, as JSON on stdout.
//!
//! All variants run in one process, in turns, so that a slow moment of the machine meets all of them. Every round is kept.

mod board;
mod cases;
mod seqlock;
mod skopos;
mod statistics;

use std::process::ExitCode;

/// Rounds unless the command says otherwise.
const ROUNDS: usize = 21;

/// An error of any of the variants.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let word = std::env::args().nth(1);
    let rounds = word.map_or(Ok(ROUNDS), |word| word.parse());
    let report = match rounds {
        Ok(rounds @ 1..) => cases::run(rounds),
        _ => {
            eprintln!("usage: skopos-peers-shm [ROUNDS]");
            return ExitCode::from(2);
        }
    };
    match report {
        Ok(report) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}
