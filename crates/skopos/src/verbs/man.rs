//! `skopos man [VERB]`: the manual page, as roff.

use clap::Args;
use std::io::Write as _;
use std::process::ExitCode;

use skopos_term::Failure;

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The page of one verb instead of the overview
    pub(crate) verb: Option<String>,
}

pub(crate) fn run(mut command: clap::Command, args: &ManArgs) -> Result<ExitCode, Failure> {
    command.build();
    let page_of = match &args.verb {
        None => clap_mangen::Man::new(command),
        Some(verb) => {
            let verb_command = command.find_subcommand(verb).cloned().ok_or_else(|| {
                Failure::new(format!("there is no verb `{verb}`"))
                    .hint("`skopos --help` lists them")
            })?;
            clap_mangen::Man::new(verb_command).title(format!("skopos-{verb}"))
        }
    };
    let mut page = Vec::new();
    page_of.render(&mut page)?;
    std::io::stdout().write_all(&page)?;
    Ok(ExitCode::SUCCESS)
}
