//! A real Slurm for tests: munged, slurmctld and slurmd of this machine alone. The tests of the command line use it, too.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends a test that would wait for ever. A working test never takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn write_program(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
    fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

/// A cluster of this machine alone, with its own ports, keys and folders.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    /// Starts a cluster with further lines of slurm.conf, in which `FOLDER` stands for its folder. An error that begins with
    /// "no " is a defect; any other one is a reason to skip.
    ///
    /// `prepare` gets the folder before Slurm starts: it makes the programs that these lines name.
    pub(crate) fn start(more: &str, prepare: &dyn Fn(&Path)) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("a Slurm cluster needs root".to_owned());
        }
        for tool in ["munged", "slurmctld", "slurmd", "scontrol", "sbatch"] {
            if !is_there(tool) {
                return Err(format!("{tool} is not installed (Debian: slurmctld, slurmd, munge)"));
            }
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut cluster = Self { folder, daemons: Vec::new() };
        cluster.write_files(more);
        prepare(cluster.folder.path());
        let path = |name: &str| cluster.path(name).display().to_string();
        let (key, socket) = (path("munge/key"), path("munge/socket"));
        let munged = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={key}"),
            format!("--socket={socket}"),
            format!("--log-file={}", path("munge/log")),
            format!("--pid-file={}", path("munge/pid")),
            format!("--seed-file={}", path("munge/seed")),
        ];
        cluster.daemon("munged", &munged);
        cluster.wait_for("munged", |c| c.path("munge/socket").exists())?;
        let conf = cluster.path("slurm.conf").display().to_string();
        let with_conf = |first: &[&str]| -> Vec<String> {
            first.iter().map(|a| (*a).to_owned()).chain(["-f".to_owned(), conf.clone()]).collect()
        };
        cluster.daemon("slurmctld", &with_conf(&["-D", "-c"]));
        cluster.daemon("slurmd", &with_conf(&["-D"]));
        let is_idle = |c: &Self| c.run("sinfo", &["-h", "-o", "%T"]).trim() == "idle";
        cluster.wait_for("an idle node", is_idle)?;
        Ok(cluster)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_files(&self, more: &str) {
        for folder in ["munge", "spool", "state"] {
            fs::create_dir(self.path(folder)).expect("writable");
        }
        // Only root may read the key, and it is removed with the folder.
        let key = fs::File::open("/dev/urandom").and_then(|mut random| {
            let mut key = [0; 1024];
            std::io::Read::read_exact(&mut random, &mut key).map(|()| key)
        });
        fs::write(self.path("munge/key"), key.expect("random bytes")).expect("writable");
        for secret in ["munge", "munge/key"] {
            let mode = if secret == "munge" { 0o700 } else { 0o400 };
            fs::set_permissions(self.path(secret), fs::Permissions::from_mode(mode)).expect("ours");
        }
        // Below the range from which the kernel gives out ports.
        let first = 30_000 + (std::process::id() % 1000) as u16 * 2;
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let ports: Vec<u16> = (first..32_700).filter(is_free).take(2).collect();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = host.split('.').next().unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let conf = format!(
            "ClusterName=skopos\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmdPort={}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nCredType=cred/munge\n\
             AuthInfo=socket=FOLDER/munge/socket\nStateSaveLocation=FOLDER/state\n\
             SlurmdSpoolDir=FOLDER/spool\nSlurmctldPidFile=FOLDER/slurmctld.pid\n\
             SlurmdPidFile=FOLDER/slurmd.pid\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\nReturnToService=2\n\
             SlurmdParameters=config_overrides\nMailProg=/bin/true\nKillWait=2\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN\n\
             PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP\n",
            ports[0], ports[1]
        );
        let folder = self.folder.path().display().to_string();
        let conf = (conf + more).replace("FOLDER", &folder);
        fs::write(self.path("slurm.conf"), conf).expect("writable");
        let script = format!("SLURM_CONF={folder}/slurm.conf exec scontrol \"$@\"");
        write_program(&self.path("bin/scontrol"), &script);
    }

    fn daemon(&mut self, program: &str, arguments: &[String]) {
        let log = fs::File::create(self.path(&format!("{program}.log"))).expect("writable");
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", self.path("slurm.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.daemons.push(command.spawn().expect("it was there a moment ago"));
    }

    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", self.path("slurm.conf"));
        let output = command.output().expect("it was there a moment ago");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let start = Instant::now();
        while !is_so(self) {
            if start.elapsed() > PATIENCE {
                let logs = ["munged", "slurmctld", "slurmd"]
                    .map(|name| fs::read_to_string(self.path(&format!("{name}.log"))));
                return Err(format!("no {what}: {logs:#?}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The jobs end first, since they are not children of a daemon here.
        if self.daemons.len() == 3 {
            self.run("scancel", &["--full", "--signal=KILL", "--user=root"]);
            self.run("scancel", &["--user=root"]);
            let is_empty = |c: &Self| c.run("squeue", &["-h", "-o", "%A"]).trim().is_empty();
            if let Err(e) = self.wait_for("empty queue", is_empty) {
                eprintln!("{e}");
            }
        }
        while let Some(mut daemon) = self.daemons.pop() {
            if let Some(pid) =
                i32::try_from(daemon.id()).ok().and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = daemon.wait();
        }
    }
}

fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}
