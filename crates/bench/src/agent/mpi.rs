//! An MPI program of two ranks that wait for each other in every step, so that a delay of one rank
//! delays both.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::application::Application;
use crate::child::finish;

/// The source of the program.
const SOURCE: &str = include_str!("../../../../bench/mpi/jacobi.c");
/// Number of steps of the warm-up, which takes some tenths of a second.
const WARM_UP: u64 = 500;
/// The longest time of the compiler, and of `mpirun` before the first step.
const WAKE: Duration = Duration::from_secs(60);
/// A piece of work counts as hung after this multiple of its time.
const PATIENCE: u32 = 20;

/// Variables for Open MPI on one machine: run as root, with fewer processors than ranks, over the
/// loopback alone, and without a login. Other implementations do not read them.
const SETTINGS: [(&str, &str); 8] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_plm", "isolated"),
    ("OMPI_MCA_btl", "self,vader,tcp"),
    ("OMPI_MCA_btl_tcp_if_include", "lo"),
    ("OMPI_MCA_oob_tcp_if_include", "lo"),
    // Containers seldom allow a process to read the memory of another.
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
];

/// The compiled program.
pub(super) struct Mpi {
    dir: PathBuf,
    /// Number of steps of a run.
    steps: u64,
    limit: Duration,
}

/// The output of the program.
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
        // Its files lie beside the program: their paths must be short enough for a socket.
        command.envs(SETTINGS).env("TMPDIR", &self.dir).current_dir(&self.dir);
        command.args(["-n", "2", "./jacobi"]).arg(self.steps.to_string());
        let text = finish(&mut command, &self.dir, self.limit)?;
        let output: Output =
            serde_json::from_str(text.trim()).map_err(|e| format!("the MPI program: {e}"))?;
        Ok(output.seconds)
    }
}
