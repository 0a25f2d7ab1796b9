//! A lower bound of the memory of processes that may share pages, from counters that the kernel keeps.
//!
//! To tell how often pages are shared, the kernel walks page tables under a lock that a growing process holds most
//! of the time; a look at twenty such processes waits for the turn of each. The bound needs no lock: programs share
//! no anonymous pages, and a fork shares only those that it had when it began.

use std::collections::{HashMap, HashSet};

use crate::proc::{Memory, Stat};
use crate::sys::Pid;

/// Anonymous pages of processes, in memory and in swap, when each was first seen.
#[derive(Default)]
pub(super) struct CertainMemory {
    first: HashMap<(Pid, u64), u64>,
    /// The processes of the sample under way.
    now: Vec<Holder>,
}

/// The memory of a process.
struct Holder {
    key: (Pid, u64),
    /// Equal for forks of one program.
    program: [u64; 2],
    anonymous: u64,
    /// Resident pages of files.
    of_files: u64,
    /// Anonymous pages since it was first seen.
    grown: u64,
}

/// Of the processes of a program: the most anonymous bytes of one, and the anonymous bytes and growth of all.
type OfProgram = (u64, HashSet<(u64, u64)>);

impl CertainMemory {
    /// Adds a process to the sample.
    pub(super) fn add(&mut self, pid: Pid, stat: &Stat, memory: &Memory) {
        let key = (pid, stat.started_ticks);
        // A page that was swapped in is not new.
        let held = memory.anonymous_bytes + memory.swap_bytes;
        let first = *self.first.entry(key).or_insert(held);
        self.now.push(Holder {
            key,
            program: stat.program,
            anonymous: memory.anonymous_bytes,
            of_files: memory.file_bytes,
            grown: memory.anonymous_bytes.saturating_sub(first),
        });
    }

    /// Returns the bound for the processes of the sample, and begins the next sample.
    pub(super) fn bytes(&mut self) -> u64 {
        let all = std::mem::take(&mut self.now);
        let there: HashSet<_> = all.iter().map(|holder| holder.key).collect();
        self.first.retain(|key, _| there.contains(key));
        // This user may not see which program a process runs if the process has made itself private or runs as another
        // user. Then it may be a fork of any other.
        let is_known = all.iter().all(|holder| holder.program[1] != 0);
        // For each program the largest process and the growth of all. Processes with equal counters may run in the same
        // memory, so they count once.
        let mut programs: HashMap<[u64; 2], OfProgram> = HashMap::new();
        for holder in &all {
            let program = if is_known { holder.program } else { [0; 2] };
            let (largest, grown) = programs.entry(program).or_default();
            *largest = holder.anonymous.max(*largest);
            grown.insert((holder.anonymous, holder.grown));
        }
        let of_program = |(largest, grown): &OfProgram| {
            grown.iter().map(|(_, grown)| grown).sum::<u64>().max(*largest)
        };
        let anonymous: u64 = programs.values().map(of_program).sum();
        anonymous + all.iter().map(|holder| holder.of_files).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc;

    const MIB: u64 = 1 << 20;

    /// Returns the bound for processes given by id, program, anonymous and swapped MiB.
    fn bound(certain: &mut CertainMemory, all: &[(Pid, u64, u64, u64)]) -> u64 {
        let own = proc::stat(std::process::id() as Pid).expect("it runs");
        for (pid, program, anonymous, swapped) in all {
            let stat = Stat { program: [*program, 7], ..own };
            let (anonymous_bytes, swap_bytes) = (anonymous * MIB, swapped * MIB);
            certain.add(*pid, &stat, &Memory { anonymous_bytes, swap_bytes, ..Memory::default() });
        }
        certain.bytes() / MIB
    }

    #[test]
    fn programs_share_no_anonymous_pages_and_forks_those_of_their_start() {
        let mut certain = CertainMemory::default();
        assert_eq!(bound(&mut certain, &[(1, 1, 100, 0), (2, 2, 100, 0)]), 200, "two programs");
        let mut certain = CertainMemory::default();
        assert_eq!(bound(&mut certain, &[(1, 1, 200, 0), (2, 1, 200, 0), (3, 1, 200, 0)]), 200);
        let grown = [(1, 1, 200, 0), (2, 1, 450, 0), (3, 1, 500, 0)];
        assert_eq!(bound(&mut certain, &grown), 550, "two forks grew");
        assert_eq!(bound(&mut certain, &grown[..2]), 450, "one is gone");
        // A new process has the number of an old one.
        assert_eq!(bound(&mut certain, &[(1, 1, 200, 0), (3, 1, 900, 0)]), 900);
        assert_eq!(certain.first.len(), 2);
    }

    #[test]
    fn processes_in_one_memory_and_those_of_an_unknown_program_count_once() {
        let mut certain = CertainMemory::default();
        assert_eq!(bound(&mut certain, &[(1, 1, 100, 0), (2, 1, 100, 0)]), 100);
        assert_eq!(bound(&mut certain, &[(1, 1, 400, 0), (2, 1, 400, 0)]), 400, "one memory");
        // The kernel shows 1 and 0 instead of the addresses.
        let own = proc::stat(std::process::id() as Pid).expect("it runs");
        let mut certain = CertainMemory::default();
        for (pid, program) in [(1, [5, 7]), (2, [1, 0])] {
            let memory = Memory { anonymous_bytes: 300 * MIB, ..Memory::default() };
            certain.add(pid, &Stat { program, ..own }, &memory);
        }
        assert_eq!(certain.bytes() / MIB, 300, "it may be a fork of the other");
    }

    #[test]
    fn shared_pages_that_come_back_from_swap_are_not_growth() {
        let mut certain = CertainMemory::default();
        let away = [(1, 1, 0, 200), (2, 1, 0, 200), (3, 1, 0, 200)];
        assert_eq!(bound(&mut certain, &away), 0);
        let back = [(1, 1, 200, 0), (2, 1, 200, 0), (3, 1, 200, 0)];
        assert_eq!(bound(&mut certain, &back), 200);
    }

    #[test]
    fn a_fork_has_the_program_of_its_parent_and_another_program_another() {
        let own = proc::stat(std::process::id() as Pid).expect("it runs").program;
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let pid = child.id() as Pid;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let of_it = || proc::stat(pid).map_or([0; 2], |stat| stat.program);
        // In the midst of exec it has no addresses.
        while proc::name(pid).as_deref() != Some("[sleep]") || of_it().contains(&0) {
            assert!(std::time::Instant::now() < until, "it becomes its program");
            std::thread::yield_now();
        }
        assert_ne!(own, of_it());
        assert!(!own.contains(&0));
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell.args(["-c", "(while :; do :; done) & echo $! $$; wait"]);
        shell = shell.stdout(std::process::Stdio::piped());
        let mut running = shell.spawn().expect("it starts");
        let mut line = String::new();
        let mut out = std::io::BufReader::new(running.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
        let pids: Vec<Pid> = line.split_whitespace().flat_map(str::parse).collect();
        let programs = pids.iter().map(|pid| proc::stat(*pid).expect("it runs").program);
        let programs: Vec<_> = programs.collect();
        assert!(pids.iter().all(|pid| crate::sys::kill(*pid, libc::SIGKILL)));
        running.wait().expect("it ends");
        assert_eq!(programs[0], programs[1], "{line}");
    }
}
