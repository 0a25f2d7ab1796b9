//! `LD_PRELOAD`: a library between dynamic programs and their C library counts each open, read,
//! write and message by file and by address, in memory that it shares with the monitor.
//!
//! Needs only a C library that loads it. It does not cover static programs, programs with
//! privileges of their own, programs whose environment was cleared, and programs that start where the
//! library cannot be found or with little memory; such processes are counted when they exit. It does not see what the loader and the C library read for themselves; this is
//! part of the difference from the kernel's counts, which the report states.

mod library;
mod table;

use std::collections::BTreeMap;
use std::io;

use skopos_model::task::{Completeness, Files, Missing, NotSeen};

use self::table::Table;
use super::files::{self, Processes};
use super::reasons::append_counts;
use super::{Launch, Mechanism};
use crate::ledger::{Ledger, Offer};
use crate::sys::{Pid, started};

/// The name in reports.
pub(crate) const NAME: &str = "preload";

/// The most commands of processes without counts that are listed. Of further ones only the number
/// is kept.
const MAX_NOT_SEEN: usize = 100;

/// The least address space of a process that counts, as in `preload/table.h`: the library takes 15 MB of it, 1.4 %
/// of this.
const LEAST_SPACE: u64 = 1 << 30;

#[derive(Default)]
pub(crate) struct Preload {
    table: Option<Table>,
    processes: Processes,
    not_seen: BTreeMap<String, u64>,
    processes_not_seen: u64,
}

/// Checks whether the library was compiled.
pub(crate) fn check_built() -> Result<(), String> {
    library::check_built()
}

impl Mechanism for Preload {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Err("the programs of the task are already loaded")
    }

    fn prepare(&mut self, launch: &mut Launch) -> io::Result<()> {
        check_space(started::address_space()).map_err(io::Error::other)?;
        let library = library::install()?;
        let table = Table::new()?;
        let preloaded = library::prepend(&library, std::env::var_os("LD_PRELOAD"));
        launch.environment.push(("LD_PRELOAD".into(), preloaded));
        // A monitor around this one counts in its own table, which comes after ours.
        let mut tables = table.path.clone().into_os_string();
        if let Some(outer) = std::env::var_os(library::VARIABLE).filter(|o| !o.is_empty()) {
            tables.push(":");
            tables.push(outer);
        }
        launch.environment.push((library::VARIABLE.into(), tables));
        self.table = Some(table);
        Ok(())
    }

    fn attach(&mut self, _root: Pid, ledger: &mut Ledger) -> io::Result<()> {
        ledger.exits.get_or_insert_default();
        Ok(())
    }

    fn readable(&mut self, ledger: &mut Ledger) {
        for (pid, command) in ledger.exits.as_mut().map(std::mem::take).unwrap_or_default() {
            self.handle_exit(pid, &command);
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.readable(ledger);
        let Some(table) = self.table.take() else { return };
        for pid in ledger.live_pids() {
            // These processes are still running; the sums of the files include their counts so far.
            self.take_process(&table, pid, ledger.command_of(pid).unwrap_or_default());
        }
        // The table is a file in memory that this process created, so reading it does not fail.
        let Ok(files) = self.report(&table, ledger) else { return };
        let header = table.header().ok();
        let reason = Some(files.reason.clone());
        let mut offer = |name, value: u64| {
            let (completeness, reason) = (Completeness::AtLeast, reason.clone());
            let value = value as f64;
            ledger
                .offers
                .add(name, Offer { method: NAME, value, completeness, error_bound: None, reason });
        };
        offer("opened_files", files.files_total);
        if let Some(header) = header {
            offer("sent_bytes", header.sent_bytes);
            offer("received_bytes", header.received_bytes);
        }
        ledger.files = Some(files);
    }
}

impl Preload {
    fn handle_exit(&mut self, pid: Pid, command: &str) {
        let Some(table) = self.table.take() else { return };
        if !self.take_process(&table, pid, command) {
            self.processes_not_seen += 1;
            if let Some(count) = self.not_seen.get_mut(command) {
                *count += 1;
            } else if self.not_seen.len() < MAX_NOT_SEEN {
                self.not_seen.insert(command.to_owned(), 1);
            }
        }
        self.table = Some(table);
    }

