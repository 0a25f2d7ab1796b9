//! Who used most of what a limit is on, for the report to name.

use std::collections::HashMap;

use skopos_model::task::Process;

use super::{Live, Seen};
use crate::proc::Io;
use crate::sys::Pid;

impl Seen {
    /// The process that used most of a resource; of what no process has more of than another, nobody.
    pub(crate) fn greatest_user(&self, resource: &str) -> Option<String> {
        match resource {
            "read_bytes" => self.greatest_mover(Io::read, &self.blamed[0]),
            "written_bytes" => self.greatest_mover(Io::written, &self.blamed[1]),
            "cpu_seconds" | "cores" => {
                let all = self.live.values().map(|live| &live.process).chain(&self.ended);
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

    /// Where the kernel keeps a limit on memory, it has killed one by the time that it is told.
    fn killed(&self) -> impl Iterator<Item = (f64, &Process)> {
        let killed = self.ended.iter().filter(|process| process.signal == Some(libc::SIGKILL));
        killed.map(|process| (process.resident_bytes_max.unwrap_or(0) as f64, process))
    }

    /// The process with most living children.
    fn greatest_parent(&self) -> Option<String> {
        let mut children: HashMap<Pid, u64> = HashMap::new();
        for live in self.live.values() {
            *children.entry(live.process.parent).or_default() += 1;
        }
        let of = |live: &Live| children.get(&live.process.pid).copied().unwrap_or(0) as f64;
        greatest(self.live.values().map(|live| (of(live), &live.process)))
    }

    /// The process that moved most bytes itself; `ended` is the one of those that are gone.
    fn greatest_mover(&self, of: fn(&Io) -> u64, ended: &(u64, String)) -> Option<String> {
        let living = self.live.values().map(|live| (of(&live.own_io()), live));
        match living.max_by_key(|(bytes, _)| *bytes) {
            Some((bytes, live)) if bytes > ended.0 => Some(told(&live.process)),
            _ => (ended.0 > 0).then(|| ended.1.clone()),
        }
    }
}

fn greatest<'a>(all: impl Iterator<Item = (f64, &'a Process)>) -> Option<String> {
    let (used, process) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (used > 0.0).then(|| told(process))
}

/// A process as reports name it.
pub(super) fn told(process: &Process) -> String {
    format!("{} (pid {})", process.command, process.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Memory;
    use crate::sys::Status;

    #[test]
    fn who_waits_for_a_writer_has_not_written() {
        let io = |written_bytes| Some(Io { written_bytes, ..Io::default() });
        // Ids that no process has: nothing is read of them.
        let (shell, writer, reader) = (10_000_001, 10_000_002, 10_000_003);
        let mut seen = Seen::new();
        seen.born(shell, 1);
        assert_eq!(seen.greatest_user("written_bytes"), None);
        for (pid, bytes) in [(writer, 500), (reader, 7)] {
            seen.born(pid, shell);
            seen.used(pid, None, io(bytes));
            seen.ended(pid, Some(Status::Exited(0)));
        }
        seen.used(shell, None, io(508));
        let guilty = |seen: &Seen| seen.greatest_user("written_bytes").expect("one wrote");
        assert!(guilty(&seen).ends_with("(pid 10000002)"), "{}", guilty(&seen));
        seen.used(shell, None, io(1508));
        assert!(guilty(&seen).ends_with("(pid 10000001)"), "{}", guilty(&seen));
        seen.ended(shell, Some(Status::Exited(0)));
        assert!(guilty(&seen).ends_with("(pid 10000001)"), "{}", guilty(&seen));
    }

    #[test]
    fn of_each_resource_only_who_can_have_used_it_is_named() {
        // Ids that no process has: nothing is read of them.
        let (shell, forker, small, large) = (10_000_001, 10_000_002, 10_000_003, 10_000_004);
        let mut seen = Seen::new();
        for (pid, parent) in [(shell, 1), (forker, shell), (small, forker), (large, forker)] {
            seen.born(pid, parent);
        }
        let holds = |resident_bytes_max| Memory { resident_bytes_max, ..Memory::default() };
        seen.memory(small, holds(10));
        seen.memory(large, holds(1000));
        seen.threads_of(small, |_| 9);
        let ends = |seen: &Seen, resource, pid: i32| {
            let name = seen.greatest_user(resource).unwrap_or_default();
            assert!(name.ends_with(&format!("(pid {pid})")), "{resource}: {name}");
        };
        assert_eq!(seen.greatest_user("wall_seconds"), None);
        assert_eq!(seen.greatest_user("files"), None);
        ends(&seen, "processes_max", forker);
        ends(&seen, "threads_max", small);
        ends(&seen, "resident_bytes_max", large);
        seen.ended(large, Some(Status::Exited(0)));
        ends(&seen, "resident_bytes_max", small);
        seen.memory(small, holds(3000));
        seen.ended(small, Some(Status::Signalled(libc::SIGKILL)));
        seen.memory(shell, holds(5));
        ends(&seen, "resident_bytes_max", small);
    }
}
