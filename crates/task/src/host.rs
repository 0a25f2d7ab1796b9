//! Describes the machine that a task runs on, and detects conditions that disturb a measurement
//! there.

use std::fs;

use skopos_model::task::{Host, Rank};

use crate::proc::kib_as_bytes;

/// Describes this machine.
pub(crate) fn describe() -> Host {
    let uname = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    Host {
        node: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        cores,
        memory_bytes: memory_bytes().unwrap_or(0),
    }
}

fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    kib_as_bytes(text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?)
}

/// Returns the rank in a parallel job, as the launcher's environment gives it.
pub fn rank() -> Option<Rank> {
    rank_of(|name| std::env::var(name).ok())
}

fn rank_of(get: impl Fn(&str) -> Option<String>) -> Option<Rank> {
    let job = |names: &[&str]| names.iter().find_map(|name| get(name)).unwrap_or_default();
    // Open MPI first: under Slurm, its ranks also carry Slurm's variables of the whole step.
    for (launcher, rank, size, jobs) in [
        (
            "openmpi",
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            &["SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"][..],
        ),
        ("slurm", "SLURM_PROCID", "SLURM_NTASKS", &["SLURM_JOB_ID"]),
        ("pmi", "PMI_RANK", "PMI_SIZE", &["SLURM_JOB_ID", "PMI_JOBID", "PBS_JOBID", "LSB_JOBID"]),
    ] {
        if let (Some(rank), Some(size)) = (get(rank), get(size)) {
            let (Ok(rank), Ok(size)) = (rank.parse(), size.parse()) else { continue };
            return Some(Rank { job: job(jobs), rank, size, launcher: launcher.to_owned() });
        }
    }
    None
}

/// The machine's counters of conditions that disturb measurements, at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disturbances {
    swapped_pages: u64,
    throttled: u64,
    starved_seconds: f64,
    /// Processor time of all processes on this machine.
    busy_seconds: f64,
}

/// Swapped pages per second above which the machine counts as swapping, rather than as tidying up.
const SWAP_PAGES: u64 = 100;

/// Share of the time in which a process waited for a processor, above which there are too few
/// processors.
const STARVED_SHARE: f64 = 0.2;

impl Disturbances {
    pub(crate) fn now() -> Self {
        let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let page = |name: &str| {
            let line = vmstat.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let pressure = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
        let line = pressure.lines().find(|line| line.starts_with("some"));
        let micros = line.and_then(|l| l.rsplit_once("total=")?.1.trim().parse::<f64>().ok());
        Self {
            swapped_pages: page("pswpin") + page("pswpout"),
            throttled: throttled(),
            starved_seconds: micros.unwrap_or(0.0) / 1e6,
            busy_seconds: busy_seconds().unwrap_or(0.0),
        }
    }

    /// Returns what disturbed the measurement between `self` and `end`, `seconds` later. The task
    /// and its monitor used `own_seconds` of processor time. Other processes can have kept the task
    /// waiting only for as long as they ran; beyond that, a task with more threads than processors
    /// waits for itself.
    pub(crate) fn until(&self, end: &Self, seconds: f64, own_seconds: f64) -> Vec<String> {
        let mut disturbed = Vec::new();
        let swapped = end.swapped_pages.saturating_sub(self.swapped_pages);
        if swapped as f64 > SWAP_PAGES as f64 * seconds.max(1.0) {
            disturbed.push(format!("the machine swapped: {swapped} pages went in or out"));
        }
        let throttled = end.throttled.saturating_sub(self.throttled);
        if throttled > 0 {
            disturbed.push(format!("processors were throttled for heat {throttled} times"));
        }
        let others = (end.busy_seconds - self.busy_seconds - own_seconds).max(0.0);
        let starved = (end.starved_seconds - self.starved_seconds).min(others);
        if starved > STARVED_SHARE * seconds && seconds > 0.0 {
            disturbed.push(format!(
                "too few processors: in {:.0} % of the time a process waited for one",
                100.0 * (starved / seconds).min(1.0)
            ));
        }
        disturbed
    }
}

/// Processor time of all processes since boot, in seconds.
fn busy_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    Some(busy_ticks(&stat)? as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Adds user, nice, system and both interrupt times of the first line, without idle and waiting
/// time. The time of guests is part of the user time.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let all: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some([0, 1, 2, 5, 6].iter().filter_map(|at| all.get(*at)).sum())
}

/// Number of times that any processor was throttled for heat since boot.
fn throttled() -> u64 {
    let cores = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let counts = cores.filter_map(|core| {
        let file = core.path().join("thermal_throttle/core_throttle_count");
        fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_comes_from_the_launchers_variables() {
        let with = |pairs: &[(&str, &str)]| {
            rank_of(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(with(&[]), None);
        let slurm = [("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "77")];
        let rank = with(&slurm).expect("a rank");
        assert_eq!((rank.rank, rank.size, &*rank.job, &*rank.launcher), (3, 8, "77", "slurm"));
        let open = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            slurm[2],
            slurm[0],
            slurm[1],
        ];
        assert_eq!(with(&open).map(|r| (r.rank, r.launcher)), Some((1, "openmpi".to_owned())));
        assert_eq!(with(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]), None);
    }

    #[test]
    fn only_disturbances_during_the_run_count() {
        let at = |swapped_pages, throttled, starved_seconds, busy_seconds| Disturbances {
            swapped_pages,
            throttled,
            starved_seconds,
            busy_seconds,
        };
        let before = at(10, 4, 1.0, 100.0);
        assert!(before.until(&before, 10.0, 0.0).is_empty());
        let after = at(5010, 5, 4.0, 108.0);
        assert_eq!(before.until(&after, 10.0, 4.0).len(), 3, "others ran for four seconds");
        assert_eq!(
            before.until(&after, 10.0, 7.0).len(),
            2,
            "others for one, the task waited for itself"
        );
        assert_eq!(before.until(&after, 10.0, 9.0).len(), 2, "ticks lag behind");
        assert_eq!(before.until(&after, 100.0, 4.0).len(), 1, "little for such a long run");
    }

    #[test]
    fn waiting_time_is_not_busy_time() {
        let stat = "cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 9 9 9\n";
        assert_eq!(busy_ticks(stat), Some(1 + 2 + 4 + 32 + 64));
        assert_eq!(busy_ticks("cpu0 1\n"), None);
    }
}
