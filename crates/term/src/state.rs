//! Where Skopos keeps what must outlive it: `$SKOPOS_STATE`, else `/var/lib/skopos` for root and
//! `${XDG_STATE_HOME:-$HOME/.local/state}/skopos` for anybody else (XDG Base Directory
//! Specification).

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Root's folder, which everybody may read.
pub const SYSTEM: &str = "/var/lib/skopos";

/// The file of calibrations in a folder of state.
pub const CALIBRATION: &str = "calibration.json";

/// The archive of tasks in a folder of state.
const ARCHIVE: &str = "tasks.sqlite";

/// The folder of this user; it need not be there. `None` if nothing tells where it should be.
pub fn folder() -> Option<PathBuf> {
    folder_of(rustix::process::geteuid().is_root(), |name| env::var_os(name))
}

/// The folder of this user alone, also of root: for what was typed.
pub fn own_folder() -> Option<PathBuf> {
    folder_of(false, |name| env::var_os(name))
}

fn folder_of(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // A variable that is set to nothing is one that is not set, and a relative one would mean
    // another place in each folder.
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(folder) = path("SKOPOS_STATE") {
        return Some(folder);
    }
    if is_root {
        return Some(SYSTEM.into());
    }
    let state = path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state")))?;
    Some(state.join("skopos"))
}

/// The file that `skopos calibrate` stores into.
pub fn calibration() -> Option<PathBuf> {
    folder().map(|folder| folder.join(CALIBRATION))
}

/// The archive of tasks, unless another one is named.
pub fn archive() -> Option<PathBuf> {
    folder().map(|folder| folder.join(ARCHIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders() {
        for (is_root, variables, expected) in [
            (true, &[][..], Some("/var/lib/skopos")),
            (true, &[("HOME", "/root"), ("XDG_STATE_HOME", "/x")], Some("/var/lib/skopos")),
            (true, &[("SKOPOS_STATE", "/s")], Some("/s")),
            (false, &[("SKOPOS_STATE", "/s"), ("HOME", "/h")], Some("/s")),
            (false, &[("XDG_STATE_HOME", "/x"), ("HOME", "/h")], Some("/x/skopos")),
            (false, &[("XDG_STATE_HOME", ""), ("HOME", "/h")], Some("/h/.local/state/skopos")),
            (false, &[("SKOPOS_STATE", "here"), ("HOME", "/h")], Some("/h/.local/state/skopos")),
            (false, &[], None),
        ] {
            let variable = |name: &str| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
            };
            assert_eq!(folder_of(is_root, variable), expected.map(PathBuf::from), "{variables:?}");
        }
    }
}
