//! What cargo knows of the workspace's crates: `cargo metadata --no-deps`.

use std::io;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// The crates of the workspace.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
}

/// One crate of the workspace.
#[derive(Deserialize)]
pub(crate) struct Package {
    /// As in its manifest: `skopos-shm`.
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One direct dependency, of ours or of others.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) kind: Option<Kind>,
    #[serde(default)]
    pub(crate) optional: bool,
    /// Set for crates of the workspace.
    #[serde(default)]
    pub(crate) path: Option<String>,
}

/// Absent in cargo's output for a normal dependency.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Dev,
    Build,
}

impl Metadata {
    /// Asks cargo.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        // Cargo sets it for `cargo xtask`; by hand the name alone will do.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
            .current_dir(root)
            .output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!(
                "cargo metadata: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        serde_json::from_slice(&output.stdout).map_err(io::Error::other)
    }
}

impl Package {
    /// `shm` for `skopos-shm`; `skopos` and `xtask` stay as they are.
    pub(crate) fn short_name(&self) -> &str {
        short_name(&self.name)
    }

    /// Its manifest, relative to the root.
    pub(crate) fn manifest(&self) -> String {
        match self.short_name() {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            name => format!("crates/{name}/Cargo.toml"),
        }
    }
}

/// A crate's name without the `skopos-` that keeps it apart from other people's.
pub(crate) fn short_name(name: &str) -> &str {
    name.strip_prefix("skopos-").unwrap_or(name)
}
