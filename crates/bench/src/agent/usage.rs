//! The usage of a set of processes, measured from outside.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::Instant;

use skopos_term::Failure;

/// The usage over a window.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    /// The largest sum of VmRSS.
    pub(crate) rss_bytes: u64,
    /// The largest sum of PSS, in which shared pages are divided among their users.
    pub(crate) pss_bytes: u64,
    pub(crate) cpu_seconds_per_second: f64,
}

/// Measures processes from `start` to `stop`.
pub(crate) struct Meter {
    running: Result<Running, String>,
}

struct Running {
    pids: Vec<u32>,
    started: Instant,
    cpu_at_start: HashMap<u32, u64>,
    rss_bytes: u64,
    pss_bytes: u64,
}

impl Meter {
    pub(crate) fn start(pids: Vec<u32>) -> Self {
        Self::of(Ok(pids))
    }

    /// A meter of the processes of a peer, which may not run.
    pub(crate) fn of(pids: Result<Vec<u32>, String>) -> Self {
        let running = pids.and_then(|pids| {
            let cpu_at_start = cpu_of(&pids)?;
            let started = Instant::now();
            Ok(Running { pids, started, cpu_at_start, rss_bytes: 0, pss_bytes: 0 })
        });
        let mut meter = Self { running };
        meter.look();
        meter
    }

    /// Reads the memory.
    pub(crate) fn look(&mut self) {
        let failed = match &mut self.running {
            Ok(running) => running.look().err(),
            Err(_) => None,
        };
        if let Some(reason) = failed {
            self.running = Err(reason);
        }
    }

    pub(crate) fn stop(self) -> Result<Usage, String> {
        let running = self.running?;
        let seconds = running.started.elapsed().as_secs_f64();
        let at_end = cpu_of(&running.pids)?;
        let nanos: u64 = at_end
            .iter()
            .map(|(pid, end)| end - running.cpu_at_start.get(pid).copied().unwrap_or(0).min(*end))
            .sum();
        Ok(Usage {
            rss_bytes: running.rss_bytes,
            pss_bytes: running.pss_bytes,
            cpu_seconds_per_second: nanos as f64 / 1e9 / seconds,
        })
    }
}

impl Running {
    fn look(&mut self) -> Result<(), String> {
        let (mut rss, mut pss) = (0, 0);
        for pid in &self.pids {
            let path = format!("/proc/{pid}/smaps_rollup");
            let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
            rss += kib(&text, "Rss:").ok_or_else(|| format!("{path} has no Rss"))? * 1024;
            pss += kib(&text, "Pss:").ok_or_else(|| format!("{path} has no Pss"))? * 1024;
        }
        self.rss_bytes = self.rss_bytes.max(rss);
        self.pss_bytes = self.pss_bytes.max(pss);
        Ok(())
    }
}

/// The number in a line `name  123 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse().ok())
}

/// Nanoseconds that each process has spent on a processor, with all of its threads.
///
/// `utime + stime` of `/proc/PID/stat` would be too coarse: they count in ticks of 10 ms, a third of the
/// agent's goal for a minute.
fn cpu_of(pids: &[u32]) -> Result<HashMap<u32, u64>, String> {
    pids.iter().map(|pid| cpu(*pid).map(|nanos| (*pid, nanos))).collect()
}

fn cpu(pid: u32) -> Result<u64, String> {
    let tasks = format!("/proc/{pid}/task");
    let mut nanos = 0;
    for task in fs::read_dir(&tasks).map_err(|e| format!("{tasks}: {e}"))? {
        let path = task.map_err(|e| format!("{tasks}: {e}"))?.path().join("schedstat");
        // A thread that ends between two readings takes its time with it. The measured programs do
        // not start or end threads after their start.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let first = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        nanos += first.ok_or_else(|| format!("{} cannot be read", path.display()))?;
    }
    Ok(nanos)
}

