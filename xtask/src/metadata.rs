//! The workspace's crates and their dependencies, from `cargo metadata` and `cargo tree`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// The crates of the workspace.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    /// Every package that a build of a crate alone compiles, by the crate's short name. Only for the
    /// crates that were asked for and that exist.
    #[serde(default)]
    pub(crate) below: BTreeMap<String, BTreeSet<String>>,
}

/// One crate of the workspace.
#[derive(Deserialize)]
pub(crate) struct Package {
    /// The name in its manifest: `skopos-shm`.
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One direct dependency: a crate of the workspace, or a library.
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

/// The kind of a dependency; cargo prints nothing for a normal one.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Dev,
    Build,
}

impl Metadata {
    /// Asks cargo, and for each crate of `whole` which packages a build of it compiles.
    pub(crate) fn read(root: &Path, whole: &[&str]) -> io::Result<Self> {
        let output = cargo(root, &["metadata", "--format-version", "1", "--no-deps", "--locked"])?;
        let mut metadata: Self = serde_json::from_slice(&output).map_err(io::Error::other)?;
        let packages = metadata.packages.iter();
        let wanted: Vec<&Package> = packages.filter(|p| whole.contains(&p.short_name())).collect();
        let mut below = BTreeMap::new();
        std::thread::scope(|scope| {
            let ask = |package| (package, scope.spawn(move || packages_below(root, package)));
            for (package, thread) in wanted.into_iter().map(ask).collect::<Vec<_>>() {
                let found = thread.join().map_err(|_| io::Error::other("cargo tree broke"))??;
                below.insert(package.short_name().to_owned(), found);
            }
            io::Result::Ok(())
        })?;
        metadata.below = below;
        Ok(metadata)
    }
}

/// The packages that a build of `package` alone compiles, with the features that it has then.
fn packages_below(root: &Path, package: &Package) -> io::Result<BTreeSet<String>> {
    let edges = ["--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let whole = ["tree", "--locked", "--package", &package.name];
    let output = cargo(root, &[&whole[..], &edges[..]].concat())?;
    let text = String::from_utf8_lossy(&output);
    let names = text.lines().filter_map(|line| line.split(' ').next());
    Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn cargo(root: &Path, arguments: &[&str]) -> io::Result<Vec<u8>> {
    // Cargo sets it for `cargo xtask`; by hand the name alone is enough.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).current_dir(root).output()?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let verb = arguments.first().copied().unwrap_or_default();
        return Err(io::Error::other(format!("cargo {verb}: {}", errors.trim())));
    }
    Ok(output.stdout)
}

impl Package {
    /// `shm` for `skopos-shm`; `skopos` and `xtask` stay as they are.
    pub(crate) fn short_name(&self) -> &str {
        short_name(&self.name)
    }

    /// Path of its manifest, relative to the root.
    pub(crate) fn manifest(&self) -> String {
        match self.short_name() {
            "xtask" => "xtask/Cargo.toml".to_owned(),
            "dataservice" => "bench/dataservice/Cargo.toml".to_owned(),
            name => format!("crates/{name}/Cargo.toml"),
        }
    }
}

/// A crate's name without the `skopos-` that tells it apart from libraries.
pub(crate) fn short_name(name: &str) -> &str {
    name.strip_prefix("skopos-").unwrap_or(name)
}
