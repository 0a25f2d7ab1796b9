//! Who runs a case: nobody, `skopos run` at each level, and what one would use instead.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value as Json;

use super::cases::{Case, Truth};
use crate::bench::child::not_started;

/// One who watches a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watcher {
    Nobody,
    Level1,
    Level2,
    Level3,
    ResourceMonitor,
    Time,
    Strace,
}

use Watcher::*;

/// All of them.
pub(super) const WATCHERS: [Watcher; 7] =
    [Nobody, Level1, Level2, Level3, ResourceMonitor, Time, Strace];

/// Those of others.
pub(super) const PEERS: [(&str, Watcher); 3] =
    [("resource_monitor", ResourceMonitor), ("time", Time), ("strace -c -f", Strace)];

/// What a watcher says of the task; `None` for what it does not say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) read_bytes: Option<f64>,
    pub(super) processes: Option<f64>,
}

impl Watcher {
    /// One run: the seconds that it took, what the program says of itself and what was seen.
    ///
    /// # Errors
    /// It does not run here.
    pub(super) fn run(self, case: &Case, dir: &Path) -> Result<(f64, Truth, Seen), String> {
        let out = dir.join("watched");
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out).map_err(|e| e.to_string())?;
        let mut command = self.command(case, dir, &out)?;
        command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
        command.current_dir(&out);
        let name = command.get_program().to_string_lossy().into_owned();
        // Nothing of the run before is in the way of this one.
        let _ = fs::remove_file(case.file(dir));
        rustix::fs::sync();
        let begun = Instant::now();
        let ran = command.output().map_err(|e| not_started(&name, &e))?;
        let seconds = begun.elapsed().as_secs_f64();
        let _ = fs::remove_file(case.file(dir));
        let (said, told) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        if !ran.status.success() {
            return Err(format!(
                "{name} ended with {}: {}",
                ran.status,
                told.lines().next().unwrap_or("")
            ));
        }
        let truth = said.lines().find_map(|line| serde_json::from_str(line).ok());
        let truth = truth.ok_or_else(|| format!("the program said {said:?}"))?;
        Ok((seconds, truth, self.seen(&out)))
    }

    fn command(self, case: &Case, dir: &Path, out: &Path) -> Result<Command, String> {
        let file = |name: &str| out.join(name).display().to_string();
        let own = std::env::current_exe().map_err(|e| e.to_string())?.display().to_string();
        let level = |level: &str| {
            vec![
                own.clone(),
                "run".into(),
                "--level".into(),
                level.into(),
                "--report".into(),
                file("report"),
                "--".into(),
            ]
        };
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let before = match self {
            Nobody => return Ok(case.bare(dir)),
            Level1 => level("1"),
            Level2 => level("2"),
            Level3 => level("3"),
            ResourceMonitor => {
                words(&["resource_monitor", "--without-disk-footprint", "-O", &file("rm"), "--"])
            }
            Time => words(&["/usr/bin/time", "-f", "%U %S %M", "-o", &file("time")]),
            Strace => words(&["strace", "-c", "-f", "-o", &file("strace")]),
        };
        let mut command = Command::new(&before[0]);
        command.args(&before[1..]).args(case.command(dir));
        Ok(command)
    }

    fn seen(self, out: &Path) -> Seen {
        let json = |name: &str| -> Option<Json> {
            serde_json::from_str(&fs::read_to_string(out.join(name)).ok()?).ok()
        };
        match self {
            Level1 | Level2 | Level3 => {
                json("report/summary.json").map(|s| ours(&s)).unwrap_or_default()
            }
            ResourceMonitor => json("rm.summary").map(|s| theirs(&s)).unwrap_or_default(),
            Time => fs::read_to_string(out.join("time")).map(|t| of_time(&t)).unwrap_or_default(),
            Nobody | Strace => Seen::default(),
        }
    }
}

fn ours(summary: &Json) -> Seen {
    let value = |name: &str| summary["resources"][name]["value"].as_f64();
    Seen {
        cpu_seconds: value("cpu_seconds"),
        resident_bytes: value("resident_bytes_max"),
        read_bytes: value("read_bytes"),
        processes: value("processes_total"),
    }
}

/// `"memory": [895, "MB"]`, where its MB are 1024 KiB.
fn theirs(summary: &Json) -> Seen {
    let value = |name: &str| {
        let number = summary[name][0].as_f64()?;
        let scale = match summary[name][1].as_str()? {
            "MB" => 1024.0 * 1024.0,
            "kB" => 1024.0,
            _ => 1.0,
        };
        Some(number * scale)
    };
    Seen {
        cpu_seconds: value("cpu_time"),
        resident_bytes: value("memory"),
        read_bytes: value("bytes_read"),
        processes: value("total_processes"),
    }
}

/// "0.31 0.02 1084 (KiB)".
fn of_time(text: &str) -> Seen {
    let numbers: Vec<f64> =
        text.lines().last().unwrap_or("").split_whitespace().flat_map(str::parse).collect();
    let [user, system, kib] = numbers[..] else { return Seen::default() };
    Seen { cpu_seconds: Some(user + system), resident_bytes: Some(kib * 1024.0), ..Seen::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_print_is_read() {
        let seen = of_time("Command exited with non-zero status 3\n0.31 0.02 1024\n");
        assert_eq!((seen.cpu_seconds, seen.resident_bytes), (Some(0.33), Some(1048576.0)));
        let summary = serde_json::json!({
            "cpu_time": [2.5, "s"], "memory": [895, "MB"], "bytes_read": [1.0, "MB"], "total_processes": [3, "procs"],
        });
        let seen = theirs(&summary);
        assert_eq!((seen.cpu_seconds, seen.resident_bytes), (Some(2.5), Some(938475520.0)));
        assert_eq!((seen.read_bytes, seen.processes), (Some(1048576.0), Some(3.0)));
        assert!(theirs(&serde_json::json!({})).resident_bytes.is_none());
    }
}
