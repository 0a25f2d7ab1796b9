//! The chores of this repository, a verb each: `cargo xtask tidy`.

#![forbid(unsafe_code)]

mod metadata;
mod reference;
mod results;
mod rust;
mod tidy;
mod tree;

use std::process::ExitCode;

const HELP: &str = "\
Example: cargo xtask tidy

Usage: cargo xtask <verb>

Verbs:
  tidy     Check what no compiler checks: crate arrows, unsafe homes, lengths, schema files, ...
  circles  Print every circle of modules with the lines that draw it
  results  Write the tables of results in README and docs from bench/runs
  reference  Write the pages of the reference that are made from schema/ and docs/json
  help     Print this
";

fn main() -> ExitCode {
    let verbs: Vec<String> = std::env::args().skip(1).collect();
    match verbs.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(),
        ["reference"] => reference::run(),
        ["results"] => results::run(),
        ["circles"] => tidy::circles(),
        ["help" | "--help" | "-h"] | [] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        other => {
            eprintln!("error: there is no verb `{}`", other.join(" "));
            eprintln!("hint: `cargo xtask help` lists them");
            ExitCode::from(2)
        }
    }
}
