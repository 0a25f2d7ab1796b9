//! The monitors of a program: none, `skopos run` by level and by mechanism, and its peers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::child::not_started;
use crate::programs;

/// A monitor of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watcher {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Unwatched,
    Ours(Ours),
    ResourceMonitor,
    Time,
    Strace,
}

/// `skopos run` with these arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ours {
    pub(super) level: u8,
    arguments: &'static [&'static str],
    /// The mechanism that it measures: a run without it is not compared.
    pub(super) by: Option<&'static str>,
}

use Kind::{ResourceMonitor, Strace, Time, Unwatched};

const fn level(name: &'static str, level: u8, arguments: &'static [&'static str]) -> Watcher {
    Watcher { name, kind: Kind::Ours(Ours { level, arguments, by: None }) }
}

const fn by(
    name: &'static str,
    level: u8,
    by: &'static str,
    mechanisms: &'static [&'static str],
) -> Watcher {
    Watcher { name, kind: Kind::Ours(Ours { level, arguments: mechanisms, by: Some(by) }) }
}

/// All monitors; the first stands for a run without a monitor.
pub(super) const WATCHERS: &[Watcher] = &[
    Watcher { name: "without", kind: Unwatched },
    level("level 1", 1, &["--level", "1"]),
    level("level 2", 2, &["--level", "2"]),
    by("level 2 by ptrace", 2, "ptrace", &["--mechanism", "wait4,procfs,cgroup,ptrace"]),
    level("level 3", 3, &["--level", "3"]),
    by("level 3 by preload", 3, "preload", &["--mechanism", "wait4,procfs,cgroup,ptrace,preload"]),
    by("level 3 by bpf", 3, "bpf", &["--level", "3", "--mechanism", "wait4,procfs,cgroup,bpf"]),
    by(
        "level 3 by seccomp",
        3,
        "seccomp",
        &["--level", "3", "--mechanism", "wait4,procfs,cgroup,ptrace,seccomp"],
    ),
    Watcher { name: "resource_monitor", kind: ResourceMonitor },
    Watcher { name: "time", kind: Time },
    Watcher { name: "strace -c -f", kind: Strace },
];

/// A program to be monitored.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// The command and its arguments.
    pub(super) command: Vec<String>,
    /// The file that it writes and reads, which is removed before and after the run.
    pub(super) file: Option<PathBuf>,
    /// The limit, in the syntax of `skopos run` and of `resource_monitor`.
    pub(super) limit: Option<(&'static str, &'static str)>,
    /// True if any end of the program is valid, because the end itself is measured.
    pub(super) may_fail: bool,
}

/// A program's own numbers, as far as it has them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Truth {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) read_bytes: Option<f64>,
    pub(super) processes: Option<f64>,
}

/// The report of a monitor about the task; `None` for missing values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<f64>,
    pub(super) read_bytes: Option<f64>,
    pub(super) processes: Option<f64>,
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) seconds: f64,
    pub(super) truth: Truth,
    pub(super) seen: Reported,
    /// `summary.json` and `files.json` of `skopos run`.
    pub(super) summary: Json,
    pub(super) files: Json,
}

impl Watcher {
    /// True for `skopos run`.
    pub(super) fn ours(&self) -> Option<Ours> {
        if let Kind::Ours(ours) = self.kind { Some(ours) } else { None }
    }

    /// True for a peer.
    pub(super) fn is_peer(&self) -> bool {
        matches!(self.kind, ResourceMonitor | Time | Strace)
    }

    /// Runs the program once.
    ///
    /// # Errors
    /// The monitor or the program does not run here.
    pub(super) fn run(&self, program: &Program, dir: &Path) -> Result<Ran, String> {
        let out = dir.join("watched");
        let _ = fs::remove_dir_all(&out);
        fs::create_dir(&out).map_err(|e| e.to_string())?;
        let mut command = self.command(program, &out)?;
        command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
        command.current_dir(&out);
        let name = Path::new(command.get_program()).file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        // Remove the file of the run before, and wait for its write-back.
        let remove = || program.file.iter().for_each(|file| drop(fs::remove_file(file)));
        remove();
        rustix::fs::sync();
        let begun = Instant::now();
        let ran = command.output().map_err(|e| not_started(&name, &e))?;
        let seconds = begun.elapsed().as_secs_f64();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        if !program.may_fail {
            remove();
            if !ran.status.success() {
                let first = stderr.lines().next().unwrap_or("");
                return Err(format!("{name} ended with {}: {first}", ran.status));
            }
        }
        let truth = stdout.lines().find_map(|line| serde_json::from_str(line).ok());
        let (summary, files) = (json(&out, "report/summary.json"), json(&out, "report/files.json"));
        if let Some(ours) = self.ours() {
            ours.check(&summary)?;
        }
        let seen = self.seen(&out, &summary);
        Ok(Ran { seconds, truth: truth.unwrap_or_default(), seen, summary, files })
    }

