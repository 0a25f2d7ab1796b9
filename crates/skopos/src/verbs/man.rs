//! `skopos man [VERB]…`: the manual page, as roff.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Command};
use skopos_term::Failure;

/// The word before the examples of a verb's help.
const EXAMPLE: &str = "Example:";

/// Exit codes and their meanings.
const EXIT_STATUS: [(&str, &str); 3] = [
    (
        "0",
        "The answer is yes, or the work is done. A reader that closes the pipe is not a failure.",
    ),
    ("1", "The answer is no: nothing matches, a value is too old, a check fails."),
    ("2", "Wrong usage, or a failure. Standard error has `error:`, the causes and `hint:`."),
];

/// The exit codes that only `skopos run` has.
const EXIT_STATUS_OF_RUN: (&str, &str) =
    ("other", "The exit code of the command, or 137 if a limit ended it.");

/// Environment variables and their meanings.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("SKOPOS_DIR", "Directory of the segments [default: /dev/shm/skopos-UID]."),
    ("SKOPOS_CONFIG", "The configuration file."),
    ("SKOPOS_STATE", "Directory of the archive of tasks and of calibrations."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME", "As in the XDG Base Directory Specification."),
    ("NO_COLOR", "If it is set, no colour is printed."),
    ("PAGER", "The program that shows long answers in the shell of `skopos sql` [default: less]."),
];

/// Files and their contents.
const FILES: [(&str, &str); 5] = [
    ("/dev/shm/skopos-UID/", "Segments with the latest samples, and the sockets of agent and hub."),
    ("~/.config/skopos/skopos.toml", "Configuration of a user."),
    ("/etc/skopos/skopos.toml", "Configuration of the machine."),
    ("/var/lib/skopos/", "Archive of tasks (tasks.sqlite) and calibrations of root."),
    ("~/.local/state/skopos/", "The same for any other user, and the history of `skopos sql`."),
];

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Print the page of this verb instead of the overview, such as `watch` or `archive import`
    pub(crate) verb: Vec<String>,
}

pub(crate) fn run(mut command: Command, args: &ManArgs) -> Result<ExitCode, Failure> {
    command.build();
    for verb in &args.verb {
        command = command.find_subcommand(verb).cloned().ok_or_else(|| {
            Failure::new(format!("there is no verb `{verb}`")).hint("`skopos --help` lists them")
        })?;
    }
    let name = [&["skopos".to_owned()], args.verb.as_slice()].concat().join("-");
    std::io::stdout().write_all(&page(&command, &name)?)?;
    Ok(ExitCode::SUCCESS)
}

fn page(command: &Command, name: &str) -> std::io::Result<Vec<u8>> {
    let source = concat!("skopos ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command.clone()).title(name).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    examples(command, &mut page)?;
    let status =
        EXIT_STATUS.into_iter().chain((name == "skopos-run").then_some(EXIT_STATUS_OF_RUN));
    list("EXIT STATUS", status, &mut page)?;
    list("ENVIRONMENT", ENVIRONMENT.into_iter(), &mut page)?;
    list("FILES", FILES.into_iter(), &mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// Writes the section of examples: those of the help, and those of the verbs below.
fn examples(command: &Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let own = command.get_before_help().map(ToString::to_string);
    let below = command.get_subcommands().filter_map(Command::get_before_help);
    let texts = own.into_iter().chain(below.map(ToString::to_string));
    writeln!(page, ".SH EXAMPLES")?;
    for text in texts {
        for line in text.trim_start_matches(EXAMPLE).lines() {
            writeln!(page, ".PP\n.nf\n{}\n.fi", escaped(line.trim()))?;
        }
    }
    Ok(())
}

fn list<'a>(
    title: &str,
    entries: impl Iterator<Item = (&'a str, &'a str)>,
    page: &mut Vec<u8>,
) -> std::io::Result<()> {
    writeln!(page, ".SH \"{title}\"")?;
    for (term, meaning) in entries {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(meaning))?;
    }
    Ok(())
}

/// Escapes text for roff: backslashes, hyphens, quotes that it would replace, and a line's first character.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    let text = text.replace('`', "\\(ga").replace('~', "\\(ti");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_roff() {
        assert_eq!(escaped("a -b 'c' `d` ~/e \\f"), "a \\-b \\(aqc\\(aq \\(gad\\(ga \\(ti/e \\ef");
        assert_eq!(escaped(".x"), "\\&.x");
    }
}
