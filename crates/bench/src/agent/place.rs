//! The files of a run: the program under measurement, and its directories.

use std::path::PathBuf;

use crate::programs;
use crate::scratch::Scratch;
use skopos_term::Failure;

/// The directories of a run.
pub(crate) struct Place {
    /// In memory: the agents' directories.
    pub(crate) memory: Scratch,
    /// On disk: the programs, and the files that applications read and write.
    pub(super) disk: Scratch,
    /// A copy of the program. If other processes mapped the same file, PSS would count a part of the
    /// agent's text as theirs.
    pub(crate) program: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Result<Self, Failure> {
        let (memory, disk) = (Scratch::new()?, Scratch::on_disk()?);
        let program = disk.path().join("skopos");
        // `skopos agent` becomes `skopos-agent`, which has to lie beside it.
        for program in [programs::skopos()?, programs::agent()?] {
            let copy = disk.path().join(program.file_name().unwrap_or_default());
            std::fs::copy(&program, &copy).map_err(|e| {
                Failure::new(format!("cannot copy to {}", copy.display())).because(&e)
            })?;
        }
        Ok(Self { memory, disk, program })
    }
}
