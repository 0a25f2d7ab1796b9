//! An MPI program of two ranks that wait for each other in every step, so that whatever delays one
//! delays both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::slowdown::Application;
use crate::child::finish;

/// The program; its head says what it does.
const SOURCE: &str = include_str!("../../../../bench/mpi/jacobi.c");
/// Steps of the warm-up: some tenths of a second, on any machine.
const WARM_UP: u64 = 500;
/// How long the compiler, or `mpirun` before the first step, may take.
const WAKE: Duration = Duration::from_secs(60);
/// How much longer than it should a piece of work may take before it counts as hung.
const PATIENCE: u32 = 20;

/// What Open MPI is to do on one machine, for root and with fewer processors than ranks too; other
/// implementations do not read it. The loopback alone, and nobody is asked to log in.
const SETTINGS: [(&str, &str); 8] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_plm", "isolated"),
    ("OMPI_MCA_btl", "self,vader,tcp"),
    ("OMPI_MCA_btl_tcp_if_include", "lo"),
    ("OMPI_MCA_oob_tcp_if_include", "lo"),
    // Containers seldom allow one process to read the memory of another.
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
];

/// The program, compiled.
pub(super) struct Mpi {
    dir: PathBuf,
    /// Steps of one run.
    steps: u64,
    limit: Duration,
}

/// What it prints.
#[derive(Deserialize)]
struct Output {
    seconds: f64,
}

impl Mpi {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.into(), steps: WARM_UP, limit: WAKE }
    }

    fn compile(&self) -> Result<(), String> {
        let source = self.dir.join("jacobi.c");
        std::fs::write(&source, SOURCE).map_err(|e| format!("{}: {e}", source.display()))?;
        let mut command = Command::new("mpicc");
        command.args(["-O2", "-o"]).arg(self.dir.join("jacobi")).arg(&source);
        finish(&mut command, &self.dir, WAKE).map(drop)
    }
}

impl Application for Mpi {
    fn prepare(&mut self, time: Duration) -> Result<(), String> {
        self.compile()?;
        let seconds = self.once()?;
        if !(seconds.is_finite() && seconds > 0.0) {
            return Err("the MPI program took no time in its warm-up".to_owned());
        }
        self.steps = (WARM_UP as f64 * time.as_secs_f64() / seconds).ceil() as u64;
        self.limit = WAKE + time * PATIENCE;
        Ok(())
    }

    fn once(&mut self) -> Result<f64, String> {
        let mut command = Command::new("mpirun");
        // Its files beside the program: their names must fit a socket's.
        command.envs(SETTINGS).env("TMPDIR", &self.dir).current_dir(&self.dir);
        command.args(["-n", "2", "./jacobi"]).arg(self.steps.to_string());
        let text = finish(&mut command, &self.dir, self.limit)?;
        let output: Output =
            serde_json::from_str(text.trim()).map_err(|e| format!("the MPI program: {e}"))?;
        Ok(output.seconds)
    }
}
