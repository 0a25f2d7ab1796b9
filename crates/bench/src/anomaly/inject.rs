//! The injected faults. Each lasts until its guard is dropped.

use std::any::Any;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use skopos_net::lab::Lab;

use super::faults::{Fault, KINDS};
use super::programs::{Outcome, start, stress};
use crate::child::Process;

/// Names of the kinds, by their number, and the beginnings of topics in which each shows itself.
pub(super) const FAULTS: [(&str, &[&str]); KINDS] = [
    ("busy disk", &["block", "block_latency", "psi/io"]),
    ("congested link", &["qdisc", "qdisc_sojourn", "netdev", "tcp", "tcp_peer", "sockets"]),
    ("packet loss", &["qdisc", "qdisc_sojourn", "netdev", "tcp", "tcp_peer"]),
    (
        "memory pressure",
        &["psi", "mem", "vmstat", "swap", "page_cache", "page_cache_hits", "block"],
    ),
    ("noisy neighbour", &["psi/cpu", "cpu", "load", "runqueue", "process"]),
    ("full accept queue", &["listener", "tcp"]),
    ("full receive buffer", &["udp", "sockets"]),
    ("flood of connections", &["sockets", "tcp", "tcp_peer"]),
];

/// The place of a fault.
pub(super) struct Place<'a> {
    pub(super) lab: &'a Lab,
    /// A folder on disk.
    pub(super) folder: &'a Path,
}

/// Connections to a listener that accepts none: more than its queue takes.
const QUEUED: usize = 40;

/// The rate at which datagrams come to a socket that nobody reads.
const DATAGRAMS_A_SECOND: f64 = 500.0;

/// Connections of a flood: fewer than the open files that a process may have.
const CONNECTIONS: f64 = 300.0;

/// Starts a fault.
///
/// # Errors
/// This machine cannot have it.
pub(super) fn inject(fault: &Fault, place: &Place<'_>) -> Outcome<Box<dyn Any>> {
    let size = fault.size;
    Ok(match fault.kind {
        0 => Box::new(busy_disk(place.folder, size)?),
        1 => Box::new(Shaped::new(place.lab, 1.0 + 2.0 * (1.0 - size), 200_000)?),
        2 => Box::new(Shaped::new(place.lab, 4.0 + 2.0 * (1.0 - size), 4_000)?),
        3 => Box::new(memory_pressure(size)?),
        4 => {
            let count = 6 + (10.0 * size) as u32;
            Box::new(start(&mut stress(&["--cpu", &count.to_string()]))?)
        }
        5 => Box::new(full_queue(place.lab)?),
        6 => Box::new(Unread::new(place.lab, DATAGRAMS_A_SECOND * (1.0 + 3.0 * size))?),
        _ => Box::new(connections(place.lab, (CONNECTIONS * (1.0 + size)) as usize)?),
    })
}

fn busy_disk(folder: &Path, size: f64) -> Outcome<Process> {
    let mut fio = Command::new("fio");
    fio.args(["--name=fault", "--rw=randread", "--bs=64k", "--size=256m", "--time_based"]);
    fio.args(["--runtime=300", "--ioengine=libaio", "--direct=1"]);
    fio.arg(format!("--iodepth={}", 32 + (96.0 * size) as u32));
    fio.arg(format!("--filename={}", folder.join("fault").display()));
    start(&mut fio)
}

/// Host `a` whose link is slower than it was, or has a shorter queue.
struct Shaped {
    undo: Command,
}

impl Shaped {
    fn new(lab: &Lab, mbit: f64, queue_bytes: u32) -> Outcome<Self> {
        let (rate, limit) = (format!("{}kbit", (mbit * 1000.0) as u64), queue_bytes.to_string());
        let words = ["qdisc", "replace", "dev", "eth0", "root", "tbf", "burst", "3200"];
        lab.exec("a", "tc", &[&words[..], &["rate", &rate, "limit", &limit]].concat())?;
        let mut undo = lab.command("a", "tc")?;
        undo.args(["qdisc", "del", "dev", "eth0", "root"]);
        Ok(Self { undo })
    }
}

