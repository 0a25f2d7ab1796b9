use std::path::{Path, PathBuf};

/// Where the kernel's file systems are mounted. Tests point it at recorded copies.
#[derive(Clone, Debug)]
pub struct Root {
    /// procfs, most often `/proc`.
    pub proc: PathBuf,
    /// sysfs, most often `/sys`.
    pub sys: PathBuf,
}

impl Default for Root {
    fn default() -> Self {
        Self { proc: Path::new("/proc").into(), sys: Path::new("/sys").into() }
    }
}