    fn command(&self, program: &Program, out: &Path) -> Result<Command, String> {
        let file = |name: &str| out.join(name).display().to_string();
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let mut before = match self.kind {
            Unwatched => Vec::new(),
            Kind::Ours(ours) => {
                let own = programs::skopos().map_err(|e| e.in_one_line())?;
                let mut all = vec![own.display().to_string(), "run".to_owned()];
                all.extend(words(ours.arguments));
                all.extend(words(&["--report", &file("report")]));
                if let Some((limit, _)) = program.limit {
                    all.extend(words(&["--limit", limit]));
                }
                all
            }
            ResourceMonitor => {
                let mut all =
                    words(&["resource_monitor", "--without-disk-footprint", "-O", &file("rm")]);
                if let Some((_, limit)) = program.limit {
                    all.extend(words(&["-L", limit]));
                }
                all
            }
            Time => words(&["/usr/bin/time", "-f", "%U %S %M", "-o", &file("time")]),
            Strace => words(&["strace", "-c", "-f", "-o", &file("strace")]),
        };
        if matches!(self.kind, Kind::Ours(_) | ResourceMonitor) {
            before.push("--".to_owned());
        }
        before.extend(program.command.iter().cloned());
        let mut command = Command::new(&before[0]);
        command.args(&before[1..]);
        Ok(command)
    }

    fn seen(&self, out: &Path, summary: &Json) -> Reported {
        match self.kind {
            Kind::Ours(_) => ours(summary),
            ResourceMonitor => theirs(&json(out, "rm.summary")),
            Time => fs::read_to_string(out.join("time")).map(|t| of_time(&t)).unwrap_or_default(),
            Unwatched | Strace => Reported::default(),
        }
    }
}

impl Ours {
    /// Checks that the mechanism that is measured took part.
    fn check(self, summary: &Json) -> Result<(), String> {
        let Some(name) = self.by else { return Ok(()) };
        let all = summary["mechanisms"].as_array().map_or(&[][..], Vec::as_slice);
        match all.iter().find(|one| one["name"] == name) {
            Some(one) if one["used"] == true => Ok(()),
            Some(one) => Err(one["why"].as_str().unwrap_or("it was not used").to_owned()),
            None => Err(format!("the report does not name {name}")),
        }
    }
}

/// A file as JSON; `null` without a file.
fn json(out: &Path, name: &str) -> Json {
    let text = fs::read_to_string(out.join(name)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn ours(summary: &Json) -> Reported {
    let value = |name: &str| summary["resources"][name]["value"].as_f64();
    Reported {
        cpu_seconds: value("cpu_seconds"),
        resident_bytes: value("resident_bytes_max"),
        read_bytes: value("read_bytes"),
        processes: value("processes_total"),
    }
}

/// `"memory": [895, "MB"]`, where its MB are 1024 KiB.
fn theirs(summary: &Json) -> Reported {
    let value = |name: &str| {
        let number = summary[name][0].as_f64()?;
        let scale = match summary[name][1].as_str()? {
            "MB" => 1024.0 * 1024.0,
            "kB" => 1024.0,
            _ => 1.0,
        };
        Some(number * scale)
    };
    Reported {
        cpu_seconds: value("cpu_time"),
        resident_bytes: value("memory"),
        read_bytes: value("bytes_read"),
        processes: value("total_processes"),
    }
}

/// "0.31 0.02 1084 (KiB)".
fn of_time(text: &str) -> Reported {
    let numbers: Vec<f64> =
        text.lines().last().unwrap_or("").split_whitespace().flat_map(str::parse).collect();
    let [user, system, kib] = numbers[..] else { return Reported::default() };
    Reported {
        cpu_seconds: Some(user + system),
        resident_bytes: Some(kib * 1024.0),
        ..Reported::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_peers_is_parsed() {
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

    #[test]
    fn a_mechanism_that_did_not_take_part_is_not_compared() {
        let ours = Ours { level: 3, arguments: &[], by: Some("bpf") };
        let summary = |used| serde_json::json!({"mechanisms": [{"name": "bpf", "used": used, "why": "not root"}]});
        assert_eq!(ours.check(&summary(true)), Ok(()));
        assert_eq!(ours.check(&summary(false)), Err("not root".to_owned()));
        assert!(ours.check(&serde_json::json!({})).is_err());
    }
}
