//! A chain of network namespaces: `left`, switches, `right`. Switches are bridges, so that frames pass unchanged.

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use skopos_net::netns::Namespace;

/// Makes names of namespaces unique within this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The chain. It is removed when this value is dropped.
pub(crate) struct Chain {
    prefix: String,
    switches: usize,
    namespaces: Vec<String>,
}

/// Says loudly why a test is skipped, if this process cannot make namespaces.
pub(crate) fn cannot() -> bool {
    let why = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if Command::new("ip").arg("netns").output().is_err() {
        "needs `ip` (Debian: iproute2)"
    } else if Command::new("python3").arg("-V").output().is_err() {
        "needs python3"
    } else {
        return false;
    };
    println!("skipped: {why}");
    true
}

impl Chain {
    /// Makes a chain with a number of switches. Switch `n` has the interfaces `p1`, towards left, and `p2`,
    /// towards right; the hosts have `eth0`, with 10.9.0.1 and fd09::1, and 10.9.0.2 and fd09::2.
    pub(crate) fn new(switches: usize) -> Self {
        let prefix = format!("skt{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut chain = Self { prefix, switches, namespaces: Vec::new() };
        for node in 0..switches + 2 {
            let name = chain.name(node);
            ip(&["netns", "add", &name]);
            chain.namespaces.push(name.clone());
            chain.quiet(&name);
        }
        for link in 0..=switches {
            chain.link(link);
        }
        for switch in 1..=switches {
            let name = chain.name(switch);
            ip(&[
                "-n",
                &name,
                "link",
                "add",
                "br0",
                "type",
                "bridge",
                "stp_state",
                "0",
                "mcast_snooping",
                "0",
            ]);
            for port in ["p1", "p2"] {
                ip(&["-n", &name, "link", "set", port, "master", "br0"]);
            }
            ip(&["-n", &name, "link", "set", "br0", "up"]);
        }
        for (node, last) in [(0, 1), (switches + 1, 2)] {
            let name = chain.name(node);
            for address in [format!("10.9.0.{last}/24"), format!("fd09::{last}/64")] {
                let mut words = vec!["-n", &name, "address", "add", &address, "dev", "eth0"];
                if address.contains(':') {
                    words.push("nodad");
                }
                ip(&words);
            }
            ip(&["-n", &name, "link", "set", "lo", "up"]);
        }
        chain
    }

    fn name(&self, node: usize) -> String {
        format!("{}n{node}", self.prefix)
    }

    /// Turns off the packets that a kernel sends by itself.
    fn quiet(&self, name: &str) {
        let script = "echo 0 >/proc/sys/net/ipv6/conf/default/router_solicitations; \
                      echo 1 >/proc/sys/net/ipv6/conf/default/addr_gen_mode; \
                      echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad";
        let output = Command::new("ip").args(["netns", "exec", name, "sh", "-c", script]).output();
        assert!(output.expect("ip").status.success(), "{name}");
    }

    fn link(&self, link: usize) {
        let (left, right) = (self.name(link), self.name(link + 1));
        let near = if link == 0 { "eth0" } else { "p2" };
        let far = if link == self.switches { "eth0" } else { "p1" };
        ip(&[
            "link", "add", near, "netns", &left, "type", "veth", "peer", "name", far, "netns",
            &right,
        ]);
        ip(&["-n", &left, "link", "set", near, "up"]);
        ip(&["-n", &right, "link", "set", far, "up"]);
    }

    /// Returns a switch; the first is number 1.
    pub(crate) fn switch(&self, number: usize) -> Namespace {
        Namespace::named(&self.name(number)).expect("it was made")
    }

    /// Runs `ip`, or another program, in a switch or a host.
    pub(crate) fn run(&self, node: usize, words: &[&str]) -> Output {
        let name = self.name(node);
        let output =
            Command::new("ip").args(["netns", "exec", &name]).args(words).output().expect("ip");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        output
    }

    /// Sends frames from the left, and returns those that arrive at the right.
    pub(crate) fn pass(&self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let count = frames.len().to_string();
        let receiver = self.frames(self.switches + 1, &["receive", "eth0", &count]);
        let mut receiver = Ready::wait(receiver);
        let mut sender = self.frames(0, &["send", "eth0"]);
        let lines: String = frames.iter().map(|frame| hex(frame) + "\n").collect();
        sender.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads");
        assert!(sender.wait().expect("it ends").success());
        receiver.rest()
    }

    fn frames(&self, node: usize, words: &[&str]) -> Child {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/net/frames.py");
        Command::new("ip")
            .args(["netns", "exec", &self.name(node), "python3", script])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ip")
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for name in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

/// A receiver that has opened its socket.
struct Ready {
    child: Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Ready {
    fn wait(mut child: Child) -> Self {
        use std::io::BufRead as _;
        let mut lines = std::io::BufReader::new(child.stdout.take().expect("piped")).lines();
        let first = lines.next().expect("it says that it is ready").expect("text");
        assert_eq!(first, "ready");
        Self { child, lines }
    }

    fn rest(&mut self) -> Vec<Vec<u8>> {
        let frames = self.lines.by_ref().map(|line| bytes(&line.expect("text"))).collect();
        let _ = self.child.wait();
        frames
    }
}

pub(crate) fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip");
    assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("hex"))
        .collect()
}
