use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a program may take that a sensor runs: a healthy device answers smartctl in
/// milliseconds, one behind a slow controller in a second or two. What a whole poll may take is for
/// its sensor to say ([`Sensor::patience`](crate::Sensor::patience)), which may run several.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the sources are. Tests point it at recorded copies.
#[derive(Clone, Debug)]
pub struct Root {
    /// procfs, most often `/proc`.
    pub proc: PathBuf,
    /// sysfs, most often `/sys`.
    pub sys: PathBuf,
    /// Device files, most often `/dev`.
    pub dev: PathBuf,
    /// The program of smartmontools: a path, or a name that is looked for in `PATH`.
    pub smartctl: PathBuf,
    /// The program of Slurm that tells of jobs: a path, or a name that is looked for in `PATH`.
    pub scontrol: PathBuf,
    /// How long a program may take that a sensor runs; longer ones are killed.
    pub patience: Duration,
    /// What `skopos calibrate` stores; of several files the first that is there holds. See
    /// [`crate::calibration`].
    pub calibrations: Vec<PathBuf>,
}

impl Default for Root {
    fn default() -> Self {
        Self {
            proc: Path::new("/proc").into(),
            sys: Path::new("/sys").into(),
            dev: Path::new("/dev").into(),
            smartctl: Path::new("smartctl").into(),
            scontrol: Path::new("scontrol").into(),
            patience: PATIENCE,
            calibrations: Vec::new(),
        }
    }
}