/// Returns the nanoseconds that the threads of a process have spent on a processor, by name; threads of a pool, such as
/// `rx-0` and `rx-1`, together. The main thread has the name of the program.
///
/// # Errors
/// The process is not there.
pub(crate) fn threads_of(pid: u32) -> Result<BTreeMap<String, u64>, String> {
    let tasks = format!("/proc/{pid}/task");
    let mut threads = BTreeMap::new();
    for task in fs::read_dir(&tasks).map_err(|e| format!("{tasks}: {e}"))? {
        let task = task.map_err(|e| format!("{tasks}: {e}"))?.path();
        // A thread may end between two readings.
        let read = |name: &str| fs::read_to_string(task.join(name)).ok();
        let (Some(name), Some(times)) = (read("comm"), read("schedstat")) else { continue };
        let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit());
        let nanos = times.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        *threads.entry(name.trim_end_matches('-').to_owned()).or_default() +=
            nanos.ok_or_else(|| format!("{} has no time", task.display()))?;
    }
    Ok(threads)
}

/// Seconds that all processors together have worked since the machine started, including the share
/// of its host.
pub(super) fn machine_busy() -> Result<f64, Failure> {
    let path = "/proc/stat";
    let text = fs::read_to_string(path).map_err(|e| Failure::new(path).because(&e))?;
    let ticks =
        busy_ticks(&text).ok_or_else(|| Failure::new(format!("{path} has no line `cpu`")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The sum of `cpu user nice system idle iowait irq softirq steal …` without idle and iowait. The
/// fields behind them are guests, which `user` and `nice` include.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).flat_map(str::parse).collect();
    let [user, nice, system, _, _, irq, softirq, steal] = ticks[..] else { return None };
    Some(user + nice + system + irq + softirq + steal)
}

/// `pid` and all of its descendants.
pub(super) fn family(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let parents = parents();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(child, _)| *child));
        next += 1;
    }
    found
}

/// Every process and its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // State and parent follow the command, which stands in parentheses and may contain spaces.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_family_begins_with_its_parent() {
        let own = std::process::id();
        let parent = std::os::unix::process::parent_id();
        assert_eq!(family(own).first(), Some(&own));
        assert!(family(parent).contains(&own));
    }

    #[test]
    fn the_meter_sees_work_and_memory() {
        // In another process, because the threads of other tests take their time with them.
        let mut shell = Command::new("sh");
        let mut busy = shell.args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let mut meter = Meter::start(vec![busy.id()]);
        let before = cpu(busy.id());
        let (started, patience) = (Instant::now(), Duration::from_secs(60));
        while cpu(busy.id()) == before && started.elapsed() < patience {
            thread::sleep(Duration::from_millis(10));
        }
        meter.look();
        let usage = meter.stop();
        busy.kill().expect("it runs");
        busy.wait().expect("it ran");
        let usage = usage.expect("it ran");
        assert!(usage.cpu_seconds_per_second > 0.0, "{usage:?}");
        assert!(usage.pss_bytes > 0 && usage.pss_bytes <= usage.rss_bytes, "{usage:?}");
    }

    #[test]
    fn the_time_of_a_thread_has_its_name() {
        let work = std::thread::Builder::new().name("worker-7".to_owned());
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = work.spawn(move || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(20) {}
            let _ = wait.recv();
        });
        let thread = thread.expect("a thread");
        let (started, patience) = (Instant::now(), Duration::from_secs(60));
        let time = || threads_of(std::process::id()).expect("it runs").get("worker").copied();
        while time().unwrap_or(0) < 1_000_000 && started.elapsed() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(time().is_some_and(|nanos| nanos >= 1_000_000));
        drop(done);
        thread.join().expect("it ends");
    }

    #[test]
    fn the_machine_is_busy_when_it_does_not_wait() {
        let text = "cpu  100 20 3 5000 700 4 50 6 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(text), Some(100 + 20 + 3 + 4 + 50 + 6));
        for wrong in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 x 6 7 8"] {
            assert_eq!(busy_ticks(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_process_that_is_not_there_has_a_reason() {
        let gone = Meter::of(Err("not installed".to_owned())).stop();
        assert_eq!(gone.err().as_deref(), Some("not installed"));
    }
}
