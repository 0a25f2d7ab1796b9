//! Ends the processes that run in the namespaces of a lab.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::netns::NAMED;

/// Time for processes to end by themselves: an agent writes its last samples.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time for the kernel to remove processes that were killed. One that waits for a disk may take longer.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Ends all processes in these namespaces: first by SIGTERM, then by SIGKILL. The calling process is left.
pub(super) fn end(namespaces: &[String]) {
    // Only a namespace without a name, which no process of a lab has, has no number here.
    let numbers = namespaces.iter().filter_map(|name| number(&Path::new(NAMED).join(name)));
    // A name may have been given to the namespace of the machine.
    let hosts = ["/proc/self/ns/net", "/proc/1/ns/net"].map(|path| number(Path::new(path)));
    let numbers: Vec<u64> = numbers.filter(|of| !hosts.contains(&Some(*of))).collect();
    for (signal, patience) in [(Signal::TERM, PATIENCE), (Signal::KILL, KILL_PATIENCE)] {
        let since = Instant::now();
        let mut told: Vec<Pid> = Vec::new();
        loop {
            let left = processes(&numbers);
            if left.is_empty() {
                return;
            }
            // A process may start another one meanwhile.
            for pid in left.iter().filter(|pid| !told.contains(pid)) {
                tell(*pid, signal, &numbers);
            }
            told = left;
            if since.elapsed() >= patience {
                break;
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Sends a signal to a process, unless it has ended meanwhile and its id is that of a process outside.
fn tell(pid: Pid, signal: Signal, numbers: &[u64]) {
    // The handle comes first: if the process with this id is inside after that, the handle is of a process inside.
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if is_inside(pid, numbers) {
        // It may have ended by itself.
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// Returns the processes whose network namespace is one of these.
fn processes(numbers: &[u64]) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let own = rustix::process::getpid();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let pids = pids.filter_map(Pid::from_raw);
    pids.filter(|pid| *pid != own && is_inside(*pid, numbers)).collect()
}

fn is_inside(pid: Pid, numbers: &[u64]) -> bool {
    // A process that has ended has no namespace any more.
    number(Path::new(&format!("/proc/{pid}/ns/net"))).is_some_and(|n| numbers.contains(&n))
}

fn number(namespace: &Path) -> Option<u64> {
    fs::metadata(namespace).ok().map(|about| about.ino())
}
