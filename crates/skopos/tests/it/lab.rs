//! A lab: built, watched from its hosts, and gone.

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::Advice;
use serde_json::Value as Json;
use skopos_net::netns::Namespace;
use tempfile::TempDir;

use crate::json::check;
use crate::support::{Ran, eventually, run, runtime_dir, signal, skopos};

/// A running `skopos lab up`.
struct Up {
    name: String,
    dir: TempDir,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

/// Says loudly why a test is skipped, if this machine has no labs.
fn cannot() -> bool {
    let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
    let why = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if !has("ip") || !has("tc") {
        "needs `ip` and `tc` (Debian: iproute2)"
    } else if !has("mkfs.ext4") || !Path::new("/dev/fuse").exists() {
        "needs `mkfs.ext4` (Debian: e2fsprogs) and /dev/fuse"
    } else {
        return false;
    };
    println!("skipped: {why}");
    true
}

impl Up {
    /// Builds the example under a name of its own, because tests run at once.
    fn start(test: &str, more: &[&str]) -> Self {
        let dir = runtime_dir();
        let name = format!("{test}{}", std::process::id());
        let example = run(dir.path(), &["lab", "example"]).stdout;
        let text = example.replacen("name = \"demo\"", &format!("name = \"{name}\""), 1);
        assert!(text.contains(&name), "{example}");
        let file = dir.path().join("lab.toml");
        std::fs::write(&file, text).expect("written");
        let file = file.to_str().expect("UTF-8");
        let args = [&["lab", "up", file, "--json"], more].concat();
        let mut child =
            skopos(dir.path(), &args).stdout(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { name, dir, child, stdout }
    }

    /// Waits until the lab is up, and returns the line that says so.
    fn told(&mut self) -> Json {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line:?}"))
    }

    /// Runs `skopos` in a node.
    fn inside(&self, node: &str, words: &[&str]) -> Ran {
        let own = env!("CARGO_BIN_EXE_skopos");
        let begin = ["lab", "run", "--lab", &self.name, node, "--", own];
        run(self.dir.path(), &[&begin[..], words].concat())
    }

    /// Opens the pipe to which the agent of a node writes its warnings, as a program that it started has it.
    fn pipe_of(&self, node: &str) -> std::fs::File {
        let config = format!("skopos-lab/{}.state/{node}/skopos.toml", self.name);
        let running = || {
            let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
            // A process may end meanwhile.
            entries.map(|entry| entry.path()).find(|process| {
                let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(&config)
            })
        };
        let mut agent = None;
        eventually("the agent runs", || {
            agent = running();
            agent.is_some()
        });
        let agent = agent.expect("it runs");
        std::fs::OpenOptions::new().write(true).open(agent.join("fd/2")).expect("a pipe")
    }

    fn namespaces(&self) -> usize {
        let prefix = format!("skopos-{}-", self.name);
        let Ok(entries) = std::fs::read_dir("/run/netns") else { return 0 };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with(&prefix)).count()
    }

    /// Panics unless nothing is left: no namespace, no mount, no file, no process.
    fn check_gone(&self) {
        assert_eq!(self.namespaces(), 0);
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("procfs");
        assert!(!mounts.contains(&self.name), "{mounts}");
        let files = std::fs::read_dir("/run/skopos-lab").expect("it was there").flatten();
        let left: Vec<_> = files.map(|file| file.file_name()).collect();
        assert!(!left.iter().any(|file| file.to_string_lossy().contains(&self.name)), "{left:?}");
        let folder = format!("skopos-lab/{}.state", self.name);
        let lines = std::fs::read_dir("/proc").expect("procfs").flatten();
        // A process may end meanwhile.
        let lines = lines.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        let agents: Vec<String> = lines.filter(|line| line.contains(&folder)).collect();
        assert!(agents.is_empty(), "{agents:?}");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = run(self.dir.path(), &["lab", "down", &self.name]);
    }
}

