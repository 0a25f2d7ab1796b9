//! `skopos-dataservice client`: one client with its load, which begins with a line on the standard input.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;

use crate::load::Size;
use crate::process::{self, Work};
use crate::tracer::Start;
use crate::verbs::options::Process;
use crate::{Error, Result};

#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The load.
    #[arg(long, value_parser = PossibleValuesParser::new(["hepnos", "mobject", "sonata", "steady"]))]
    load: String,
    /// Path of the socket of a server; give it for each server.
    #[arg(long, required = true)]
    server: Vec<PathBuf>,
    /// The size of the load, as JSON: '{"events": 1024, "writers": 1, "window": 1}'.
    #[arg(long, default_value = "{}")]
    size: String,
    #[command(flatten)]
    process: Process,
}

pub(crate) fn run(arguments: &Arguments, start: Option<Start>) -> Result<()> {
    let common = arguments.process.common(start)?;
    let size: Size = serde_json::from_str(&arguments.size)
        .map_err(|source| Error::Json { doing: "read --size", source })?;
    let work = match arguments.load.as_str() {
        "mobject" => Work::Mobject,
        "sonata" => Work::Sonata,
        "steady" => Work::Steady,
        _ => Work::Hepnos,
    };
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout());
    process::consume(&common, work, &size, &arguments.server, &mut input, &mut output)
}
