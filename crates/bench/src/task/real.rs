//! Programs of everyday work: a compile by make and a pipeline of a shell. Both read the C sources of a
//! dependency of this program, so that no download is needed.

use std::fs;
use std::path::{Path, PathBuf};

use super::watchers::Program;

/// Sources in cargo's registry, the best first: the prefix of the package's name and the folder in it.
/// Zstandard has some thirty files, SQLite one large file.
const SOURCES: [(&str, &[&str]); 2] = [
    (
        "zstd-sys-",
        &["zstd/lib/common", "zstd/lib/compress", "zstd/lib/decompress", "zstd/lib/dictBuilder"],
    ),
    ("libsqlite3-sys-", &["sqlite3"]),
];

/// The text that pipelines read, and the number of times.
const PASSES: usize = 8;

/// Builds all sources, two at a time.
///
/// # Errors
/// There are no sources.
pub(super) fn compile(dir: &Path) -> Result<Program, String> {
    let sources = sources()?;
    let folder = dir.join("compile");
    let broken = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(&folder).map_err(broken)?;
    let stem = |path: &PathBuf| path.file_stem().map(|s| s.to_string_lossy().into_owned());
    let objects: Vec<String> = sources.iter().filter_map(stem).map(|s| s + ".o").collect();
    let mut makefile =
        format!("all: {0}\n\tar rc all.a {0}\n\trm -f all.a {0}\n", objects.join(" "));
    for (object, source) in objects.iter().zip(&sources) {
        let source = source.display();
        makefile +=
            &format!("{object}: {source}\n\tcc -O1 -DZSTD_DISABLE_ASM -c -o {object} {source}\n");
    }
    fs::write(folder.join("Makefile"), makefile).map_err(broken)?;
    Ok(program(&["make", "-j2", "-s", "-C", &folder.display().to_string()]))
}

/// The most frequent words, by the usual pipeline of a shell.
///
/// # Errors
/// There are no sources.
pub(super) fn pipeline(dir: &Path) -> Result<Program, String> {
    let data = dir.join("data");
    let broken = |e: std::io::Error| format!("{}: {e}", data.display());
    let mut text = Vec::new();
    for source in sources()? {
        text.extend(fs::read(source).map_err(broken)?);
    }
    fs::write(&data, text).map_err(broken)?;
    let script = format!(
        "for pass in $(seq {PASSES}); do tr -cs A-Za-z_ '\\n' < '{}' | sort | uniq -c | sort -rn \
         | tee words | gzip -9 | wc -c; head -20 words | while read -r n word; do echo \"$word\" \
         | tr a-z A-Z; done; done",
        data.display()
    );
    Ok(program(&["sh", "-c", &script]))
}

fn program(words: &[&str]) -> Program {
    Program {
        command: words.iter().map(|w| (*w).to_owned()).collect(),
        file: None,
        limit: None,
        may_fail: false,
    }
}

/// The C files of the best sources.
fn sources() -> Result<Vec<PathBuf>, String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home.unwrap_or_default().join("registry/src");
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        all.sort();
        all
    };
    let packages: Vec<PathBuf> = list(&registry).iter().flat_map(|index| list(index)).collect();
    for (prefix, folders) in SOURCES {
        let is_it = |path: &&PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        };
        let Some(package) = packages.iter().rfind(is_it) else { continue };
        let files = folders.iter().flat_map(|folder| list(&package.join(folder)));
        let is_c = |path: &PathBuf| {
            // They are not for this system.
            let is_other = path.to_string_lossy().contains("wasm");
            path.extension().is_some_and(|e| e == "c") && !is_other
        };
        let files: Vec<PathBuf> = files.filter(is_c).collect();
        if !files.is_empty() {
            return Ok(files);
        }
    }
    Err(format!("there are no C sources of a dependency in {}", registry.display()))
}
