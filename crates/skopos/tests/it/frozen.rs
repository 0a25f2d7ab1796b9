//! A subscriber that is connected and reads nothing: the worst that a program can do to the live plane.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::client::narrow_socket;
use crate::plane::{Simulated, has_all, number};
use crate::sql::Hub;
use crate::support::eventually;

/// Zenoh's keep-alive message, with its length before it. A peer that receives it knows that the
/// connection is alive.
const KEEP_ALIVE: [u8; 3] = [1, 0, 4];

/// The time between two keep-alives. It is shorter than the interval that a peer must keep.
const KEEP_ALIVE_EVERY: Duration = Duration::from_millis(200);

/// A proxy between nodes and a hub. While it is closed, it reads nothing from the nodes and sends them
/// only keep-alives. To publishers it looks like a hub that has stalled.
struct Gate {
    at: String,
    is_closed: Arc<AtomicBool>,
    nodes: Arc<Mutex<Vec<TcpStream>>>,
}

impl Gate {
    fn before(hub: &Hub) -> Self {
        // The connections that the listener accepts have the same small buffer.
        let socket = narrow_socket(64 << 10);
        let anywhere: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        socket.bind(&anywhere.into()).and_then(|()| socket.listen(16)).expect("a port");
        let listener = TcpListener::from(socket);
        let at = format!("tcp/{}", listener.local_addr().expect("bound"));
        let hub = hub.at.trim_start_matches("tcp/").to_owned();
        let (is_closed, nodes) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let gate = Self { at, is_closed: is_closed.clone(), nodes: nodes.clone() };
        std::thread::spawn(move || {
            for node in listener.incoming().flatten() {
                let Ok(hub) = TcpStream::connect(&hub) else { continue };
                nodes.lock().expect("a list").push(node.try_clone().expect("a socket"));
                pass(node, hub, is_closed.clone());
            }
        });
        gate
    }

    /// Returns whether every node still has its connection.
    fn all_hold(&self) -> bool {
        let nodes = self.nodes.lock().expect("a list");
        let mut asked: Vec<_> =
            nodes.iter().map(|node| PollFd::new(node, PollFlags::RDHUP)).collect();
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("sockets");
        !nodes.is_empty() && asked.iter().all(|node| node.revents().is_empty())
    }

    /// Returns the number of bytes in the send queues of the nodes.
    fn waiting(&self) -> u64 {
        let port = self.at.rsplit(':').next().expect("a port");
        let listed = Command::new("ss").args(["-Htn", "dport", "=", &format!(":{port}")]).output();
        let listed = String::from_utf8(listed.expect("ss(8)").stdout).expect("UTF-8");
        let queues =
            listed.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
        queues.sum()
    }

    /// Lets everything through from now on, and closes the present connections. Their nodes connect
    /// again.
    fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
        for node in self.nodes.lock().expect("a list").drain(..) {
            let _ = node.shutdown(Shutdown::Both);
        }
    }
}

/// Forwards bytes in both directions.
fn pass(node: TcpStream, hub: TcpStream, is_closed: Arc<AtomicBool>) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
    let (mut from_node, mut to_hub, closed) = (clone(&node), clone(&hub), is_closed.clone());
    std::thread::spawn(move || {
        let mut bytes = [0; 64 << 10];
        loop {
            while closed.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            match from_node.read(&mut bytes) {
                Ok(read @ 1..) if to_hub.write_all(&bytes[..read]).is_ok() => {}
                _ => break,
            }
        }
        let _ = to_hub.shutdown(Shutdown::Both);
    });
    let (to_node, told_by) = (Arc::new(Mutex::new(node)), is_closed.clone());
    let kept_alive = to_node.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(KEEP_ALIVE_EVERY);
            let is_told = !is_closed.load(Ordering::SeqCst)
                || kept_alive.lock().expect("a stream").write_all(&KEEP_ALIVE).is_ok();
            if !is_told {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        // Messages are forwarded whole, so that a keep-alive can go between two of them.
        while let Some(message) = message(&hub) {
            let mut to_node = to_node.lock().expect("a stream");
            if !told_by.load(Ordering::SeqCst) && to_node.write_all(&message).is_err() {
                break;
            }
        }
        if !told_by.load(Ordering::SeqCst) {
            let _ = to_node.lock().expect("a stream").shutdown(Shutdown::Both);
        }
    });
}

/// Reads the next message of a Zenoh session over TCP: two bytes of length, then that many bytes.
fn message(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut message = vec![0; 2];
    stream.read_exact(&mut message).ok()?;
    let length = usize::from(u16::from_le_bytes([message[0], message[1]]));
    message.resize(2 + length, 0);
    stream.read_exact(&mut message[2..]).ok()?;
    Some(message)
}

/// Returns the number in a line of `/proc/PID/status`, in kilobytes.
fn status(child: &Child, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it lives");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_subscriber_that_takes_nothing_holds_up_no_other_and_counts_what_it_lost() {
    /// In kilobytes: sixteen of Zenoh's batches wait for each link. The rest is for a busy machine.
    const MOST_GROWTH_KB: u64 = 64 << 10;
    let (frozen, other) = (Hub::start(), Hub::start());
    let gate = Gate::before(&frozen);
    // All nodes share one connection, so that it is soon full.
    let args = ["--nodes", "4", "--facts", "1000", "--rate", "50", "--change", "1"];
    let args = [&args[..], &["--sessions", "1"]].concat();
    let nodes = Simulated::start_at([&*gate.at, &*other.at].into_iter(), &args);
    for hub in [&frozen, &other] {
        eventually("all nodes have all facts", || has_all(hub, 4, 1000));
    }
    let lost = "SELECT sum(lost_batches) AS n FROM nodes";
    let (lost_before, memory) = (number(&frozen, lost), status(&nodes.0, "VmRSS"));
    gate.is_closed.store(true, Ordering::SeqCst);
    let told = "SELECT max(CAST(time AS BIGINT)) AS n FROM latest WHERE node = 'sim0003'";
    // Time is by the clock of the nodes.
    let hears = |nanoseconds: u64| {
        let before = number(&other, told);
        eventually("the other hub receives their facts", || {
            number(&other, told) > before + nanoseconds
        });
    };
    let mut before = 0;
    eventually("the connection is full", || {
        hears(500_000_000);
        let now = gate.waiting();
        let is_full = now > 0 && now == before;
        before = now;
        is_full
    });
    // Zenoh's own queue for a link is full soon after.
    for _ in 0..8 {
        hears(500_000_000);
    }
    // A node that waited for this hub would have closed the connection by now.
    assert!(gate.all_hold(), "the nodes gave up a hub that is alive");
    let grown = status(&nodes.0, "VmRSS").saturating_sub(memory);
    assert!(grown < MOST_GROWTH_KB, "{grown} KB");
    gate.open();
    eventually("the hub counts the lost batches", || number(&frozen, lost) > lost_before);
    eventually("the hub has all facts again", || has_all(&frozen, 4, 1000));
    let before = number(&frozen, told);
    eventually("the hub receives new samples", || number(&frozen, told) > before);
    assert!(has_all(&other, 4, 1000));
}