impl Drop for Shaped {
    fn drop(&mut self) {
        let _ = self.undo.status();
    }
}

/// A program in a control group that has less memory than it uses.
struct Pressed {
    _process: Process,
    group: PathBuf,
}

fn memory_pressure(size: f64) -> Outcome<Pressed> {
    let (second, first) = (Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup/memory"));
    let (parent, limit) = match first.is_dir() {
        true => (first, "memory.limit_in_bytes"),
        false => (second, "memory.high"),
    };
    let group = parent.join(format!("skopos-bench-{}", std::process::id()));
    fs::create_dir_all(&group)?;
    let bytes = (48.0 - 24.0 * size) as u64 * 1_048_576;
    fs::write(group.join(limit), bytes.to_string())?;
    // The pages of a file can always be dropped and read again, so the group is never out of memory.
    let words = ["-c", "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"", "sh"];
    let mut command = Command::new("sh");
    command.args(words).arg(&group).args(["stress-ng", "--quiet", "--timeout", "300"]);
    command.args(["--mmap", "2", "--mmap-bytes", "192M", "--mmap-file"]);
    command.current_dir(std::env::temp_dir());
    let process = start(&mut command)?;
    Ok(Pressed { _process: process, group })
}

impl Drop for Pressed {
    fn drop(&mut self) {
        // The group is in use until its processes have ended; the next fault uses it again.
        let _ = fs::remove_dir(&self.group);
    }
}

/// A listener that accepts nothing, and its clients.
struct FullQueue {
    _listener: TcpListener,
    _clients: Vec<rustix::fd::OwnedFd>,
}

fn full_queue(lab: &Lab) -> Outcome<FullQueue> {
    let at = lab.addresses("a")?.0;
    let listener = lab.namespace("a")?.run(|| Ok(TcpListener::bind((at, 0))))??;
    let to = listener.local_addr()?;
    let connect = || -> std::io::Result<_> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        // A connection that waits for its handshake is what is wanted.
        let _ = rustix::net::connect(&socket, &to);
        Ok(socket)
    };
    let all = || (0..QUEUED * 4).map(|_| connect()).collect::<std::io::Result<Vec<_>>>();
    let clients = lab.namespace("b")?.run(|| Ok(all()))??;
    Ok(FullQueue { _listener: listener, _clients: clients })
}

/// A socket that nobody reads, and a thread that sends to it.
struct Unread {
    _socket: UdpSocket,
    over: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl Unread {
    fn new(lab: &Lab, rate: f64) -> Outcome<Self> {
        let at = lab.addresses("a")?.0;
        let socket = lab.namespace("a")?.run(|| Ok(UdpSocket::bind((at, 0))))??;
        let to = socket.local_addr()?;
        let own = lab.namespace("b")?.run(|| Ok(UdpSocket::bind("0.0.0.0:0")))??;
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let sender = thread::spawn(move || send(&own, to, rate, &flag));
        Ok(Self { _socket: socket, over, sender: Some(sender) })
    }
}

/// Sends datagrams until it is over, ten at once.
fn send(socket: &UdpSocket, to: SocketAddr, rate: f64, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        for _ in 0..10 {
            let _ = socket.send_to(&[7; 1000], to);
        }
        thread::sleep(Duration::from_secs_f64(10.0 / rate));
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.sender.take().map(JoinHandle::join);
    }
}

/// Returns connections from `b` to `a`, both ends.
fn connections(lab: &Lab, count: usize) -> Outcome<Vec<TcpStream>> {
    let at = lab.addresses("a")?.0;
    let listener = lab.namespace("a")?.run(|| Ok(TcpListener::bind((at, 0))))??;
    let to = listener.local_addr()?;
    let mut streams = Vec::new();
    for _ in 0..count {
        let near = lab.namespace("b")?.run(|| Ok(TcpStream::connect(to)))??;
        let (mut far, _) = listener.accept()?;
        far.write_all(b"hello")?;
        streams.extend([near, far]);
    }
    Ok(streams)
}
