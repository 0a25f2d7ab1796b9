//! `skopos-bench fill-history`: writes a made-up history for benchmarks.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use skopos_shm::now;

use skopos_term::Failure;
use skopos_term::Global;
mod fill;

pub(crate) use self::fill::{Shape, fill};
use skopos_term::Out;

#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    /// The folder, which should be empty
    folder: PathBuf,
    /// Number of samples in all
    #[arg(long, default_value_t = 100_000_000)]
    samples: u64,
    /// Number of nodes
    #[arg(long, default_value_t = 100)]
    nodes: u64,
    /// Number of topics of each node
    #[arg(long, default_value_t = 100)]
    topics: u64,
}

pub(crate) fn run(global: &Global, args: &FillArgs) -> Result<ExitCode, Failure> {
    let FillArgs { folder, samples, nodes, topics } = args;
    let shape = Shape { samples: *samples, nodes: *nodes, topics: *topics };
    let filled = fill(folder, shape, now())?;
    let mut out = Out::new(global.style());
    out.line(format!("{filled} samples in {}", folder.display()))?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
