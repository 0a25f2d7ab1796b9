//! The text files of the repository, as git sees them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::rust::Rust;

/// One text file.
pub(crate) struct TextFile {
    /// Relative to the root, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Only for `.rs` files.
    pub(crate) rust: Option<Rust>,
}

impl TextFile {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        // Only modules of a crate have arrows; tests, examples and build scripts are on top of them.
        let cut = if path.contains("/src/") { Rust::new } else { Rust::without_outline };
        let rust = path.ends_with(".rs").then(|| cut(text));
        Self { path: path.to_owned(), text: text.to_owned(), rust }
    }

    /// Reads a file; nothing if it is not text.
    fn read(root: &Path, path: &str) -> io::Result<Option<Self>> {
        match fs::read(root.join(path)) {
            Ok(bytes) => Ok(String::from_utf8(bytes).ok().map(|text| Self::new(path, &text))),
            // A file that is tracked but deleted, and a link into nowhere, hold no text.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::IsADirectory => Ok(None),
            Err(e) => Err(io::Error::new(e.kind(), format!("{path}: {e}"))),
        }
    }

    /// `shm` for `crates/shm/src/lib.rs`, `xtask` for `xtask/src/main.rs`, else nothing.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        if let Some(rest) = self.path.strip_prefix("crates/") {
            return rest.split('/').next();
        }
        ["xtask", "bench/dataservice"]
            .into_iter()
            .find(|folder| self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
            .and_then(|folder| folder.rsplit('/').next())
    }

    /// Whether the whole file is a test; a file that contains some tests is not.
    pub(crate) fn is_test(&self) -> bool {
        let mut folders = self.path.split('/').collect::<Vec<_>>();
        let name = folders.pop().unwrap_or_default();
        folders.contains(&"tests") || name == "tests.rs" || name.starts_with("loom")
    }
}

/// The folder of copies of other projects' libraries. Their code keeps the style of its authors.
pub(crate) const VENDORED: &str = "vendor/";

/// All text files that git tracks or would track after `git add`.
pub(crate) struct Tree {
    pub(crate) files: Vec<TextFile>,
    /// The paths of files below [`VENDORED`], which are not in `files`.
    pub(crate) vendored: Vec<String>,
}

impl Tree {
    /// Reads the tree at `root`, without the files that are not UTF-8.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let (vendored, paths): (Vec<_>, Vec<_>) =
            list(root)?.into_iter().partition(|path| path.starts_with(VENDORED));
        let parts = std::thread::available_parallelism().map_or(1, usize::from);
        // Each thread takes every n-th file, because files of one folder are alike in length.
        let read = &|start: usize| -> io::Result<Vec<TextFile>> {
            let paths = paths.iter().skip(start).step_by(parts);
            paths.filter_map(|path| TextFile::read(root, path).transpose()).collect()
        };
        let mut files = Vec::with_capacity(paths.len());
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..parts).map(|start| scope.spawn(move || read(start))).collect();
            for thread in threads {
                files.extend(
                    thread.join().map_err(|_| io::Error::other("a file broke the reader"))??,
                );
            }
            io::Result::Ok(())
        })?;
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files, vendored })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| TextFile::new(path, text)).collect();
        Self { files, vendored: Vec::new() }
    }

    pub(crate) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Rust files with their views.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&TextFile, &Rust)> {
        self.files.iter().filter_map(|f| f.rust.as_ref().map(|rust| (f, rust)))
    }
}

/// The root of the workspace: the folder above this crate's.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable when it runs this program. The path at build time may be that of another
    // checkout with the same target folder.
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent().map_or(here.clone(), Path::to_owned)
}

fn list(root: &Path) -> io::Result<Vec<String>> {
    let output = Command::new("git")
        // Git refuses a checkout of another user unless told otherwise.
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut paths: Vec<String> =
        text.split('\0').filter(|p| !p.is_empty()).map(str::to_owned).collect();
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
}
