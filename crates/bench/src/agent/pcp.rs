//! PCP: pmcd with its Linux and process agents, and a pmlogger that writes its values each second.
//!
//! Debian's package wants systemd to finish its installation; its programs need only a
//! configuration, a name space (`pmnsmerge` makes it) and a private socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::peer::Peer;
use super::usage::family;
use crate::child::{Process, wait_for};

/// The folders of its daemons in the distributions.
const PROGRAMS: &str = "/usr/lib/pcp/bin";
/// The longest time until a daemon is ready.
const START: Duration = Duration::from_secs(10);
/// A port of the loopback that pmcd requires. It stays unused, because pmlogger uses the socket.
const PORT: &str = "44399";

/// The metrics of our sensors, by their names in PCP.
const METRICS: &[&str] = &[
    "kernel.all.load",
    "kernel.all.cpu",
    "kernel.percpu.cpu",
    "kernel.all.pressure",
    "kernel.all.pswitch",
    "kernel.all.intr",
    "mem.util",
    "mem.numa.alloc",
    "mem.vmstat.pgpgin",
    "mem.vmstat.pgpgout",
    "mem.vmstat.pswpin",
    "mem.vmstat.pswpout",
    "mem.vmstat.pgfault",
    "mem.vmstat.pgmajfault",
    "mem.vmstat.pgalloc_normal",
    "mem.vmstat.pgfree",
    "mem.vmstat.oom_kill",
    "swap",
    "disk.dev",
    "disk.partitions",
    "filesys",
    "network.interface.in",
    "network.interface.out",
    "network.tcp.activeopens",
    "network.tcp.passiveopens",
    "network.tcp.attemptfails",
    "network.tcp.estabresets",
    "network.tcp.currestab",
    "network.tcp.insegs",
    "network.tcp.outsegs",
    "network.tcp.retranssegs",
    "network.tcp.inerrs",
    "network.tcp.outrsts",
    "network.tcp.listenoverflows",
    "network.tcp.listendrops",
    "network.tcp.timeouts",
    "network.tcp.fastretrans",
    "network.tcp.synretrans",
    "network.udp",
    "network.sockstat",
    "proc.runq",
    "cgroup.cpuacct",
    "cgroup.memory.usage",
];

/// Values of pmlogger about itself that every archive has.
const OWN_VALUES: usize = 3;

/// The daemons, or the reason why they do not run.
pub(super) struct Pcp(Result<Running, String>);

struct Running {
    pmcd: Process,
    pmlogger: Option<Process>,
    archive: PathBuf,
}

impl Pcp {
    /// Starts them with all of their files in `dir`.
    pub(super) fn start(dir: &Path) -> Self {
        Self(start(dir))
    }
}

impl Peer for Pcp {
    fn name(&self) -> &'static str {
        "pcp"
    }

    fn pids(&mut self) -> Result<Vec<u32>, String> {
        let running = self.0.as_mut().map_err(|reason| reason.clone())?;
        if !running.pmcd.runs() {
            return Err("pmcd ended by itself".to_owned());
        }
        let Some(pmlogger) = running.pmlogger.as_mut() else {
            return Err("pmlogger has ended".to_owned());
        };
        if !pmlogger.runs() {
            return Err("pmlogger ended by itself".to_owned());
        }
        let mut pids = family(running.pmcd.pid());
        pids.extend(family(pmlogger.pid()));
        Ok(pids)
    }

    /// Ends pmlogger, so that its archive is complete, and counts the values in it.
    fn values(&mut self) -> Result<usize, String> {
        let running = self.0.as_mut().map_err(|reason| reason.clone())?;
        running.pmlogger = None;
        let output = Command::new("pmlogsummary")
            .arg(&running.archive)
            .env("PCP_DERIVED_CONFIG", "")
            .output()
            .map_err(|e| format!("pmlogsummary: {e}"))?;
        let lines = output.stdout.split(|&b| b == b'\n').filter(|line| !line.is_empty()).count();
        lines.checked_sub(OWN_VALUES).filter(|n| *n > 0).ok_or("an empty archive".to_owned())
    }
}

fn start(dir: &Path) -> Result<Running, String> {
    let program = |name: &str| Path::new(PROGRAMS).join(name);
    if !program("pmcd").exists() {
        return Err("pcp is not installed".to_owned());
    }
    let namespace = dir.join("names");
    let roots = ["root_root", "root_pmcd", "root_linux", "root_proc"];
    run(command(dir, &program("pmnsmerge"))
        .args(roots.map(|name| format!("/usr/lib/pcp/pmns/{name}")))
        .arg(&namespace))?;
    let (socket, config) = (dir.join("pmcd.sock"), dir.join("pmcd.conf"));
    write(&config, AGENTS)?;
    let mut pmcd = command(dir, &program("pmcd"));
    pmcd.args(["-f", "-A", "-i", "127.0.0.1", "-p", PORT, "-n"]).arg(&namespace);
    pmcd.arg("-s").arg(&socket).arg("-c").arg(&config);
    pmcd.arg("-l").arg(dir.join("pmcd.log")).arg("-x").arg(dir.join("pmcd.fatal"));
    let mut pmcd = Process::start(&mut pmcd).map_err(|e| format!("pmcd: {e}"))?;
    wait_for(&mut pmcd, START, || socket.exists().then_some(()))
        .map_err(|why| format!("pmcd: {why}"))?;
    let (archive, config) = (dir.join("archive"), dir.join("pmlogger.conf"));
    write(&config, &format!("log mandatory on 1 sec {{\n{}\n}}\n", METRICS.join("\n")))?;
    let mut pmlogger = command(dir, &program("pmlogger"));
    pmlogger.arg("-h").arg(format!("unix:{}", socket.display())).arg("-n").arg(&namespace);
    pmlogger.arg("-c").arg(&config).arg("-l").arg(dir.join("pmlogger.log")).arg(&archive);
    let mut pmlogger = Process::start(&mut pmlogger).map_err(|e| format!("pmlogger: {e}"))?;
    let first = dir.join("archive.0");
    wait_for(&mut pmlogger, START, || first.exists().then_some(()))
        .map_err(|why| format!("pmlogger: {why}"))?;
    Ok(Running { pmcd, pmlogger: Some(pmlogger), archive })
}

/// pmcd's agents, as processes as in Debian's own configuration.
const AGENTS: &str = "\
pmcd 2 dso pmcd_init /var/lib/pcp/pmdas/pmcd/pmda_pmcd.so
proc 3 pipe binary /usr/lib/pcp/pmdas/proc/pmdaproc -d 3
linux 60 pipe binary /usr/lib/pcp/pmdas/linux/pmdalinux
";

/// A program of PCP, quiet, with all of its directories in `dir` and without derived metrics,
/// about which the version in Debian 12 logs complaints every second.
fn command(dir: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    for variable in ["PCP_RUN_DIR", "PCP_TMP_DIR", "PCP_LOG_DIR"] {
        command.env(variable, dir);
    }
    command.env("PCP_DERIVED_CONFIG", "").current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", command.get_program().to_string_lossy())),
        Err(e) => Err(format!("{}: {e}", command.get_program().to_string_lossy())),
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
