//! The programs that are measured, which lie beside this program.

use std::path::PathBuf;

use skopos_term::Failure;

/// The jar of the Java client, below the repository's root.
pub(crate) const JAVA_CLIENT: &str = "clients/java/client/target/skopos-client-0.1.0.jar";

/// The folder of its tests, among them the reader of `rank`.
pub(crate) const JAVA_TESTS: &str = "clients/java/client/target/test-classes";

/// The advice of a benchmark of ranks without them.
pub(crate) const JAVA_BUILD: &str = "`make bench BENCH=rank` builds it";

/// Finds the program `skopos`, as it was built with this one.
///
/// # Errors
/// There is no such file beside this program.
pub(crate) fn skopos() -> Result<PathBuf, Failure> {
    beside("skopos")
}

/// Finds the program of a node, `skopos-agent`.
///
/// # Errors
/// There is no such file beside this program.
pub(crate) fn agent() -> Result<PathBuf, Failure> {
    beside("skopos-agent")
}

/// Finds the data service, `skopos-dataservice`.
///
/// # Errors
/// There is no such file beside this program.
pub(crate) fn dataservice() -> Result<PathBuf, Failure> {
    beside("skopos-dataservice")
}

/// Finds the program that records calls with Skopos and its peers, `skopos-peers-rpc`.
///
/// # Errors
/// There is no such file beside this program.
pub(crate) fn recorders() -> Result<PathBuf, Failure> {
    beside("skopos-peers-rpc")
}

/// Finds the program that reads and publishes beside iceoryx2, `skopos-peers-shm`.
///
/// # Errors
/// There is no such file beside this program.
pub(crate) fn peers_shm() -> Result<PathBuf, Failure> {
    beside("skopos-peers-shm")
}

fn beside(name: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()
        .map_err(|e| Failure::new("the path of this program is unknown").because(&e))?;
    let path = own.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::new(format!("there is no {} to measure", path.display()))
        .hint("`make bench` builds all programs; with cargo: `cargo build --release`"))
}
