use std::path::{Path, PathBuf};
use std::time::Duration;

/// The timeout of a program that a sensor runs. A healthy device answers smartctl in milliseconds,
/// a device behind a slow controller in a second or two. A sensor that runs several programs gives
/// the limit of a whole poll itself ([`Sensor::patience`](crate::Sensor::patience)).
const PATIENCE: Duration = Duration::from_secs(20);

/// The locations of the sources. Tests point it at recorded copies.
#[derive(Clone, Debug)]
pub struct Root {
    /// procfs, most often `/proc`.
    pub proc: PathBuf,
    /// sysfs, most often `/sys`.
    pub sys: PathBuf,
    /// Device files, most often `/dev`.
    pub dev: PathBuf,
    /// The program of smartmontools: a path, or a name that is looked up in `PATH`.
    pub smartctl: PathBuf,
    /// The program of Slurm that lists jobs: a path, or a name that is looked up in `PATH`.
    pub scontrol: PathBuf,
    /// The timeout of a program that a sensor runs. A program that takes longer is killed.
    pub patience: Duration,
    /// Files whose part in the page cache is measured. Empty by default.
    pub watched: Vec<PathBuf>,
    /// Counts hits of the page cache by file system, at about 50 ns a page. Off by default.
    pub page_cache_hits: bool,
    /// Files that `skopos calibrate` writes. The first one that exists is used. See
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
            watched: Vec::new(),
            page_cache_hits: false,
            calibrations: Vec::new(),
        }
    }
}
