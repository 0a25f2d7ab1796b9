//! Help and wrong usage, in the style of every verb.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::failure::EXIT_FAILURE;

/// Columns of help in a pipe or a file: editors and mail wrap longer lines.
const COLUMNS: usize = 80;

/// Wraps the help of `command` at 80 columns unless standard output is a terminal.
pub fn wrapped(command: clap::Command) -> clap::Command {
    if std::io::stdout().is_terminal() { command } else { command.max_term_width(COLUMNS) }
}

/// Prints help and versions to standard output, and wrong usage to standard error as `error:` and `hint:`.
/// `hint` replaces the hints of the parser. Returns the exit code.
pub fn report(e: &clap::Error, hint: Option<String>) -> ExitCode {
    let is_help = matches!(
        e.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if is_help {
        let _ = e.print();
    } else {
        let text = in_our_style(&e.render().to_string(), hint);
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(EXIT_FAILURE))
}

/// Rewrites a message of the parser: the error, then hints, then the usage.
fn in_our_style(text: &str, hint: Option<String>) -> String {
    let (mut error, mut tips, mut usage) = (Vec::new(), Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(tip) = line.trim_start().strip_prefix("tip: ") {
            tips.push(tip.to_owned());
        } else if line.starts_with("Usage:") || !usage.is_empty() {
            usage.push(line);
        } else {
            error.push(line);
        }
    }
    // "For more information, try '--help'." stands where no hint is more useful.
    let is_general = |line: &&str| line.starts_with("For more information");
    error.retain(|line| !is_general(line));
    usage.retain(|line| !is_general(line));
    let mut hints = hint.map_or(tips, |hint| vec![hint]);
    if hints.is_empty() {
        hints.push("`--help` describes every option".to_owned());
    }
    let hints = hints.iter().map(|hint| format!("hint: {hint}\n"));
    let lines = |lines: Vec<&str>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    format!("{}{}{}", lines(error), hints.collect::<String>(), lines(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISTYPED: &str = "error: unrecognized subcommand 'wacth'\n\n  tip: a similar subcommand exists: 'watch'\n\nUsage: skopos <COMMAND>\n\nFor more information, try '--help'.\n";

    #[test]
    fn a_tip_of_the_parser_is_a_hint() {
        let expected = "error: unrecognized subcommand 'wacth'\nhint: a similar subcommand exists: 'watch'\nUsage: skopos <COMMAND>\n";
        assert_eq!(in_our_style(MISTYPED, None), expected);
    }

    #[test]
    fn a_hint_of_the_program_replaces_tips() {
        let text = in_our_style(MISTYPED, Some("did you mean `watch`?".to_owned()));
        let hints: Vec<&str> = text.lines().filter(|line| line.starts_with("hint: ")).collect();
        assert_eq!(hints, ["hint: did you mean `watch`?"]);
    }

    #[test]
    fn an_error_without_a_tip_points_to_help() {
        let text = in_our_style(
            "error: a value is required\n\nFor more information, try '--help'.\n",
            None,
        );
        assert_eq!(text, "error: a value is required\nhint: `--help` describes every option\n");
    }
}
