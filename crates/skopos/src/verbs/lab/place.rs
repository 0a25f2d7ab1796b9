//! The labs of this machine: the right to use them, the chosen one, and their failures.

use skopos_net::lab::labs;
use skopos_term::Failure;

/// Fails unless this process is root.
pub(super) fn need_root(doing: &str) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(format!("{doing} needs root"))
        .hint("a lab makes network namespaces and mounts disks: try again with `sudo`"))
}

/// Returns the name of the lab that the user named, or else of the only one.
pub(super) fn chosen(named: Option<&str>) -> Result<String, Failure> {
    let labs = labs();
    match (named, &labs[..]) {
        (Some(name), _) if labs.iter().any(|lab| lab == name) => Ok(name.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (_, []) => Err(Failure::no("no lab is up").hint("skopos lab up --example")),
        (Some(name), _) => Err(Failure::no(format!("there is no lab `{name}`"))
            .hint(format!("there is {}", labs.join(", ")))),
        (None, _) => Err(Failure::new("several labs are up")
            .hint(format!("name one with `--lab`: {}", labs.join(", ")))),
    }
}

/// Converts an error of a lab.
pub(super) fn failed(e: &skopos_net::Error) -> Failure {
    let failure = Failure::new(e.to_string());
    match std::error::Error::source(e) {
        Some(cause) => failure.because(cause),
        None => failure,
    }
}
