//! The machine of a run, and the versions of the programs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::{Command, Stdio};

use serde::Serialize;

/// The machine, and the versions of the programs that were measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) host: String,
    kernel: String,
    cpu: String,
    cores: usize,
    memory_bytes: u64,
    clock_source: String,
    /// Load at the beginning of the run: the work of other programs.
    load_1m: f64,
    versions: BTreeMap<&'static str, String>,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let uname = rustix::system::uname();
        let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        let kib = field(&meminfo, "MemTotal").and_then(|v| first_word(v).parse::<u64>().ok());
        let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        Self {
            host: text(uname.nodename()),
            kernel: format!("{} {}", text(uname.release()), text(uname.machine())),
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kib.unwrap_or(0) * 1024,
            clock_source: clock.trim().to_owned(),
            load_1m: first_word(&read("/proc/loadavg")).parse().unwrap_or(f64::NAN),
            versions: BTreeMap::from([("skopos", env!("CARGO_PKG_VERSION").to_owned())]),
        }
    }

    /// Adds a known version.
    pub(crate) fn version_is(&mut self, name: &'static str, version: String) {
        self.versions.insert(name, version);
    }

    /// Adds the version that `program args` prints: the first word that begins with a digit, or has a
    /// digit after `v=` or `fio-`. If it prints no version, the version of its package is taken.
    pub(crate) fn version(&mut self, name: &'static str, program: &str, args: &[&str]) {
        let output = Command::new(program).args(args).stdin(Stdio::null()).output();
        let version = match output {
            Ok(output) => {
                let bytes = [output.stdout, output.stderr].concat();
                let printed = version_in(&String::from_utf8_lossy(&bytes));
                let version = printed.or_else(|| package_version(program));
                version.unwrap_or_else(|| "unknown".to_owned())
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => "not installed".to_owned(),
            Err(e) => format!("unknown: {e}"),
        };
        self.versions.insert(name, version);
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, kernel, cpu, cores, load_1m, .. } = self;
        let memory = skopos_term::format::bytes(self.memory_bytes as f64);
        write!(f, "{host}: {cpu}, {cores} cores, {memory}, Linux {kernel}, load {load_1m:.1};")?;
        for (name, version) in &self.versions {
            write!(f, " {name} {version}")?;
        }
        Ok(())
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// The version of the package that installed `program`, by dpkg or rpm.
fn package_version(program: &str) -> Option<String> {
    let run = |command: &str, args: &[&str]| {
        let output = Command::new(command).args(args).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // An absolute name replaces the folder.
    let path =
        std::env::split_paths(&folders).map(|dir| dir.join(program)).find(|p| p.is_file())?;
    let path = path.to_str()?;
    let dpkg = || {
        // "time: /usr/bin/time"
        let owner = run("dpkg-query", &["--search", path])?;
        let package = owner.split(':').next()?.to_owned();
        run("dpkg-query", &["--show", "--showformat=${Version}", &package])
    };
    dpkg().or_else(|| run("rpm", &["-q", "--file", "--queryformat=%{VERSION}-%{RELEASE}", path]))
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn version_in(text: &str) -> Option<String> {
    text.split_whitespace()
        .map(|word| word.trim_start_matches("v=").trim_start_matches("fio-"))
        .map(|word| word.trim_end_matches([',', ')', '.']))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_programs_print_them() {
        for (text, expected) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", Some("7.0.15")),
            (
                "Usage: collectd [OPTIONS]\n\ncollectd 5.12.0.git, http://collectd.org/",
                Some("5.12.0.git"),
            ),
            ("pmcd version 6.0.3", Some("6.0.3")),
            ("fio-3.33", Some("3.33")),
            ("mpirun (Open MPI) 4.1.4\n", Some("4.1.4")),
            ("no number here", None),
        ] {
            assert_eq!(version_in(text).as_deref(), expected, "{text}");
        }
    }
}
