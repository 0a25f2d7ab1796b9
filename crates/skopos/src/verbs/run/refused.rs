//! A command that cannot be started: the reason in the words of a shell, and a hint.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The longest first line of a script that the kernel reads.
const MAX_FIRST_LINE: u64 = 256;

/// Formats the error, with a hint if there is one.
pub(super) fn told(command: &[OsString], e: &io::Error) -> String {
    let program = command.first().map(PathBuf::from).unwrap_or_default();
    let hint = hint(&program, command.len() == 1, e.kind());
    let hint = hint.map_or(String::new(), |hint| format!("\nhint: {hint}"));
    format!("skopos: {}: {e}{hint}", program.display())
}

fn hint(program: &Path, is_alone: bool, kind: io::ErrorKind) -> Option<String> {
    let shown = program.display();
    let is_searched = program.components().count() == 1 && !program.has_root();
    let is_searched = is_searched && !program.to_string_lossy().contains('/');
    let place = if is_searched { found(program) } else { Some(program.to_owned()) };
    let about = place.as_deref().and_then(|place| fs::metadata(place).ok());
    match (kind, about) {
        (_, Some(about)) if about.is_dir() => Some("it is a folder".to_owned()),
        (io::ErrorKind::NotFound, Some(_)) => Some(match interpreter(place?.as_path()) {
            Some(interpreter) => {
                format!("the file exists, but `{interpreter}` of its first line does not")
            }
            None => "the file exists, but the loader that it was built for does not".to_owned(),
        }),
        (io::ErrorKind::NotFound, None) => {
            let is_line =
                is_alone && program.to_string_lossy().trim().contains(char::is_whitespace);
            if is_line {
                return Some(format!(
                    "a whole line needs a shell: `skopos run -- sh -c '{shown}'`"
                ));
            }
            let is_here = is_searched && !program.as_os_str().is_empty() && program.is_file();
            if is_here {
                return Some(format!("this folder has one: `./{shown}`"));
            }
            is_searched.then(|| "it is in no folder of PATH".to_owned())
        }
        (io::ErrorKind::PermissionDenied, Some(about))
            if about.permissions().mode() & 0o111 == 0 =>
        {
            Some(format!("it is not executable: `chmod +x {shown}`, or name its interpreter"))
        }
        _ => None,
    }
}

/// Finds a program without a folder in PATH.
fn found(program: &Path) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|p| p.is_file())
}

/// The interpreter of a script, as its first line names it.
fn interpreter(script: &Path) -> Option<String> {
    let mut first = Vec::new();
    fs::File::open(script).ok()?.take(MAX_FIRST_LINE).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    String::from_utf8_lossy(line).split_whitespace().next().map(str::to_owned)
}
