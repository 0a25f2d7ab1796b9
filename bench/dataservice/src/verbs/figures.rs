//! `skopos-dataservice figures`: the dominant callpaths of `mobject`, and the steps of a store of `sonata`.

use crate::Result;
use crate::case::figures::figures;
use crate::children::Launcher;
use crate::run::Run;
use crate::verbs::print_json;

/// Prints a raw run.
pub(crate) fn run(launcher: &Launcher) -> Result<()> {
    let note = "Times are sums over all calls of one run of each case, from its traces.";
    let mut run = Run::new("dataservice-figures", 1, &[note]);
    run.rows = figures(launcher)?;
    print_json(&run)
}
