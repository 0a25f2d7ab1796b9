//! The program in the kernel, and the tables that it counts in. The layouts are those of
//! `bpf/block_access.bpf.c`, in words of 64 bits.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use aya::maps::{Array, Map, MapData};
use rustix::thread::CapabilitySet;
use skopos_bpf::{At, Loaded, Program, load, with_causes};

/// Compiled from `bpf/block_access.bpf.c` by `scripts/bpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/block_access.bpf.o"));

const CATEGORY: &str = "block";
const TRACEPOINT: &str = "block_rq_issue";

/// SETS * WAYS rows of two words.
const TABLE_WORDS: usize = 128 * 8 * 2;
/// One word, then DEVICE_SETS * DEVICE_WAYS entries of three.
const DEVICES_WORDS: usize = 1 + 16 * 4 * 3;
const SETTINGS_WORDS: usize = 2;

type Words<const N: usize> = Array<MapData, [u64; N]>;

/// The running program. It ends with this value.
pub(super) struct Counter {
    /// Keeps the program attached.
    _program: Loaded,
    tables: Words<TABLE_WORDS>,
    devices: Words<DEVICES_WORDS>,
    settings: Words<SETTINGS_WORDS>,
    active: u32,
    mask: u64,
}

/// The counts of one device since the program began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The kernel's `dev_t`: major number << 20 | minor number.
    pub(super) number: u64,
    pub(super) accesses: u64,
    pub(super) sampled: u64,
}

/// The counts of all devices.
pub(super) struct Devices([u64; DEVICES_WORDS]);

impl Devices {
    /// Returns the devices that were accessed.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        let entries = self.0[1..].chunks_exact(3);
        let entries = entries.map(|e| Entry { number: e[0], accesses: e[1], sampled: e[2] });
        entries.filter(|entry| entry.number != 0)
    }

    /// Number of requests to devices for which there was no entry.
    pub(super) fn beyond(&self) -> u64 {
        self.0[0]
    }
}

/// The counts of one table while it was active.
pub(super) struct Table([u64; TABLE_WORDS]);

impl Table {
    /// Returns pairs of key and count. A key is a device's number << 32 | region.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.chunks_exact(2).map(|row| (row[0], row[1])).filter(|&(key, _)| key != 0)
    }
}

impl Counter {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// The reason why that fails, and what would change it.
    pub(super) fn open(sys: &Path) -> Result<Self, String> {
        let own =
            rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |c| c.effective);
        let (name, id) = usable_program(sys, own)?;
        // The program reads fixed places of a record, so the kernel's types are not needed.
        let programs = [Program { name, at: At::Event(id) }];
        let mut loaded = load(OBJECT, &programs, "", &[]).map_err(error_text)?;
        Ok(Self {
            tables: map(&mut loaded, "TABLES")?,
            devices: map(&mut loaded, "DEVICES")?,
            settings: map(&mut loaded, "SETTINGS")?,
            _program: loaded,
            active: 0,
            mask: 0,
        })
    }

    pub(super) fn devices(&self) -> Result<Devices, String> {
        self.devices.get(&0, 0).map(Devices).map_err(map_error)
    }

    /// Returns the counts since the last call. From now on one request in `mask + 1` is sampled.
    pub(super) fn swap_tables(&mut self, mask: u64) -> Result<Table, String> {
        let full = self.active;
        let next = 1 - full;
        self.settings.set(0, [u64::from(next), mask], 0).map_err(map_error)?;
        self.active = next;
        self.mask = mask;
        let table = self.tables.get(&full, 0).map(Table).map_err(map_error)?;
        // A request that is under way on another processor may still count here: one or two are
        // lost.
        self.tables.set(full, [0; TABLE_WORDS], 0).map_err(map_error)?;
        Ok(table)
    }

    /// One request in `mask + 1` is sampled.
    pub(super) fn mask(&self) -> u64 {
        self.mask
    }
}

/// Returns the program for this kernel and the number of its tracepoint, if a process with these capabilities can
/// load it.
///
/// The capabilities are checked first: a hint to mount tracefs helps only a process that may then
/// use it.
///
/// # Errors
/// The first requirement that is not met, with the command that would change it.
fn usable_program(sys: &Path, own: CapabilitySet) -> Result<(&'static str, u64), String> {
    let needed = CapabilitySet::BPF | CapabilitySet::PERFMON;
    if !own.contains(needed) && !own.contains(CapabilitySet::SYS_ADMIN) {
        return Err(NEEDS.to_owned());
    }
    let format = format_file(sys)?;
    let id = format.lines().find_map(|line| line.strip_prefix("ID:"));
    let id = id.and_then(|id| id.trim().parse().ok());
    let id = id.ok_or_else(|| format!("{CATEGORY}:{TRACEPOINT} has no number"))?;
    Ok((which_program(&format)?, id))
}

