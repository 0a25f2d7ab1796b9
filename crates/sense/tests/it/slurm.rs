//! Jobs of Slurm: recorded output of scontrol, a scontrol that fails in several ways, and a cluster
//! of one node that this test starts and ends.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use skopos_sense::Root;

use crate::support::{Host, Table, Tree};

/// Ends a test that would wait for ever. A working test never takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

fn skipped(reason: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason}");
}

fn write_program(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
    fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

fn only_slurm(root: &Root) -> Host {
    let mut host = Host::open(root);
    host.sensors.retain(|s| s.family().name == "slurm");
    host
}

/// Returns a tree with processes, and a scontrol that prints recorded answers.
fn recorded() -> Tree {
    let tree = Tree::empty();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slurm");
    fs::copy(data.join("listpids.txt"), tree.path("listpids.txt")).expect("readable");
    let (folder, data) = (tree.folder.path().display(), data.display());
    let script = format!(
        "case \"$TZ $*\" in\n\
         'UTC0 listpids') cat {folder}/listpids.txt; exit 1 ;;\n\
         'UTC0 -o -d show job '*) echo $5 >>{folder}/asked; cat {data}/show-job-$5.txt ;;\n\
         esac"
    );
    write_program(&tree.path("bin/scontrol"), &script);
    // The script of job 5 started the others; 30242 has ended by now.
    for (pid, parent, bytes) in
        [(30134, 30120, 1000), (30232, 30200, 50), (30235, 30232, 7), (30262, 30240, 3)]
    {
        process(&tree, pid, parent, bytes);
    }
    tree
}

/// Writes a process whose four counts are `bytes` and one, two and three more.
fn process(tree: &Tree, pid: u32, parent: u32, bytes: u64) {
    let stat = format!("{pid} (a) b) S {parent} {} 77 0", "0 ".repeat(16));
    let io = format!(
        "rchar: {bytes}\nwchar: {}\nsyscr: 9\nsyscw: 9\nread_bytes: {}\nwrite_bytes: {}\n\
         cancelled_write_bytes: 0\n",
        bytes + 1,
        bytes + 2,
        bytes + 3
    );
    tree.write(&format!("proc/{pid}/stat"), stat).write(&format!("proc/{pid}/io"), io);
}

#[test]
fn jobs_of_this_node_and_their_bytes() {
    let tree = recorded();
    let mut host = only_slurm(&tree.root());
    let table = host.poll(10.0);
    assert_eq!(table.instances("slurm/"), ["3", "5"]);
    let texts = ["state", "user", "name"].map(|fact| table.text(&format!("slurm/3/{fact}")));
    assert_eq!(texts, [Some("RUNNING"), Some("root"), Some("climate")]);
    let given = table.json("slurm/3/allocation").expect("a record");
    assert_eq!((&given["node_list"], &given["tasks"]), (&"n[2-4],vm".into(), &5.into()));
    assert_eq!(given["distribution"][0]["cpus"], 2);
    for (topic, value) in [
        ("3/nodes", 4.0),
        ("3/cpus", 5.0),
        ("3/tasks", 5.0),
        ("3/memory_bytes", 2800.0 * 1_048_576.0),
        ("3/time_limit_seconds", 93_840.0),
        ("3/node_tasks", 1.0),
        ("3/node_processes", 1.0),
        ("3/node_read_bytes_total", 1000.0),
        ("5/nodes", 1.0),
        ("5/node_tasks", 1.0),
        ("5/node_processes", 3.0),
        ("5/node_read_bytes_total", 60.0),
        ("5/node_written_bytes_total", 63.0),
        ("5/node_storage_read_bytes_total", 66.0),
        ("5/node_storage_written_bytes_total", 69.0),
    ] {
        assert_eq!(table.value(&format!("slurm/{topic}")), value, "{topic}");
    }
    assert_eq!(table.get("slurm/5/time_limit_seconds"), None, "it has no limit");
}

#[test]
fn the_controller_is_asked_every_third_poll_and_bytes_never_fall() {
    let tree = recorded();
    let mut host = only_slurm(&tree.root());
    host.poll(10.0);
    // 30235 ends. Its parent, which waited for it, has its bytes now.
    fs::remove_dir_all(tree.path("proc/30235")).expect("ours");
    process(&tree, 30232, 30200, 62);
    assert_eq!(host.poll(10.0).value("slurm/5/node_read_bytes_total"), 65.0);
    // 30262 ends. Its parent belongs to Slurm.
    fs::remove_dir_all(tree.path("proc/30262")).expect("ours");
    assert_eq!(host.poll(10.0).value("slurm/5/node_read_bytes_total"), 65.0);
    host.poll(10.0);
    let asked = fs::read_to_string(tree.path("asked")).expect("it was asked");
    assert_eq!(asked, "3\n5\n3\n5\n", "at the first and at the fourth poll");
    tree.write("listpids.txt", "PID      JOBID    STEPID   LOCALID GLOBALID\n");
    assert_eq!(host.poll(10.0).topics(""), Vec::<&str>::new(), "jobs end");
}

#[test]
fn a_job_that_imitates_fields_is_a_skip() {
    let tree = recorded();
    tree.write("listpids.txt", "PID JOBID STEPID LOCALID GLOBALID\n30134 4 batch 0 0\n");
    let mut host = only_slurm(&tree.root());
    let table = host.poll(10.0);
    assert_eq!(table.text("slurm/4/state"), None);
    assert_eq!(
        table.value("slurm/4/node_read_bytes_total"),
        1000.0,
        "its bytes are known all the same"
    );
    let reason = host.skip("slurm/4").expect("a reason");
    assert!(reason.contains("`JobState=`"), "{reason}");
}

#[test]
fn a_silent_controller_does_not_hide_local_facts() {
    let tree = recorded();
    let script = fs::read_to_string(tree.path("bin/scontrol")).expect("written");
    write_program(&tree.path("bin/scontrol"), &script.replace("echo $5", "sleep 1000; echo $5"));
    // Long enough for the list on a busy machine.
    let patience = Duration::from_secs(5);
    let mut host = only_slurm(&Root { patience, ..tree.root() });
    let table = host.poll(10.0);
    assert_eq!(table.value("slurm/5/node_read_bytes_total"), 60.0);
    assert_eq!(table.text("slurm/5/state"), None);
    let reason = host.skip("slurm/3").expect("a reason");
    assert!(reason.contains("took longer than 5 s and was killed"), "{reason}");
    assert_eq!(host.skip("slurm/5"), None, "no other question follows");
    assert!(host.sensors[0].may_block());
    assert_eq!(host.sensors[0].interval_hint(), Some(Duration::from_secs(10)));
    let all = host.sensors[0].patience();
    assert!(all > 9 * patience, "a list and eight questions: {all:?}");
    let longer = Root { patience: patience + Duration::from_secs(2), ..tree.root() };
    let longer = only_slurm(&longer).sensors[0].patience();
    assert!(longer >= all + Duration::from_secs(2 * 9), "each of them");
}

#[test]
fn without_a_cluster_there_is_a_reason_and_another_attempt_later() {
    let tree = recorded();
    let reason = Tree::empty().host().skip("slurm").expect("a reason");
    assert!(reason.contains("No such file"), "{reason}");
    let list = fs::read(tree.path("listpids.txt")).expect("recorded");
    tree.write("listpids.txt", "");
    let reason = tree.host().skip("slurm").expect("a reason");
    assert!(reason.contains("no slurm.conf"), "{reason}");
    tree.write("listpids.txt", &list);
    let mut host = only_slurm(&tree.root());
    tree.write("listpids.txt", "");
    assert_eq!(host.poll(10.0).topics(""), Vec::<&str>::new());
    tree.write("listpids.txt", &list);
    let polls = (1..20).find(|_| !host.poll(10.0).topics("").is_empty());
    assert_eq!(polls, Some(6), "it does not run for a while");
}

/// A cluster of this machine alone, with its own ports, keys and folders.
struct Cluster {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    fn start() -> Result<Self, String> {
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
        cluster.write_files();
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

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_files(&self) {
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
        fs::write(self.path("slurm.conf"), conf.replace("FOLDER", &folder)).expect("writable");
        let script = format!("SLURM_CONF={folder}/slurm.conf exec scontrol \"$@\"");
        write_program(&self.path("bin/scontrol"), &script);
    }

    fn daemon(&mut self, program: &str, arguments: &[String]) {
        let log = fs::File::create(self.path(&format!("{program}.log"))).expect("writable");
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.daemons.push(command.spawn().expect("it was there a moment ago"));
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", self.path("slurm.conf"));
        let output = command.output().expect("it was there a moment ago");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
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

/// Polls until `is_so`, and checks that the bytes of the job never fall.
fn poll_until(host: &mut Host, job: &str, what: &str, is_so: impl Fn(&Table) -> bool) {
    let start = Instant::now();
    let topic = format!("slurm/{job}/node_written_bytes_total");
    let mut written = 0.0;
    loop {
        let table = host.poll(10.0);
        let now = table.get(&topic).unwrap_or(written);
        assert!(now >= written, "{now} bytes after {written}");
        written = now;
        if is_so(table) {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{what}: {:?} {:?}",
            table.snapshot(),
            host.skip("slurm")
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_real_job_of_a_real_cluster() {
    let cluster = match Cluster::start() {
        Ok(cluster) => cluster,
        Err(e) if e.starts_with("no ") => panic!("{e}"),
        Err(e) => return skipped(e),
    };
    let script = "\
        dd if=/dev/zero of=FOLDER/a bs=1M count=20 2>FOLDER/dd\n\
        exec 3>FOLDER/b\n\
        touch FOLDER/begun\n\
        while [ ! -e FOLDER/end ]; do head -c 100000 /dev/zero >&3; sleep 0.1; done";
    let folder = cluster.folder.path().display().to_string();
    write_program(&cluster.path("job"), &script.replace("FOLDER", &folder));
    let script = cluster.path("job").display().to_string();
    let arguments = ["--parsable", "--output=/dev/null", "--ntasks=1", "--mem=200"];
    let more = ["--time=00:10:00", "--job-name=a writer", &script];
    let job = cluster.run("sbatch", &[&arguments[..], &more[..]].concat()).trim().to_owned();
    assert!(job.parse::<u32>().is_ok(), "sbatch said `{job}`");
    let root = Root { scontrol: cluster.path("bin/scontrol"), ..Root::default() };
    let mut host = only_slurm(&root);
    assert_eq!(host.sensors.len(), 1, "{:?}", host.skips);

    cluster.wait_for("bytes", |c| c.path("begun").exists()).expect("the job runs");
    let fact = |name: &str| format!("slurm/{job}/{name}");
    poll_until(&mut host, &job, "state", |t| t.text(&fact("state")) == Some("RUNNING"));
    let table = &host.table;
    assert_eq!(table.instances("slurm/"), [job.as_str()]);
    assert_eq!(
        [table.text(&fact("user")), table.text(&fact("name"))],
        [Some("root"), Some("a writer")]
    );
    assert_eq!(table.value(&fact("nodes")), 1.0);
    assert_eq!(table.value(&fact("tasks")), 1.0);
    assert_eq!(table.value(&fact("node_tasks")), 1.0);
    assert_eq!(table.value(&fact("memory_bytes")), f64::from(200 << 20));
    assert_eq!(table.value(&fact("time_limit_seconds")), 600.0);
    let (start, end) = (table.value(&fact("start_seconds")), table.value(&fact("end_seconds")));
    assert_eq!(end - start, 600.0);
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    assert!((now - 600.0..=now + 1.0).contains(&start), "{start} is in UTC, and now is {now}");
    // dd has ended. The shell that waited for it has its 20 MiB, and starts children of its own.
    let written = f64::from(20 << 20);
    let more =
        |table: &Table, than: f64| table.get(&fact("node_written_bytes_total")) >= Some(than);
    poll_until(&mut host, &job, "bytes of dd", |t| more(t, written));
    poll_until(&mut host, &job, "bytes of more", |t| more(t, written + 1e6));
    // No byte is counted twice: the files hold what was written, less what is under way.
    let published = host.table.value(&fact("node_written_bytes_total"));
    let in_files = ["a", "b"].map(|f| fs::metadata(cluster.path(f)).expect("written").len());
    let in_files = in_files.iter().sum::<u64>() as f64;
    assert!(published <= in_files + 10_000.0, "{published} published, {in_files} in files");
    fs::write(cluster.path("end"), "").expect("writable");
    poll_until(&mut host, &job, "the end", |t| t.topics("slurm/").is_empty());
}
