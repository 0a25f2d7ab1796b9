//! `LD_PRELOAD`: a library stands between dynamic programs and their C library, and counts each open,
//! read, write and message by file and by address, in memory that it shares with the monitor.
//!
//! Needs nothing but a C library that loads it. A static program, one with privileges of its own or
//! one whose environment was cleared is not counted; each such process is, when it ends. What the
//! loader and the C library read for themselves is not seen either: it is in the difference to what
//! the kernel counted, which the report states.

mod library;
mod table;

use std::collections::BTreeMap;
use std::io;

use skopos_model::task::{Completeness, Files, NotSeen};

use self::table::Table;
use super::files::{self, Processes};
use super::{Launch, Mechanism};
use crate::ledger::{Ledger, Offer};
use crate::sys::Pid;

/// The name in reports.
pub(crate) const NAME: &str = "preload";

/// Commands of processes that were not seen; of more than these only the number is kept. A person
/// who reads so many knows what to look for.
const MAX_NOT_SEEN: usize = 100;

#[derive(Default)]
pub(crate) struct Preload {
    table: Option<Table>,
    processes: Processes,
    not_seen: BTreeMap<String, u64>,
    processes_not_seen: u64,
}

/// Why it cannot be used, if it was not compiled.
pub(crate) fn is_there() -> Result<(), String> {
    library::is_there()
}

impl Mechanism for Preload {
    fn name(&self) -> &'static str {
        NAME
    }

    fn can_attach(&self) -> Result<(), &'static str> {
        Err("its programs have been loaded already")
    }

    fn prepare(&mut self, launch: &mut Launch) -> io::Result<()> {
        let library = library::place()?;
        let table = Table::new()?;
        let preloaded = library::in_front(&library, std::env::var_os("LD_PRELOAD"));
        launch.environment.push(("LD_PRELOAD".into(), preloaded));
        // A monitor around this one counts in its own table, which comes after.
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
            self.ended(pid, &command);
        }
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        self.readable(ledger);
        let Some(table) = self.table.take() else { return };
        for pid in ledger.live_pids() {
            // They run on; what they counted so far is in the sums of the files.
            self.table_takes(&table, pid, ledger.command_of(pid).unwrap_or_default());
        }
        // The table is a file in memory, made by this process: reading it does not fail.
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
    fn ended(&mut self, pid: Pid, command: &str) {
        let Some(table) = self.table.take() else { return };
        if !self.table_takes(&table, pid, command) {
            self.processes_not_seen += 1;
            if let Some(count) = self.not_seen.get_mut(command) {
                *count += 1;
            } else if self.not_seen.len() < MAX_NOT_SEEN {
                self.not_seen.insert(command.to_owned(), 1);
            }
        }
        self.table = Some(table);
    }

    /// Takes over what a process counted. False if it did not, or not to its end.
    fn table_takes(&mut self, table: &Table, pid: Pid, command: &str) -> bool {
        let Ok(Some((mut process, is_seen))) = table.take(pid) else { return false };
        command.clone_into(&mut process.command);
        self.processes.push(process);
        is_seen
    }

    fn report(&mut self, table: &Table, ledger: &Ledger) -> io::Result<Files> {
        let header = table.header()?;
        let files = table.files()?;
        let overflowed = files.iter().find(|f| f.kind == "others").map_or(0, |f| f.opens);
        let processes = std::mem::take(&mut self.processes);
        let listed = files::listed(NAME, files, table.peers()?, processes);
        let io = ledger.reaped.io;
        let is_known = ledger.reaped.without_io == 0;
        let beyond = |kernel: u64, counted: u64| is_known.then(|| kernel as i64 - counted as i64);
        let not_seen = std::mem::take(&mut self.not_seen).into_iter();
        Ok(Files {
            reason: self.missing(overflowed, header.collisions),
            unattributed_read_bytes: beyond(io.read_bytes, listed.read_bytes),
            unattributed_written_bytes: beyond(io.written_bytes, listed.written_bytes),
            processes_not_seen: self.processes_not_seen,
            not_seen: not_seen.map(|(command, processes)| NotSeen { command, processes }).collect(),
            ..listed
        })
    }

    /// What is not in it, in words.
    fn missing(&self, overflowed: u64, collisions: u64) -> String {
        let mut text =
            "what the loader and the C library open and read for themselves, system calls \
                        made without it, and bytes moved by splice, mmap and io_uring are not in it"
                .to_owned();
        for (count, what) in [
            (self.processes_not_seen, "processes were not seen"),
            (overflowed, "opens found no room for a file of their own"),
            (collisions, "processes took the place of one that had not ended"),
        ] {
            if count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        text
    }
}

/// The place of the table, for those who look whether something is left behind.
#[cfg(test)]
fn path_of(preload: &Preload) -> Option<&std::path::Path> {
    preload.table.as_ref().map(|table| table.path.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_for_two_variables_and_leaves_no_table() {
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