/// A thread that repeats a step until this value is dropped.
struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    fn start(mut step: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !own.load(Ordering::Relaxed) {
                step();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends more datagrams than the slow link of the example takes, until it is dropped.
struct Sender {
    _thread: Background,
    _receiver: UdpSocket,
}

impl Sender {
    fn start(lab: &str, from: &str, to: &str, address: &'static str) -> Self {
        let namespace = |node: &str| Namespace::named(&format!("skopos-{lab}-{node}")).expect("up");
        let open = |node: &str, address: &'static str| {
            let opened = namespace(node).run(|| Ok(UdpSocket::bind(address)));
            opened.expect("it runs").expect("a free port")
        };
        let receiver = open(to, "0.0.0.0:7000");
        let sender = open(from, "0.0.0.0:0");
        sender.connect(address).expect("a route");
        let thread = Background::start(move || {
            for _ in 0..200 {
                // A full queue of the sender is no failure.
                let _ = sender.send(&[7; 1000]);
            }
            thread::sleep(Duration::from_millis(10));
        });
        Self { _thread: thread, _receiver: receiver }
    }
}

/// Bytes of the file that is read, and of a page of it.
const FILE_BYTES: u64 = 8 << 20;
const PAGE_BYTES: u64 = 4096;

/// Reads pages of a file in a folder at random places of the disk.
fn read_at_random(folder: &str) -> Background {
    let path = Path::new(folder).join("file");
    std::fs::write(&path, vec![7_u8; FILE_BYTES as usize]).expect("written");
    let file = std::fs::File::open(&path).expect("the file");
    file.sync_all().expect("synced");
    let advise = |file: &std::fs::File, advice| rustix::fs::fadvise(file, 0, None, advice);
    advise(&file, Advice::Random).expect("advised");
    let (mut page, mut place) = ([0; PAGE_BYTES as usize], 1);
    Background::start(move || {
        // A page that is in memory would not come from the disk.
        advise(&file, Advice::DontNeed).expect("advised");
        place = place * 48_271 % 0x7fff_ffff;
        let at = place % (FILE_BYTES / PAGE_BYTES) * PAGE_BYTES;
        file.read_exact_at(&mut page, at).expect("read");
    })
}

#[test]
fn the_congested_port_of_a_lab_is_named_from_its_hosts() {
    if cannot() {
        return;
    }
    let mut up = Up::start("seen", &["--agents"]);
    let told = up.told();
    check("lab", &told);
    let id = |node: &str| {
        let nodes = told["nodes"].as_array().expect("a list");
        let found = nodes.iter().find(|n| n["name"] == node).expect("a node");
        (found["id"].as_u64().expect("a number"), found.clone())
    };
    let (s1, switch) = id("s1");
    assert_eq!(switch["ports"][1]["peer"], "s2", "the slow link is at the second port");
    let status = run(up.dir.path(), &["lab", "status", "--json"]);
    let own = status.stdout.lines().map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    assert!(own.into_iter().any(|lab| lab == told), "{status:?}");
    if up.inside("s1", &["doctor"]).stdout.contains("packets get no telemetry") {
        println!("skipped: this kernel takes no programs for packets");
        return;
    }
    let _sender = Sender::start(&up.name, "a", "b", "10.77.0.2:7000");
    let mut latest = Ran { code: 0, stdout: String::new(), stderr: String::new() };
    eventually("the congestion point is named", || {
        let asked = "SELECT text FROM latest WHERE topic = 'b/insight/10.77.0.1-10.77.0.2/congestion_point'";
        latest = up.inside("b", &["sql", asked]);
        if latest.code != 0 || !latest.stdout.contains("holds") {
            // The agent is starting, or no packet has come yet.
            return false;
        }
        latest.stdout.contains(&format!("node {s1} port 2 holds"))
    });
    // Port and path are facts of the host that collects them.
    eventually("the port shows its queue", || {
        let asked = format!(
            "SELECT value FROM latest WHERE topic = 'b/port/{s1}-2/queue_bytes_max' AND value > 20000"
        );
        up.inside("b", &["sql", "--plain", &asked]).stdout.lines().count() == 1
    });
    let explained = up.inside("b", &["insight", "explain", "congestion_point"]);
    assert!(explained.stdout.contains("hops"), "{explained:?}");
    let asked = "SELECT text FROM latest WHERE topic = 'b/insight/10.77.0.1-10.77.0.2/slow_pair'";
    eventually("the network is blamed", || {
        let verdict = up.inside("b", &["sql", asked]).stdout;
        verdict.contains("network") || verdict.contains("both")
    });
    signal(&up.child, "TERM");
    assert!(up.child.wait().expect("a child").success());
    up.check_gone();
}

#[test]
fn the_bad_disk_of_a_lab_is_named_at_its_host() {
    if cannot() {
        return;
    }
    let mut up = Up::start("seek", &["--agents"]);
    let told = up.told();
    let folder = told["disks"][0]["folder"].as_str().expect("a folder").to_owned();
    let _reads = read_at_random(&folder);
    let asked = "SELECT text FROM latest WHERE topic = 'c/insight/node/slow_device'";
    // The disks of the machine may be slow at the same time.
    let bad = || {
        let ran = up.inside("c", &["sql", "--json", asked]);
        if ran.code != 0 {
            // The agent is starting.
            return None;
        }
        // While no device is slow, the text is the reason.
        let text = ran.json()["rows"][0]["text"].as_str()?.to_owned();
        let record: Json = serde_json::from_str(&text).ok()?;
        let is_bad = |device: &&Json| device["mount_points"][0] == folder;
        record["devices"].as_array()?.iter().find(is_bad).cloned()
    };
    eventually("the bad disk is named", || {
        let found = bad().unwrap_or_default();
        // A seek takes 8 ms, and half of the accesses seek. The first interval has accesses before that, too.
        let is_slow = found["access_seconds"].as_f64().is_some_and(|seconds| seconds >= 0.004);
        found["reason"] == "device" && is_slow
    });
    // The devices of the machine belong to the host that has a disk.
    let count = |node: &str, family: &str| {
        let asked =
            format!("SELECT count(*) AS n FROM latest WHERE topic LIKE '{node}/{family}/%'");
        let ran = up.inside(node, &["sql", "--json", &asked]);
        if ran.code == 0 { ran.json()["rows"][0]["n"].as_u64() } else { None }
    };
    eventually("host a has facts", || count("a", "psi") > Some(0));
    assert_eq!(count("a", "block"), Some(0), "host a has no disk");
    assert!(count("c", "block") > Some(0));
}

#[test]
fn a_lab_whose_process_was_killed_is_removed_by_down() {
    if cannot() {
        return;
    }
    let mut up = Up::start("killed", &["--agents"]);
    let told = up.told();
    assert_eq!(told["nodes"].as_array().map(Vec::len), Some(5));
    let again =
        run(up.dir.path(), &["lab", "up", up.dir.path().join("lab.toml").to_str().expect("UTF-8")]);
    assert!(again.code == 2 && again.stderr.contains("is up already"), "{again:?}");
    up.child.kill().expect("it runs");
    up.child.wait().expect("it ends");
    assert_eq!(up.namespaces(), 5, "a killed process removes nothing");
    let down = run(up.dir.path(), &["lab", "down", &up.name]);
    assert_eq!(down.code, 0, "{down:?}");
    up.check_gone();
    let again = run(up.dir.path(), &["lab", "down", &up.name]);
    assert_eq!(
        (again.code, again.stdout),
        (0, format!("there is no lab `{}`\n", up.name)),
        "there is nothing to remove"
    );
}

#[test]
fn a_program_that_has_the_pipe_of_an_agent_does_not_hold_a_lab() {
    if cannot() {
        return;
    }
    let mut up = Up::start("pipe", &["--agents"]);
    up.told();
    let _pipe = up.pipe_of("a");
    signal(&up.child, "TERM");
    eventually("the lab ends", || up.child.try_wait().expect("a child").is_some());
    up.check_gone();
}

#[test]
fn down_ends_the_process_that_holds_a_lab() {
    if cannot() {
        return;
    }
    let mut up = Up::start("held", &[]);
    up.told();
    let pinged = run(
        up.dir.path(),
        &["lab", "run", "--lab", &up.name, "a", "--", "sh", "-c", "echo $SKOPOS_LAB; exit 7"],
    );
    assert_eq!((pinged.code, pinged.stdout.trim()), (7, &*up.name), "{pinged:?}");
    let wrong = run(up.dir.path(), &["lab", "run", "--lab", &up.name, "x", "--", "true"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("it has a, b, c, s1, s2"), "{wrong:?}");
    let agent = up.inside("a", &["agent", "--for", "100ms"]);
    assert_eq!(agent.code, 0, "without `--agents`, users start their own: {agent:?}");
    let down = run(up.dir.path(), &["lab", "down", &up.name]);
    assert_eq!(down.code, 0, "{down:?}");
    assert!(up.child.wait().expect("a child").success());
    up.check_gone();
}

#[test]
fn without_privileges_an_agent_says_what_it_lost_and_the_rest_works() {
    let drop = ["--bounding-set=-all", "--inh-caps=-all"];
    if !Command::new("setpriv").args(drop).arg("true").status().is_ok_and(|ran| ran.success()) {
        println!("skipped: needs root and setpriv (Debian: util-linux)");
        return;
    }
    let dir = runtime_dir();
    let config = dir.path().join("skopos.toml");
    let text = "[telemetry.node]\nid = 1\ncollector = '127.0.0.1:9'\nwatch = [{ protocol = 'udp' }]\n\
        [[telemetry.node.interface]]\nname = 'lo'\nport = 1\nsink = 'ingress'\n\
        [telemetry.collector]\nlisten = '127.0.0.1:0'\nsources = ['127.0.0.0/8']\n";
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new("setpriv");
    command.args(drop).arg(env!("CARGO_BIN_EXE_skopos"));
    command.args(["agent", "--json", "--for", "1s", "--config"]).arg(&config);
    let ran = command.env("SKOPOS_DIR", dir.path()).output().expect("it starts");
    assert!(ran.status.success(), "{ran:?}");
    let stdout = String::from_utf8(ran.stdout).expect("UTF-8");
    let lines: Vec<Json> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let warned = lines.iter().filter(|line| line["event"] == "warning");
    let warned: Vec<_> = warned.filter_map(|line| line["message"].as_str()).collect();
    assert!(warned.iter().any(|text| text.contains("packets get no telemetry")), "{warned:?}");
    let started = lines.iter().find(|line| line["event"] == "started").expect("it starts");
    let listed = |list: &str, name: &str, key: &str| {
        let all = started["status"][list].as_array().expect("a list");
        all.iter().any(|one| one[key] == name)
    };
    assert!(listed("skips", "self_int", "what") && listed("sensors", "telemetry", "name"));
}

#[test]
fn mistakes_have_hints() {
    let dir = runtime_dir();
    let file = dir.path().join("lab.toml");
    std::fs::write(&file, "name = 'x'\n[[link]]\nends = ['a', 'b']\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    let root = rustix::process::geteuid().is_root();
    let ran = run(dir.path(), &["lab", "up", file]);
    let expected = if root { "neither a host nor a switch" } else { "needs root" };
    assert!(ran.code == 2 && ran.stderr.contains(expected), "{ran:?}");
    assert!(ran.stderr.contains("hint: "), "{ran:?}");
    let ran = run(dir.path(), &["lab", "up", "nothere.toml"]);
    let expected = if root { "skopos lab example > lab.toml" } else { "sudo" };
    assert!(ran.code == 2 && ran.stderr.contains(expected), "{ran:?}");
    let ran = run(dir.path(), &["lab", "down", "../x"]);
    assert!(ran.code == 2 && ran.stderr.contains("hint: "), "{ran:?}");
}
