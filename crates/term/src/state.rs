//! The folder of state, for files that outlive a process: `$SKOPOS_STATE`, else `/var/lib/skopos` for root
//! and `${XDG_STATE_HOME:-$HOME/.local/state}/skopos` for other users (XDG Base Directory Specification).

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Root's folder, which every user may read.
pub const SYSTEM: &str = "/var/lib/skopos";

/// The name of the file of calibrations in a folder of state.
pub const CALIBRATION: &str = "calibration.json";

/// The name of the archive of tasks in a folder of state.
const ARCHIVE: &str = "tasks.sqlite";

/// The name of the folder of jobs in a folder of state.
const JOBS: &str = "jobs";

/// The name of the folder of the history of rules in a folder of state.
const RULES: &str = "rules";

/// The name of the folder of records that wait for a hub, in a folder of state.
const SPOOL: &str = "spool";

/// The beginning of the name of a folder of learned weights, in a folder of state.
const RANKS: &str = "ranks";

/// The name of the folder of traces that the agent collects, in a folder of state.
const TRACES: &str = "traces";

/// Returns the folder of this user, which may not exist yet; `None` if the environment does not determine it.
pub fn folder() -> Option<PathBuf> {
    folder_of(rustix::process::geteuid().is_root(), |name| env::var_os(name))
}

/// Returns the private folder of this user, also for root: for the history of typed commands.
pub fn own_folder() -> Option<PathBuf> {
    folder_of(false, |name| env::var_os(name))
}

fn folder_of(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // An empty variable counts as unset, and a relative path would mean another place in each working
    // directory.
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

/// Returns the path of the file into which `skopos calibrate` stores results.
pub fn calibration() -> Option<PathBuf> {
    folder().map(|folder| folder.join(CALIBRATION))
}

/// Returns the path of the default archive of tasks.
pub fn archive() -> Option<PathBuf> {
    folder().map(|folder| folder.join(ARCHIVE))
}

/// Returns the path of the folder of jobs.
pub fn jobs() -> Option<PathBuf> {
    folder().map(|folder| folder.join(JOBS))
}

/// Returns the path of the folder with the history of rules.
pub fn rules() -> Option<PathBuf> {
    folder().map(|folder| folder.join(RULES))
}

/// Returns the path of the spool: records of jobs whose producers could not reach their hub.
pub fn spool() -> Option<PathBuf> {
    folder().map(|folder| folder.join(SPOOL))
}

/// Returns the path of the spool of an agent: facts of jobs that could not be delivered. Agents of several nodes may share the
/// folder of state.
pub fn spool_of_node(node: &str) -> Option<PathBuf> {
    folder().map(|folder| folder.join(format!("{SPOOL}-{node}")))
}

/// Returns the path of the folder with the learned weights of a node's ranks. Agents of several nodes may share the folder of
/// state.
pub fn ranks_of_node(node: &str) -> Option<PathBuf> {
    folder().map(|folder| folder.join(format!("{RANKS}-{node}")))
}

/// Returns the path of the folder of traces: the agent writes the records of services into it.
pub fn traces() -> Option<PathBuf> {
    folder().map(|folder| folder.join(TRACES))
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