    /// Takes the counts of a process. Returns false if it did not count, or not until its exit.
    fn take_process(&mut self, table: &Table, pid: Pid, command: &str) -> bool {
        let Ok(Some((mut process, is_seen))) = table.take(pid) else { return false };
        command.clone_into(&mut process.command);
        self.processes.push(process);
        is_seen
    }

    fn report(&mut self, table: &Table, ledger: &mut Ledger) -> io::Result<Files> {
        let header = table.header()?;
        let files = table.files()?;
        let overflowed = files.iter().find(|f| f.kind == "others").map_or(0, |f| f.opens);
        let processes = std::mem::take(&mut self.processes);
        let listed = files::listed(NAME, files, table.peers()?, processes);
        let io = ledger.reaped.io;
        let is_known = ledger.reaped.without_io == 0;
        let [read, written] = header.uncounted;
        ledger.unseen.read.extend((read > 0).then_some(Missing::Splice));
        ledger.unseen.written.extend((written > 0).then_some(Missing::Splice));
        let beyond = |kernel: u64, counted: u64, other: u64| {
            is_known.then(|| kernel.cast_signed() - counted.cast_signed() + other.cast_signed())
        };
        let not_seen = std::mem::take(&mut self.not_seen).into_iter();
        Ok(Files {
            reason: self.missing(overflowed, header.collisions),
            unattributed_read_bytes: beyond(io.read_bytes, listed.read_bytes, read),
            unattributed_written_bytes: beyond(io.written_bytes, listed.written_bytes, written),
            processes_not_seen: self.processes_not_seen,
            not_seen: not_seen.map(|(command, processes)| NotSeen { command, processes }).collect(),
            ..listed
        })
    }

    /// Describes what is missing.
    fn missing(&self, overflowed: u64, collisions: u64) -> String {
        let mut text =
            "excludes what the loader and the C library open and read for themselves, what stdio \
             appends to files, system calls made without the C library, and bytes moved by mmap and \
             io_uring"
                .to_owned();
        let counts = [
            (self.processes_not_seen, "processes did not load the library"),
            (overflowed, "opens exceeded the number of files that are counted separately"),
            (collisions, "processes took the slot of a living one"),
        ];
        append_counts(&mut text, &counts);
        text
    }
}

/// Checks whether the library leaves enough of the address space that a process may have.
fn check_space(most: Option<u64>) -> Result<(), String> {
    match most {
        Some(most) if most < LEAST_SPACE => Err(format!(
            "the address space of the task is limited to {} MiB (`ulimit -v`), and the library would take 15 MiB of it",
            most >> 20
        )),
        _ => Ok(()),
    }
}

/// Returns the path of the table, to check that it is removed.
#[cfg(test)]
fn path_of(preload: &Preload) -> Option<&std::path::Path> {
    preload.table.as_ref().map(|table| table.path.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_with_a_small_address_space_keeps_all_of_it() {
        assert!(check_space(None).is_ok() && check_space(Some(LEAST_SPACE)).is_ok());
        let why = check_space(Some(200 << 20)).expect_err("too little");
        assert!(why.contains("limited to 200 MiB"), "{why}");
    }

    #[test]
    fn it_sets_two_variables_and_leaves_no_table() {
        let mut preload = Preload::default();
        let mut launch = Launch::default();
        preload.prepare(&mut launch).expect("there is a compiler here");
        let names: Vec<_> = launch.environment.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, ["LD_PRELOAD", library::VARIABLE]);
        let path = path_of(&preload).expect("a table").to_owned();
        assert!(path.exists());
        let mut ledger = Ledger::new();
        preload.finish(&mut ledger);
        assert!(!path.exists());
        let files = ledger.files.expect("a report");
        assert_eq!((files.files_total, files.unattributed_read_bytes), (0, Some(0)));
    }
}