fn map<const N: usize>(loaded: &mut Loaded, name: &str) -> Result<Words<N>, String> {
    let map = loaded.map(name).map_err(error_text)?;
    Map::Array(map).try_into().map_err(map_error)
}

/// Returns the description of the tracepoint, from the place where tracefs is mounted.
fn format_file(sys: &Path) -> Result<String, String> {
    let places = ["kernel/tracing", "kernel/debug/tracing"].map(|place| sys.join(place));
    let file =
        |place: &PathBuf| place.join("events").join(CATEGORY).join(TRACEPOINT).join("format");
    let mut failure = String::new();
    for path in places.iter().map(file) {
        match fs::read_to_string(&path) {
            Ok(text) => return Ok(text),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => return Err(NEEDS.to_owned()),
            Err(e) if failure.is_empty() => {
                failure = format!(
                    "{}: {e}; as root: mount -t tracefs tracefs {}",
                    path.display(),
                    places[0].display()
                );
            }
            Err(_) => {}
        }
    }
    Err(failure)
}

const NEEDS: &str = "needs root, or CAP_BPF, CAP_PERFMON and permission to read tracefs";

/// Returns the name of the program that reads the fields of this kernel's tracepoint.
fn which_program(format: &str) -> Result<&'static str, String> {
    for (field, expected) in [("dev", 8), ("sector", 16), ("nr_sector", 24)] {
        if offset(format, field) != Some(expected) {
            return Err(format!(
                "this kernel's {CATEGORY}:{TRACEPOINT} has `{field}` at another place"
            ));
        }
    }
    match offset(format, "rwbs") {
        Some(34) => Ok("issued_at_34"),
        Some(32) => Ok("issued_at_32"),
        _ => Err(format!("this kernel's {CATEGORY}:{TRACEPOINT} has `rwbs` at another place")),
    }
}

/// Reads "field:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;".
fn offset(format: &str, field: &str) -> Option<u32> {
    let name = |line: &&str| {
        let declared = line.trim().strip_prefix("field:").and_then(|l| l.split(';').next());
        let word = declared.and_then(|d| d.split_whitespace().last());
        word.and_then(|w| w.split('[').next()) == Some(field)
    };
    let line = format.lines().find(name)?;
    line.split(';').find_map(|part| part.trim().strip_prefix("offset:"))?.parse().ok()
}

/// Returns an error in one line: the verifier's log is too long for a line of `skopos doctor`.
fn error_text(error: io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => NEEDS.to_owned(),
        _ => error.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

fn map_error(error: aya::maps::MapError) -> String {
    error_text(with_causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "name: block_rq_issue\nID: 2104\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int bytes;\toffset:28;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned short ioprio;\toffset:32;\tsize:2;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:60;\tsize:4;\tsigned:0;\n";

    #[test]
    fn a_hint_to_mount_tracefs_is_given_only_to_a_process_that_may_load_programs() {
        let sys = tempfile::tempdir().expect("a temporary folder");
        let both = CapabilitySet::BPF | CapabilitySet::PERFMON;
        for own in [CapabilitySet::empty(), CapabilitySet::BPF, CapabilitySet::PERFMON] {
            assert_eq!(usable_program(sys.path(), own), Err(NEEDS.to_owned()), "{own:?}");
        }
        for own in [both, CapabilitySet::SYS_ADMIN] {
            let reason = usable_program(sys.path(), own).expect_err("nothing is mounted");
            assert!(reason.contains("mount -t tracefs"), "{own:?}: {reason}");
        }
        // After the mount nothing else is missing.
        let folder = sys.path().join("kernel/tracing/events/block/block_rq_issue");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("format"), NEW).expect("a file");
        assert_eq!(usable_program(sys.path(), both), Ok(("issued_at_34", 2104)));
        assert_eq!(usable_program(sys.path(), CapabilitySet::empty()), Err(NEEDS.to_owned()));
    }

    #[test]
    fn the_program_fits_the_tracepoint() {
        let with = |from: &str, to: &str| which_program(&NEW.replace(from, to));
        assert_eq!(with("", ""), Ok("issued_at_34"));
        let older = with("rwbs[10];\toffset:34;", "rwbs[8];\toffset:32;");
        assert_eq!(older, Ok("issued_at_32"));
        for (from, to, field) in [
            ("offset:16;", "offset:20;", "sector"),
            ("dev_t dev;", "dev_t device;", "dev"),
            ("nr_sector;\toffset:24", "nr_sector;\toffset:x", "nr_sector"),
            ("rwbs[10];\toffset:34", "rwbs[10];\toffset:36", "rwbs"),
        ] {
            let refused = with(from, to).expect_err(field);
            assert!(refused.contains(&format!("`{field}`")), "{refused}");
        }
        assert!(which_program("").is_err());
    }
}
