//! Loads the programs of a sensor into the kernel, and says in one line why that fails.

use std::io;

use aya::maps::{Array, Map, MapData, MapError};
use rustix::thread::CapabilitySet;
use skopos_bpf::{Loaded, Program, load, with_causes};

use crate::root::Root;

/// The list of values that the programs need: the file that they are compiled with.
const FIELDS: &str = include_str!("../bpf/fields.h");

/// Loads and attaches programs. They run until the returned value is dropped, and end with this process in any case.
///
/// # Errors
/// The reason: no privilege, a kernel without types or without a tracepoint, or programs that it refuses.
pub(crate) fn open(
    root: &Root,
    object: &[u8],
    programs: &[Program<'_>],
    settings: &[(&str, u64)],
) -> Result<Loaded, String> {
    if root.sys != Root::default().sys {
        return Err("the kernel answers for this machine, not for files".to_owned());
    }
    let own = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |c| c.effective);
    let needed = CapabilitySet::BPF | CapabilitySet::PERFMON;
    if !own.contains(needed) && !own.contains(CapabilitySet::SYS_ADMIN) {
        return Err("needs root, or CAP_BPF and CAP_PERFMON".to_owned());
    }
    load(object, programs, FIELDS, settings).map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{}; is the kernel locked down (/sys/kernel/security/lockdown)?", one_line(&e))
        }
        _ => one_line(&e),
    })
}

/// Takes a map of values that are read one at a time.
///
/// # Errors
/// The object has no such map.
pub(crate) fn array<V: aya::Pod>(
    loaded: &mut Loaded,
    name: &str,
) -> Result<Array<MapData, V>, String> {
    let map = loaded.map(name).map_err(|e| one_line(&e))?;
    Map::Array(map).try_into().map_err(|e: MapError| one_line(&with_causes(e)))
}

/// Returns an error in one line: the verifier's log is too long for a line of `skopos doctor`.
fn one_line(error: &io::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
