//! The process that used most of a limited resource, for the report to name.

use std::collections::HashMap;

use skopos_model::task::Process;

use super::Ledger;
use super::live::{Live, label};
use crate::proc::Io;
use crate::sys::Pid;

impl Ledger {
    /// Returns the process that used most of a resource; `None` if the resource has no shares of
    /// single processes.
    pub(crate) fn heaviest_user(&self, resource: &str) -> Option<String> {
        match resource {
            "read_bytes" => self.greatest_mover(Io::read, &self.top_movers[0]),
            "written_bytes" => self.greatest_mover(Io::written, &self.top_movers[1]),
            "cpu_seconds" | "cores" => {
                let all = self.live.values().map(|live| &live.process).chain(self.exited.iter());
                greatest(all.map(|process| (process.cpu_seconds.unwrap_or(0.0), process)))
            }
            "resident_bytes_max" | "pss_bytes_max" | "cgroup_bytes_max" => {
                let living = self.live.values().map(|live| {
                    let bytes = live.memory.map_or(0, |memory| memory.resident_bytes_max);
                    (bytes as f64, &live.process)
                });
                greatest(living.chain(self.killed()))
            }
            "virtual_bytes_max" => greatest(self.live.values().map(|live| {
                let bytes = live.memory.map_or(0, |memory| memory.virtual_bytes_max);
                (bytes as f64, &live.process)
            })),
            "swap_bytes_max" => greatest(self.live.values().map(|live| {
                let bytes = live.memory.map_or(0, |memory| memory.swap_bytes);
                (bytes as f64, &live.process)
            })),
            "processes_max" => self.greatest_parent(),
            "threads_max" => {
                greatest(self.live.values().map(|live| (live.threads as f64, &live.process)))
            }
            _ => None,
        }
    }

    /// Processes that were killed. If the kernel enforces a limit on memory, it has killed a process
    /// by the time that the monitor learns of it.
    fn killed(&self) -> impl Iterator<Item = (f64, &Process)> {
        let killed = self.exited.iter().filter(|process| process.signal == Some(libc::SIGKILL));
        killed.map(|process| (process.resident_bytes_max.unwrap_or(0) as f64, process))
    }

    /// The process with the most living children.
    fn greatest_parent(&self) -> Option<String> {
        let mut children: HashMap<Pid, u64> = HashMap::new();
        for live in self.live.values() {
            *children.entry(live.process.parent).or_default() += 1;
        }
        let of = |live: &Live| children.get(&live.process.pid).copied().unwrap_or(0) as f64;
        greatest(self.live.values().map(|live| (of(live), &live.process)))
    }

    /// The process that moved most bytes itself; `exited` is the greatest mover among the exited.
    fn greatest_mover(&self, of: fn(&Io) -> u64, exited: &(u64, String)) -> Option<String> {
        let living = self.live.values().map(|live| (of(&live.own_io()), live));
        match living.max_by_key(|(bytes, _)| *bytes) {
            Some((bytes, live)) if bytes > exited.0 => Some(label(&live.process)),
            _ => (exited.0 > 0).then(|| exited.1.clone()),
        }
    }
}

fn greatest<'a>(all: impl Iterator<Item = (f64, &'a Process)>) -> Option<String> {
    let (used, process) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (used > 0.0).then(|| label(process))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Memory;
    use crate::sys::Status;

    #[test]
    fn a_process_that_waits_for_a_writer_has_not_written() {
        let io = |written_bytes| Some(Io { written_bytes, ..Io::default() });
        // No process has these ids, so nothing is read of them.
        let (shell, writer, reader) = (10_000_001, 10_000_002, 10_000_003);
        let mut ledger = Ledger::new();
        ledger.process_started(shell, 1);
        assert_eq!(ledger.heaviest_user("written_bytes"), None);
        for (pid, bytes) in [(writer, 500), (reader, 7)] {
            ledger.process_started(pid, shell);
            ledger.record_usage(pid, None, io(bytes));
            ledger.process_exited(pid, Some(Status::Exited(0)));
        }
        ledger.record_usage(shell, None, io(508));
        let heaviest = |ledger: &Ledger| ledger.heaviest_user("written_bytes").expect("one wrote");
        assert!(heaviest(&ledger).ends_with("(pid 10000002)"), "{}", heaviest(&ledger));
        ledger.record_usage(shell, None, io(1508));
        assert!(heaviest(&ledger).ends_with("(pid 10000001)"), "{}", heaviest(&ledger));
        ledger.process_exited(shell, Some(Status::Exited(0)));
        assert!(heaviest(&ledger).ends_with("(pid 10000001)"), "{}", heaviest(&ledger));
    }

    #[test]
    fn only_a_process_that_can_have_used_a_resource_is_named() {
        // No process has these ids, so nothing is read of them.
        let (shell, forker, small, large) = (10_000_001, 10_000_002, 10_000_003, 10_000_004);
        let mut ledger = Ledger::new();
        for (pid, parent) in [(shell, 1), (forker, shell), (small, forker), (large, forker)] {
            ledger.process_started(pid, parent);
        }
        let holds = |resident_bytes_max| Memory { resident_bytes_max, ..Memory::default() };
        ledger.record_memory(small, holds(10));
        ledger.record_memory(large, holds(1000));
        ledger.update_threads(small, |_| 9);
        let ends = |ledger: &Ledger, resource, pid: i32| {
            let name = ledger.heaviest_user(resource).unwrap_or_default();
            assert!(name.ends_with(&format!("(pid {pid})")), "{resource}: {name}");
        };
        assert_eq!(ledger.heaviest_user("wall_seconds"), None);
        assert_eq!(ledger.heaviest_user("files"), None);
        ends(&ledger, "processes_max", forker);
        ends(&ledger, "threads_max", small);
        ends(&ledger, "resident_bytes_max", large);
        ledger.process_exited(large, Some(Status::Exited(0)));
        ends(&ledger, "resident_bytes_max", small);
        ledger.record_memory(small, holds(3000));
        ledger.process_exited(small, Some(Status::Signalled(libc::SIGKILL)));
        ledger.record_memory(shell, holds(5));
        ends(&ledger, "resident_bytes_max", small);
    }
}
