//! collectd, with the plugins that measure the same as our sensors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::peer::Peer;
use crate::child::{Process, not_started, wait_for};

/// The longest time until its first values.
const START: Duration = Duration::from_secs(10);

/// The daemon, or the reason why it does not run.
pub(super) struct Collectd(Result<Running, String>);

struct Running {
    process: Process,
    csv: PathBuf,
}

impl Collectd {
    /// Starts it with configuration and data in `dir`.
    pub(super) fn start(dir: &Path) -> Self {
        Self(start(dir))
    }
}

impl Peer for Collectd {
    fn name(&self) -> &'static str {
        "collectd"
    }

    fn pids(&mut self) -> Result<Vec<u32>, String> {
        let running = self.0.as_mut().map_err(|reason| reason.clone())?;
        if running.process.runs() {
            Ok(vec![running.process.pid()])
        } else {
            Err("collectd ended by itself".to_owned())
        }
    }

    fn values(&mut self) -> Result<usize, String> {
        let running = self.0.as_ref().map_err(|reason| reason.clone())?;
        Ok(columns(&running.csv))
    }
}

fn start(dir: &Path) -> Result<Running, String> {
    let csv = dir.join("csv");
    let config = dir.join("collectd.conf");
    fs::write(&config, configuration(dir)).map_err(|e| format!("{}: {e}", config.display()))?;
    let mut command = Command::new("collectd");
    command.arg("-f").arg("-C").arg(&config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process::start(&mut command).map_err(|e| not_started("collectd", &e))?;
    wait_for(&mut process, START, || csv.is_dir().then_some(()))
        .map_err(|why| format!("collectd: {why}"))?;
    Ok(Running { process, csv })
}

/// The leanest configuration: a thread that reads and a thread that writes.
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"Hostname "bench"
FQDNLookup false
BaseDir "{dir}"
PIDFile "{dir}/collectd.pid"
Interval 1
ReadThreads 1
WriteThreads 1
TypesDB "/usr/share/collectd/types.db"
LoadPlugin cpu
LoadPlugin load
LoadPlugin memory
LoadPlugin swap
LoadPlugin vmem
LoadPlugin disk
LoadPlugin df
LoadPlugin interface
LoadPlugin protocols
LoadPlugin tcpconns
LoadPlugin contextswitch
LoadPlugin processes
LoadPlugin irq
LoadPlugin cgroups
LoadPlugin numa
LoadPlugin csv
<Plugin cpu>
  ValuesPercentage false
</Plugin>
<Plugin vmem>
  Verbose false
</Plugin>
<Plugin protocols>
  Value "/^(Tcp|Udp):/"
  Value "/^TcpExt:(Listen|TCPTimeouts|TCPFast|TCPSlow|TCPSyn|TCPLost|TCPSpurious|TCPOFO|TCPRcv|TCPBacklog|TCPAbort|TCPMemory)/"
  IgnoreSelected false
</Plugin>
<Plugin tcpconns>
  AllPortsSummary true
</Plugin>
<Plugin csv>
  DataDir "{dir}/csv"
  StoreRates false
</Plugin>
"#
    )
}

/// Number of values in the files of a second: the columns beside the time, in the file of each kind of
/// value. Files of the day before have the same values.
fn columns(dir: &Path) -> usize {
    let mut seen = std::collections::HashSet::new();
    let mut values = 0;
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(kind) = path.to_str().and_then(without_day)
                && seen.insert(kind.to_owned())
                && let Ok(text) = fs::read_to_string(&path)
            {
                values += text.lines().next().unwrap_or_default().matches(',').count();
            }
        }
    }
    values
}

/// `…/load-2026-11-21` without its day.
fn without_day(path: &str) -> Option<&str> {
    path.get(..path.len().checked_sub("-2026-11-21".len())?)
}
